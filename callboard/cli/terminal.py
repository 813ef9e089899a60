"""The person at the terminal: is asked on standard error, a line at a time, and may leave at any moment.

A line is read when there is one, by Trio itself: no thread waits for it, which could not be ended. Where the system
has no such way (Windows), a thread does.
"""

import os
import sys
from typing import TYPE_CHECKING, Final, Protocol

import trio

from callboard.supervisor.printable import clean

if TYPE_CHECKING:
    from rich.console import Console

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

    def __init__(self, console: "Console") -> None:
        self._console = console

    @staticmethod
    def is_there() -> bool:
        """Whether a user can see what is asked, and answer."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def say(self, text: str, style: str = "") -> None:
        self._print(text, "\n", style)

    async def ask(self, question: str) -> str | None:
        self._print(question, " ")
        line = ""
        try:
            line = await _read_line()
        finally:
            if not line.endswith("\n"):  # Ctrl-C and Ctrl-D leave the cursor behind the question
                self._console.print()
        return None if not line else line.rstrip("\r\n")

    def _print(self, text: str, end: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(clean(text)), style=style, end=end, soft_wrap=True)


async def _read_line() -> str:
    if os.name != "posix":
        return await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    await trio.lowlevel.wait_readable(sys.stdin.fileno())
    try:
        return os.read(sys.stdin.fileno(), READ_SIZE).decode(errors="replace")
    except OSError:  # the terminal was closed
        return ""
