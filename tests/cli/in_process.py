"""A command in the test's own process: its exit code, and what it wrote."""

import gc
import sys

import attrs
import pytest

from callboard.cli.main import main


@attrs.frozen
class InProcess:
    """Runs commands as the program would, but for what it changes for the whole process."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> tuple[object, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["callboard", *arguments])
        self.monkeypatch.setattr(gc, "disable", lambda: None)
        self.monkeypatch.setattr("callboard.cli.client_run.before_first_line", lambda _: None)  # the logs of all tests
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        return (code, *self.capsys.readouterr())
