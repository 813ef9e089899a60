"""Messages in a stream of bytes, cut out as cheaply as can be: each with the bytes that it came in.

What is not looked at is handed on as it came, so a cutter need not understand it: its receiver does, and
complains, if there is something to complain about. No I/O.
"""

from collections.abc import Iterator
from typing import Final, Protocol, TypeAlias

import attrs

from callboard.codecs.lines import MAX_FRAME
from callboard.errors import BadAnswer

MAX_CUT: Final = 2 * MAX_FRAME
"""Longest message of a server, in bytes: as long as the client takes in itself."""

Cut: TypeAlias = tuple[bytes | None, bytes]
"""A message, or None for what is none; and what it came in."""

_TEXT: Final = 0x01
_WHOLE_TEXT: Final = 0x81
_ENDS: Final = 0x80
_OPCODE: Final = 0x0F
_IS_CONTROL: Final = 0x08
_MEDIUM: Final = 126
_IS_MASKED: Final = 0x80


class Cutter(Protocol):
    """Cuts what comes, in pieces of any size."""

    def feed(self, data: bytes) -> Iterator[Cut]:
        """Raises `BadAnswer` for a message that is longer than any may be."""


def check_length(size: int) -> None:
    """Raises `BadAnswer`."""
    if size > MAX_CUT:
        raise BadAnswer(f"response larger than {MAX_CUT} bytes")


@attrs.define(eq=False)
class _Gathered:
    """Bytes of something that is not whole yet. They are put together once, however many pieces there are."""

    needed: int = 0
    _pieces: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)

    def take(self, data: bytes) -> bytes | None:
        """All buffered data, if it is enough."""
        if not self._pieces and len(data) >= self.needed:
            return data
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self.needed:
            return None
        whole = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return whole

    def keep(self, rest: bytes, needed: int) -> None:
        check_length(needed)
        self.needed = needed
        if rest:
            self._pieces.append(rest)
            self._size = len(rest)


@attrs.define(eq=False)
class FrameCutter:
    """WebSocket messages of a server. Text is told from the rest; a message in several frames is put together."""

    _rest: _Gathered = attrs.field(factory=_Gathered, init=False)
    _text: list[bytes] = attrs.field(factory=list, init=False)
    _frames: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)

    def feed(self, data: bytes) -> Iterator[Cut]:
        whole = self._rest.take(data)
        if whole is None:
            return
        at, size, needed = 0, len(whole), 2
        while size - at >= 2:
            first, length = whole[at], whole[at + 1]
            start = at + 2
            if length & _IS_MASKED:  # no server does that, and the receiver will say so
                yield None, whole[at:]
                return
            if length >= _MEDIUM:
                start += 2 if length == _MEDIUM else 8
                if size < start:
                    needed = start - at
                    break
                length = int.from_bytes(whole[at + 2 : start])
            end = start + length
            if end > size:
                needed = end - at
                break
            if first == _WHOLE_TEXT:
                yield whole[start:end], whole[at:end]
            else:
                yield from self._other(first, whole[start:end], whole[at:end])
            at = end
        self._rest.keep(whole[at:], needed)

    def _other(self, first: int, payload: bytes, frame: bytes) -> Iterator[Cut]:
        opcode = first & _OPCODE
        if opcode & _IS_CONTROL or (opcode != _TEXT and not self._text):
            yield None, frame
            return
        self._text.append(payload)
        self._frames.append(frame)
        self._size += len(frame)
        check_length(self._size)
        if first & _ENDS:
            self._size, text, frames = 0, b"".join(self._text), b"".join(self._frames)
            self._text.clear()
            self._frames.clear()
            yield text, frames


@attrs.define(eq=False)
class LineCutter:
    """Lines."""

    _pieces: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)

    def feed(self, data: bytes) -> Iterator[Cut]:
        first, *others = data.split(b"\n")
        self._pieces.append(first)
        self._size += len(first)
        for line in others:
            whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces, self._size = [line], len(line)
            yield whole, whole + b"\n"
        check_length(self._size)
