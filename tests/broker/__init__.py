import pytest

pytest.register_assert_rewrite("tests.broker.cells")  # what it asserts is to be explained, too
