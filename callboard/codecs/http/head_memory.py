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

MAX_LINES: Final = 32
"""Most headers of a head that is remembered: each weighs some 200 bytes more than it says."""

MOST_REMEMBERED: Final = 1024
"""Most heads that are remembered by all of their bytes: two megabytes, and at most eight for what was read in them."""

MOST_SHAPES: Final = 256
"""Most heads that are remembered without the values that vary; then it begins anew."""

MOST_MISSED: Final = 8192
"""Heads that are not found among so many others, before those are forgotten and it begins anew. With more sessions in
use than heads are remembered, nearly all are missed; and forgetting and remembering them costs more than a shape."""

_END: Final = b"\r\n\r\n"

# Nothing that is decided before the body is read depends on one of these. The length of the body is looked at anew.
_split: Final = re.compile(
    rb"(\r\n(?i:content-length|mcp-session-id|mcp-name|mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]++|authorization"
    rb"|traceparent|tracestate|x-request-id): )([!-~]++(?: ++[!-~]++)*+)(?=\r\n)"
).split
_LENGTH: Final = b"content-length"
_MIRRORS: Final = (b"mcp-name", b"mcp-param-")
_MAX_DIGITS: Final = 15


Known: TypeAlias = tuple[Head, int, int]
"""A head that was recalled, where it ends, and the size of the body that follows it. A plain tuple: there is one for
every request."""


@attrs.frozen(eq=False)
class _Shape:
    """A head that was read, and where in its headers the values stand that vary."""

    head: Head
    places: tuple[int, ...]
    names: tuple[bytes, ...]
    length: int
    """Which of them is the length of the body."""
    mirrors: tuple[tuple[int, bytes], ...]
    """Which of them repeat what the body says, and what they say in this head."""


@attrs.define(eq=False)
class HeadMemory:
    """Heads that were read and admitted before. Shared by the connections of a listener.

    The same bytes get the same decisions, so each is made once.
    """

    _known: dict[bytes, tuple[Head, int]] = attrs.field(factory=dict, init=False)
    _shapes: dict[tuple[bytes, ...], _Shape] = attrs.field(factory=dict, init=False)
    _missed: int = attrs.field(default=0, init=False)

    def recall(self, data: bytes) -> Known | None:
        """The head that *data* begins with, if it is known."""
        end = data.find(_END, 0, MAX_REMEMBERED) + len(_END)
        known = self._known.get(data[:end])
        if known is not None:
            return known[0], end, known[1]
        return self._recall_shape(data[:end]) if end >= len(_END) and self._shapes else None

    def _recall_shape(self, data: bytes) -> Known | None:
        pieces = _split(data)
        values = pieces[2::3]
        del pieces[2::3]
        shape = self._shapes.get(tuple(pieces))
        if shape is None:
            return None
        length = values[shape.length]
        if not length.isdigit() or len(length) > _MAX_DIGITS:
            return None
        is_mirror = True
        for which, said in shape.mirrors:
            is_mirror = is_mirror and values[which] == said
        varying = list(zip(shape.names, values, strict=True))
        head, size = shape.head.varied(shape.places, varying, is_mirror=is_mirror), int(length)
        self._add(data, head, size)
        return head, len(data), size

    def _add(self, data: bytes, head: Head, size: int) -> None:
        if len(self._known) >= MOST_REMEMBERED:
            self._missed += 1
            if self._missed < MOST_MISSED:
                return
            self._known.clear()
        self._missed = 0
        self._known[data] = head, size

    def remember(self, data: bytes, head: Head) -> None:
        """*data* was read as *head*. One that asks for more than an answer is not remembered."""
        length = head.get(_LENGTH)
        is_plain = head.keeps_alive and head.get(b"expect") is None and len(head.headers) <= MAX_LINES
        if length is None or not is_plain or len(data) > MAX_REMEMBERED or data.find(_END) != len(data) - len(_END):
            return
        self._add(data, head, int(length))
        pieces = _split(data)
        shape = _shape(head, pieces[1::3], pieces[2::3])
        if shape is not None:
            del pieces[2::3]
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[tuple(pieces)] = shape


def _shape(head: Head, lines: list[bytes], values: list[bytes]) -> _Shape | None:
    """Find the *values* of *lines* among the headers. None if one does not stand there, or its name stands twice."""
    names = tuple(line.strip(b"\r\n: ").lower() for line in lines)
    found = [name for name, _ in head.headers]
    if _LENGTH not in names or any(found.count(name) != 1 for name in names):
        return None
    places = tuple(map(found.index, names))
    if any(head.headers[place][1] != value for place, value in zip(places, values, strict=True)):
        return None
    mirrors = tuple((which, values[which]) for which, name in enumerate(names) if name.startswith(_MIRRORS))
    return _Shape(head, places, names, names.index(_LENGTH), mirrors)
