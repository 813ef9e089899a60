"""At the end of a run, one line for each figure that its tests took."""

import pytest

from tests.figures import table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table. Where workers run the tests there is none: their figures stay with them."""
    if lines := table():
        terminalreporter.section("promises")
        for line in lines:
            terminalreporter.line(line)
