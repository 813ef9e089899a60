"""Heads of requests that were read before: a client says nearly the same with every request.

A head is known by its bytes, or by its bytes without the values that vary from request to request: so ten thousand
sessions of one kind of client have one head. Only such a value may differ from what was read, and it is held to the
characters that no reader takes for anything but a value: a line cannot end inside it, nor begin.
"""

import re
from typing import Final, TypeAlias

import attrs

from callboard.codecs.http.head import Head

MAX_REMEMBERED: Final = 2048
"""Longest head that is remembered, in bytes."""

MOST_REMEMBERED: Final = 1024
"""Most heads that are remembered by all of their bytes; then it begins anew. Two megabytes, and as much again for each
head as it was read."""

MOST_SHAPES: Final = 256
"""Most heads that are remembered without the values that vary; then it begins anew."""

_END: Final = b"\r\n\r\n"

# Nothing that is decided before the body is read depends on one of these. The length of the body is looked at anew.
_split: Final = re.compile(
    rb"(\r\n(?i:content-length|mcp-session-id|mcp-name|mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]++|authorization"
    rb"|traceparent|tracestate|x-request-id): )([!-~]++(?: ++[!-~]++)*+)(?=\r\n)"
).split
_LENGTH: Final = b"content-length"
_MAX_DIGITS: Final = 15


Known: TypeAlias = tuple[Head, int, int]
"""A head that was recalled, where it ends, and the size of the body that follows it. A plain tuple: there is one for
every request."""


@attrs.frozen(eq=False)
class _Shape:
    """A head that was read, and where in its headers the values stand that vary."""

    head: Head
    places: tuple[int, ...]
    length: int
    """Which of them is the length of the body."""


@attrs.define(eq=False)
class HeadMemory:
    """Heads that were read and admitted before. Shared by the connections of a listener.

    The same bytes get the same decisions, so each is made once.
    """

    _known: dict[bytes, tuple[Head, int]] = attrs.field(factory=dict, init=False)
    _shapes: dict[tuple[bytes, ...], _Shape] = attrs.field(factory=dict, init=False)

    def recall(self, data: bytes) -> Known | None:
        """The head that *data* begins with, if it is known."""
        end = data.find(_END, 0, MAX_REMEMBERED) + len(_END)
        known = self._known.get(data[:end])
        if known is not None:
            return known[0], end, known[1]
        return self._recall_shape(data, end) if end >= len(_END) and self._shapes else None

    def _recall_shape(self, data: bytes, end: int) -> Known | None:
        pieces = _split(data[:end])
        values = pieces[2::3]
        del pieces[2::3]
        shape = self._shapes.get(tuple(pieces))
        if shape is None:
            return None
        length = values[shape.length]
        if not length.isdigit() or len(length) > _MAX_DIGITS:
            return None
        return shape.head.varied(shape.places, values), end, int(length)

    def remember(self, data: bytes, head: Head) -> None:
        """*data* was read as *head*. One that asks for more than an answer is not remembered."""
        length = head.get(_LENGTH)
        is_plain = length is not None and head.keeps_alive and head.get(b"expect") is None
        if not is_plain or len(data) > MAX_REMEMBERED or data.find(_END) != len(data) - len(_END):
            return
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[data] = head, int(length or b"0")
        pieces = _split(data)
        shape = _shape(head, pieces[1::3], pieces[2::3])
        if shape is not None:
            del pieces[2::3]
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[tuple(pieces)] = shape


def _shape(head: Head, lines: list[bytes], values: list[bytes]) -> _Shape | None:
    """Find the *values* of *lines* among the headers. None if one does not stand there, or its name stands twice."""
    names = [line.strip(b"\r\n: ").lower() for line in lines]
    found = [name for name, _ in head.headers]
    if _LENGTH not in names or any(found.count(name) != 1 for name in names):
        return None
    places = tuple(map(found.index, names))
    if any(head.headers[place][1] != value for place, value in zip(places, values, strict=True)):
        return None
    return _Shape(head, places, names.index(_LENGTH))
