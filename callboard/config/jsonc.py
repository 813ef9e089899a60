"""JSON with the comments and trailing commas that editors allow, and the place of everything in it."""

import json
import re
from typing import Final

import attrs

from callboard.config.positions import MAX_DEPTH, Lines, NotWritten, Repeated, SourceNode

_SPACE: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])")
_WORD: Final = re.compile(r"[A-Za-z_$][\w$]*")
_WORDS: Final = {"true": True, "false": False, "null": None}


def read_json(text: str) -> SourceNode:
    """The value that *text* is. Raises `NotWritten`."""
    reader = _Reader(text, Lines.of(text))
    reader.skip()
    root = reader.value(0)
    reader.skip()
    if reader.offset < len(text):
        raise reader.wrong("unexpected text after the end of the document")
    return root


@attrs.define
class _Reader:
    text: str
    lines: Lines
    offset: int = 0

    def value(self, depth: int, at: int | None = None) -> SourceNode:
        """The value that begins here. Its key, if it has one, stands at *at*."""
        line, column = self.lines.at(self.offset if at is None else at)
        if depth > MAX_DEPTH:
            raise self.wrong(f"nested deeper than {MAX_DEPTH} levels")
        match self.text[self.offset : self.offset + 1]:
            case "{":
                members, repeated = self._members(depth)
                return SourceNode(line=line, column=column, members=members, repeated=tuple(repeated))
            case "[":
                return SourceNode(line=line, column=column, items=self._items(depth))
            case '"':
                return SourceNode(line=line, column=column, value=self._string())
            case _:
                return SourceNode(line=line, column=column, value=self._plain())

    def _members(self, depth: int) -> tuple[dict[str, SourceNode], list[Repeated]]:
        members: dict[str, SourceNode] = {}
        repeated: list[Repeated] = []
        self._open()
        while not self._closes("}"):
            at = self.offset
            if self.text[at : at + 1] != '"':
                raise self.wrong("expected a key in double quotes")
            key = self._string()
            self.skip()
            if self.text[self.offset : self.offset + 1] != ":":
                raise self.wrong("expected `:` after the key")
            self.offset += 1
            self.skip()
            node = self.value(depth + 1, at)
            if key in members:
                repeated.append(Repeated(key=key, line=node.line, column=node.column, first=members[key].line))
            members[key] = node
            self._comma("}")
        return members, repeated

    def _items(self, depth: int) -> list[SourceNode]:
        items: list[SourceNode] = []
        self._open()
        while not self._closes("]"):
            items.append(self.value(depth + 1))
            self._comma("]")
        return items

    def _open(self) -> None:
        self.offset += 1
        self.skip()

    def _closes(self, bracket: str) -> bool:
        if self.text[self.offset : self.offset + 1] != bracket:
            return False
        self.offset += 1
        return True

    def _comma(self, bracket: str) -> None:
        """Over the comma, which may be left out, or not, before the end."""
        self.skip()
        found = self.text[self.offset : self.offset + 1]
        if found == ",":
            self.offset += 1
            self.skip()
        elif found != bracket:
            raise self.wrong(f"expected `,` or `{bracket}`")

    def _string(self) -> str:
        found = _STRING.match(self.text, self.offset)
        if found is None:
            raise self.wrong("unterminated string")
        try:
            value = str(json.loads(found[0]))
            value.encode()
        except json.JSONDecodeError:
            raise self.wrong("invalid escape in a string; write `\\\\` for a backslash") from None
        except UnicodeEncodeError:
            raise self.wrong("a string has half a surrogate pair") from None
        self.offset = found.end()
        return value

    def _plain(self) -> object:
        found = _NUMBER.match(self.text, self.offset)
        if found is not None:
            try:
                value: object = json.loads(found[0])
            except ValueError:
                raise self.wrong("number too long") from None
        else:
            found = _WORD.match(self.text, self.offset)
            if found is None or found[0] not in _WORDS:
                raise self.wrong("invalid value: strings need double quotes")
            value = _WORDS[found[0]]
        self.offset = found.end()
        return value

    def skip(self) -> None:
        """Over blanks and comments."""
        found = _SPACE.match(self.text, self.offset)
        self.offset = self.offset if found is None else found.end()
        if self.text.startswith("/*", self.offset):
            raise self.wrong("unterminated comment")

    def wrong(self, message: str) -> NotWritten:
        is_over = self.offset >= len(self.text)
        line, column = self.lines.at(len(self.text.rstrip()) if is_over else self.offset)
        return NotWritten("unexpected end of file" if is_over else message, line, column)
