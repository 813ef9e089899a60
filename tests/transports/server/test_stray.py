"""What handlers print where standard output belongs to the protocol."""

import os

import pytest

from callboard.supervisor.standard_error import MOST_KEPT
from callboard.transports.server import stdio
from tests.supervisor.test_logs import standard_error


@pytest.mark.finding("faults-H1")
def test_a_handler_that_prints_much_blocks_nobody_though_standard_error_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.pipe()
    with standard_error(theirs, monkeypatch) as file:
        monkeypatch.setattr(stdio, "STANDARD_ERROR", file)
        with stdio._Stray(os.dup(theirs), "w") as stray:
            for _ in range(1000):
                assert stray.write(b"x" * 999 + b"\n") == 1000
        assert file._bytes <= MOST_KEPT
        os.close(ours)
        file.drain(5)
    os.close(theirs)
