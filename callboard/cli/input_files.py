"""`@FILE` and `@-`: values that a command reads from a file or from standard input."""

import base64
import sys
from pathlib import Path
from typing import Final

import attrs

from callboard.config.files import read_file

MAX_INPUT: Final = 64 * 1024 * 1024
"""Largest file of one argument, in bytes. Servers accept requests of 4 MiB by default; /dev/zero has no end."""

STDIN: Final = "-"


class BadArgument(ValueError):
    """Invalid command-line arguments. The message is one line."""


@attrs.define(eq=False)
class InputFiles:
    """The files that the arguments of one command name. Standard input can be read once."""

    _stdin_for: str | None = attrs.field(default=None, init=False)

    def text(self, value: str, what: str) -> str:
        """*value*, or the text of the file that it names after an `@`; `@@` stands for an `@`. Raises `BadArgument`."""
        if not is_file(value):
            return unescaped(value)
        try:
            return self.data(value, what).decode()
        except UnicodeDecodeError:
            raise BadArgument(f"{what}: {shown_name(value)} is not UTF-8 text") from None

    def text_or_base64(self, value: str, what: str, *, is_binary: bool) -> str:
        """As `text`, for an argument of a tool: bytes that are no text, or that the tool wants as such, as base64."""
        if not is_file(value):
            return unescaped(value)
        data = self.data(value, what)
        if not is_binary:
            try:
                return data.decode()
            except UnicodeDecodeError:
                pass  # JSON has no other way for bytes
        return base64.b64encode(data).decode()

    def data(self, value: str, what: str, *, is_json: bool = False) -> bytes:
        """The bytes of the file that *value* names. Raises `BadArgument`. JSON never begins with an `@` itself."""
        name = value.removeprefix("@")
        try:
            data = self._stdin(what) if name == STDIN else read_file(Path(name).expanduser(), MAX_INPUT).data
        except (OSError, ValueError) as error:  # ValueError: a null byte in the name
            if isinstance(error, BadArgument):
                raise
            why = getattr(error, "strerror", None) or error
            is_missing = isinstance(error, FileNotFoundError) and not is_json
            hint = f"; for the text itself write {what}=@{value[:100]}" if is_missing else ""
            raise BadArgument(f"{what}: {shown_name(value)}: {why}{hint}") from None
        if len(data) > MAX_INPUT:
            raise BadArgument(f"{what}: {shown_name(value)} is larger than {MAX_INPUT:,} bytes")
        return data

    def _stdin(self, what: str) -> bytes:
        if self._stdin_for is not None:
            raise BadArgument(f"{what}: standard input is already used for {self._stdin_for}")
        self._stdin_for = what
        return sys.stdin.buffer.read(MAX_INPUT + 1)


def is_file(value: str) -> bool:
    """Whether *value* names a file."""
    return value.startswith("@") and not value.startswith("@@") and value != "@"


def unescaped(value: str) -> str:
    """*value* without the `@` that says that the next one is meant as it stands."""
    return value.removeprefix("@") if value.startswith("@@") else value


def shown_name(value: str) -> str:
    """The file that *value* names, for a message."""
    name = value.removeprefix("@")
    return "standard input" if name == STDIN else name[:200].encode(errors="backslashreplace").decode()


def checked_utf8(text: str, what: str) -> str:
    """*text*, if it can be sent: a shell passes any bytes on. Raises `BadArgument`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = text[:100].encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise BadArgument(f"invalid UTF-8 in {what} '{shown}'") from None
    return text
