"""At the end of a run, one line for each figure that its tests took; and room for those with thousands of peers."""

import resource
from collections.abc import Iterator

import pytest

from tests.figures import table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table. Where workers run the tests there is none: their figures stay with them."""
    if lines := table():
        terminalreporter.section("promises")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many as the system allows, for the test and for the processes that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
