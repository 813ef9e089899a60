"""What `import callboard` gives."""

import subprocess
import sys

import pytest

import callboard


def test_every_public_name_is_there() -> None:
    assert all(hasattr(callboard, name) for name in callboard.__all__)
    assert sorted(callboard.__all__) == list(callboard.__all__)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sever'"):
        _ = callboard.Sever


def test_a_broker_is_loaded_when_it_is_asked_for() -> None:
    code = "import callboard, sys; assert 'callboard.broker' not in sys.modules; callboard.Broker"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("first", ["", "import callboard.serve.run; "])
def test_the_function_that_serves_is_found_where_the_documents_say(first: str) -> None:
    code = f"{first}from callboard.serve import serve; assert callable(serve), serve"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
