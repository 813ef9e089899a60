"""Finding a template's variables in a URI. Not in RFC 6570, so its rules are stated here.

- A variable takes at least one character. A plain one stops at `/`, `?` and `#`; one with `+` or `#`, and an
  exploded `{/list*}`, may take any part of the URI, and a template may have one such.
- Variables of `{?...}` and `{&...}` are optional, come in any order, and must end the template.
- Where several answers are possible, the one variable that may take much takes most; without one, the first does.
- Values are percent-decoded and otherwise handed on as they are: `..` and encoded slashes mean nothing here.

Matching searches for each literal once, from both ends inwards. Nothing backtracks, so it is linear in the URI.
"""

import re
from typing import Final, TypeAlias
from urllib.parse import unquote

import attrs

MAX_URI: Final = 8 * 1024
"""Longest URI that is looked at, in characters. HTTP servers commonly take a request line of no more."""

Found: TypeAlias = dict[str, str | list[str]]
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_END_OF_SEGMENT: Final = re.compile(r"[/?#]")


@attrs.frozen
class Hole:
    """A place in the URI where a variable stands."""

    name: str
    wide: bool = False
    listed: bool = False

    def read(self, text: str) -> str | list[str] | None:
        """Return the value that *text* stands for, or None if this variable cannot have it."""
        if not text or (not self.wide and _END_OF_SEGMENT.search(text)):
            return None
        whole = _decoded(text)
        if whole is None or not self.listed:
            return whole
        return [unquote(part) for part in text.split("/")]


@attrs.frozen
class Side:
    """The tokens on one side of the middle variable, from the outside inwards: a literal, then pairs."""

    start: str
    pairs: tuple[tuple[Hole, str], ...] = ()

    def scan(self, text: str) -> tuple[int, list[tuple[Hole, str]]] | None:
        """Return how far this side reaches into *text*, and the raw value of each variable."""
        if not text.startswith(self.start):
            return None
        at, values = len(self.start), []
        for hole, literal in self.pairs:
            end = text.find(literal, at + 1)
            if end < 0:
                return None
            values.append((hole, text[at:end]))
            at = end + len(literal)
        return at, values


@attrs.frozen
class Query:
    """The optional variables at the end of a template, after a query that is fixed text, if any."""

    names: tuple[str, ...]
    fixed: str | None = None

    def cut(self, uri: str) -> tuple[str, str] | None:
        """Part a URI into what the rest of the template must match, and the query's own pairs."""
        head, mark, tail = uri.partition("?")
        if self.fixed is None:
            return head, tail
        rest = tail.removeprefix(self.fixed)
        fits = bool(mark) and tail.startswith(self.fixed) and rest[:1] in ("", "&")
        return (head + mark + self.fixed, rest[1:]) if fits else None

    def read(self, text: str) -> Found | None:
        """Return the variables of *text*, or None if it holds another name, or one twice."""
        if not text:
            return {}
        if "#" in text:
            return None
        found: Found = {}
        for pair in text.split("&"):
            name, _, raw = pair.partition("=")
            value = _decoded(raw)
            if name not in self.names or name in found or value is None:
                return None
            found[name] = value
        return found


@attrs.frozen
class MatchPlan:
    """How to match one template: the sides of its middle variable, and the variables of its query."""

    left: Side
    middle: Hole | None
    right: Side  # reversed, and so is the text that it scans
    query: Query | None

    @property
    def head(self) -> str:
        """The fixed text at the start of every matching URI."""
        return self.left.start

    def match(self, uri: str) -> Found | None:
        """Return the variables of *uri*, which is `normal`, or None if it does not fit."""
        if not uri.startswith(self.left.start):
            return None
        if self.query is None:
            return self._match_path(uri)
        cut = self.query.cut(uri)
        if cut is None:
            return None
        path = self._match_path(cut[0])
        query = None if path is None else self.query.read(cut[1])
        return None if path is None or query is None else path | query

    def _match_path(self, text: str) -> Found | None:
        left = self.left.scan(text)
        right = None if left is None else self.right.scan(text[::-1])
        if left is None or right is None:
            return None
        begin, end = left[0], len(text) - right[0]
        if self.middle is None:
            return {} if begin == len(text) else None
        raw = [*left[1], (self.middle, text[begin:end]), *((hole, part[::-1]) for hole, part in right[1][::-1])]
        values = {hole.name: hole.read(part) for hole, part in raw}
        found = {name: value for name, value in values.items() if value is not None}
        return found if len(found) == len(values) else None


def normal(uri: str) -> str | None:
    """The URI as templates are matched with it: ASCII, the rest percent-encoded. None for one that fits no template.

    Linear in the URI, and meant to be done once, however many templates there are.
    """
    if len(uri) > MAX_URI:
        return None
    if uri.isascii():
        return uri
    try:
        return _NOT_ASCII.sub(lambda run: "%" + run[0].encode().hex("%").upper(), uri)
    except UnicodeEncodeError:
        return None


def _decoded(text: str) -> str | None:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None
