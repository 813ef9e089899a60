"""The standard streams as a command finds them: maybe closed, or full, or made for fewer letters than a server has."""

import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, cast

from callboard.errors import CallboardError

if TYPE_CHECKING:
    from rich.console import Console

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


_OF_COMMAND: Final = ContextVar("_OF_COMMAND", default=False)
"""Tasks and threads take it over from what starts them. A server's begin before the command claims standard output."""


@contextmanager
def own_stdout() -> Iterator[None]:
    """Keep standard output for the result of a command: what a server in this process prints goes to standard error.

    Only the task that calls `claim_stdout`, and what it starts from then on, writes to standard output.
    """
    whole = sys.stdout
    sys.stdout = cast("TextIO", _Divided(whole))
    try:
        yield
    finally:
        sys.stdout = whole


def claim_stdout() -> None:
    """Say that this task is the command's, and no handler of a server."""
    _OF_COMMAND.set(True)


class _Divided:
    """Standard output for one half of a process, and standard error for the other."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if _OF_COMMAND.get():
            return self._stream.write(text)
        return forgiving_stderr().write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def is_console(stream: IO[str]) -> bool:
    """Whether *stream* is a terminal, or the environment says that it is to be taken for one."""
    if any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE")):
        return console_of(stream).is_terminal
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def console_of(stream: IO[str]) -> "Console":
    """The console of *stream*. A dumb terminal has a width, too, which rich does not look at."""
    from rich.console import Console  # it takes time to load, and a pipe needs none

    is_dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return Console(file=stream, width=shutil.get_terminal_size().columns if is_dumb else None)


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
