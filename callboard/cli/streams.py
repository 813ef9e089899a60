"""The standard streams as a command finds them: maybe closed, or full, or made for fewer letters than a server has."""

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, cast

from callboard.errors import CallboardError

_MODES: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}
"""In the order of their numbers: a file that is opened takes the lowest that is free."""


class CannotWrite(CallboardError):
    """The output cannot be written."""


def prepare_streams() -> None:
    """Have all three: one that is closed leads nowhere. A pipe gets UTF-8; a terminal gets what it can show."""
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for the life of the process
            setattr(sys, name, nowhere)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def forgiving_stderr() -> IO[str]:
    """Standard error, where what cannot be written is not: a command must not lose its result by that."""
    return cast("IO[str]", _Forgiving(sys.stderr))


class _Forgiving:
    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
