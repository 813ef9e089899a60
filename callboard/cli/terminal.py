"""The person at the terminal: is asked on standard error, a line at a time, and may leave at any moment.

A line is read when there is one, by Trio itself: no thread waits for it, which could not be ended. Where the system
has no such way (Windows), a thread does.
"""

import os
import sys
from typing import Final, Protocol

import trio
from rich.console import Console
from rich.text import Text

from callboard.supervisor.printable import clean

READ_SIZE: Final = 4096
"""Longest line that a terminal hands over at once."""


class Person(Protocol):
    """A user that can be asked."""

    def say(self, text: str, style: str = "") -> None:
        """Show a line."""

    async def ask(self, question: str) -> str | None:
        """A line in answer to *question*; None if no answer can come any more."""


class Terminal:
    """Asks at the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @staticmethod
    def is_there() -> bool:
        """Whether a user can see what is asked, and answer."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def say(self, text: str, style: str = "") -> None:
        self._console.print(Text(clean(text)), style=style, soft_wrap=True)

    async def ask(self, question: str) -> str | None:
        self._console.print(Text(clean(question)), end=" ", soft_wrap=True)
        line = await _read_line()
        return None if not line else line.rstrip("\r\n")


async def _read_line() -> str:
    if os.name != "posix":
        return await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    await trio.lowlevel.wait_readable(sys.stdin.fileno())
    try:
        return os.read(sys.stdin.fileno(), READ_SIZE).decode(errors="replace")
    except OSError:  # the terminal was closed
        return ""
