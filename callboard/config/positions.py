"""Values of a file with their lines and columns, the same for JSON and TOML."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

MAX_DEPTH: Final = 64
"""Deepest nesting of a file that is read. The deepest that means anything is six."""


@attrs.frozen(kw_only=True)
class Repeated:
    """A key that stands in its object once more."""

    key: str
    line: int
    column: int
    first: int
    """The line where it stands first."""


@attrs.frozen(kw_only=True)
class SourceNode:
    """One value. Its place is that of its key, if it has one. It has *members*, or *items*, or is plain."""

    line: int
    column: int
    value: object = attrs.field(default=None, repr=False)
    members: "Mapping[str, SourceNode] | None" = None
    items: "Sequence[SourceNode] | None" = None
    repeated: tuple[Repeated, ...] = ()


class NotWritten(Exception):
    """The text is not in its format."""

    def __init__(self, message: str, line: int, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@attrs.frozen
class Lines:
    """Offsets of the lines of a text."""

    starts: Sequence[int]

    @classmethod
    def of(cls, text: str) -> "Lines":
        return cls([0, *(at + 1 for at, character in enumerate(text) if character == "\n")])

    def at(self, offset: int) -> tuple[int, int]:
        """Line and column, both counted from 1."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1
