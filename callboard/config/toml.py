"""TOML, and the place of everything in it.

Python's own reader says what the values are, and refuses what is no TOML; it does not say where they stand. So a text
that it accepted is gone through once more, only for the keys.
"""

import re
import tomllib
from collections import defaultdict
from typing import Final, TypeAlias

import attrs

from callboard.config.positions import MAX_DEPTH, Lines, NotWritten, SourceNode

Path: TypeAlias = tuple[str | int, ...]

_SPACE: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS: Final = (
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})',
    r"'''.*?'''(?:'{0,2})",
    r'"(?:\\.|[^"\\])*"',
    r"'[^']*'",
)
_STRING: Final = re.compile("|".join(_STRINGS), re.DOTALL)
_OTHER: Final = re.compile(r"[^,\]}#\n]*")
_AT: Final = re.compile(
    r"(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL
)


def read_toml(text: str) -> SourceNode:
    """The table that *text* is. Raises `NotWritten`."""
    lines = Lines.of(text)
    try:
        written = tomllib.loads(text)
        finder = _Finder(text)
        finder.run()
    except tomllib.TOMLDecodeError as error:
        raise _not_written(error, lines.at(len(text.rstrip()))) from None
    except RecursionError:
        raise NotWritten(f"nested deeper than {MAX_DEPTH} levels", 1) from None
    except ValueError:  # of int(), for the longest numbers
        raise NotWritten("number too long", 1) from None
    return _node(written, (), finder.found, lines)


def _not_written(error: tomllib.TOMLDecodeError, end: tuple[int, int]) -> NotWritten:
    told = _AT.fullmatch(str(error))
    if told is None:
        return NotWritten(str(error), *end)
    what = told["what"][:1].lower() + told["what"][1:]
    line, column = end if told["line"] is None else (int(told["line"]), int(told["column"]))
    return NotWritten(what, line, column)


def _node(value: object, path: Path, found: dict[Path, int], lines: Lines) -> SourceNode:
    line, column = lines.at(found.get(path, 0))
    if len(path) > MAX_DEPTH:
        raise NotWritten(f"nested deeper than {MAX_DEPTH} levels", line, column)
    if isinstance(value, dict):
        members = {key: _node(one, (*path, key), found, lines) for key, one in value.items()}
        return SourceNode(line=line, column=column, members=members)
    if isinstance(value, list):
        items = [_node(one, (*path, at), found, lines) for at, one in enumerate(value)]
        return SourceNode(line=line, column=column, items=items)
    return SourceNode(line=line, column=column, value=value)


@attrs.define
class _Finder:
    """Positions of each key and item. Only for a text that is known to be valid TOML."""

    text: str
    offset: int = 0
    found: dict[Path, int] = attrs.field(factory=dict)
    _tables: defaultdict[Path, int] = attrs.field(factory=lambda: defaultdict(int))
    """How many tables there are so far of each `[[name]]`."""

    def run(self) -> None:
        table: Path = ()
        while self._skip() < len(self.text):
            if self.text[self.offset] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        brackets = 2 if self.text.startswith("[[", self.offset) else 1
        self.offset += brackets
        path: Path = ()
        keys = self._keys()
        for place, (key, at) in enumerate(keys, 1):
            path = (*path, key)
            self.found.setdefault(path, at)
            if brackets == 2 and place == len(keys):
                self._tables[path] += 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self.found.setdefault(path, at)
        self.offset += brackets
        return path

    def _pair(self, path: Path) -> None:
        for key, at in self._keys():
            path = (*path, key)
            self.found.setdefault(path, at)
        self.offset += 1  # =
        self._over(_BLANK)
        self._value(path)

    def _keys(self) -> list[tuple[str, int]]:
        """A key with its dots; what stands behind it is next."""
        keys: list[tuple[str, int]] = []
        while True:
            self._over(_BLANK)
            at = self.offset
            if self.text[at] in "\"'":
                self._over(_STRING)
                keys.append((str(tomllib.loads(f"it = {self.text[at : self.offset]}")["it"]), at))
            else:
                self._over(_BARE)
                keys.append((self.text[at : self.offset], at))
            self._over(_BLANK)
            if self.text[self.offset] != ".":
                return keys
            self.offset += 1

    def _value(self, path: Path) -> None:
        first = self.text[self.offset]
        if first in "\"'":
            self._over(_STRING)
        elif first in "[{":
            self._several(path, is_array=first == "[")
        else:
            self._over(_OTHER)

    def _several(self, path: Path, *, is_array: bool) -> None:
        self.offset += 1
        count = 0
        while self.text[self._skip()] not in "]}":
            if self.text[self.offset] == ",":
                self.offset += 1
                continue
            if is_array:
                self.found[(*path, count)] = self.offset
                self._value((*path, count))
                count += 1
            else:
                self._pair(path)
        self.offset += 1

    def _skip(self) -> int:
        self._over(_SPACE)
        return self.offset

    def _over(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.offset)
        if found is not None:
            self.offset = found.end()
