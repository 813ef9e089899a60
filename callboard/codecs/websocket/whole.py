"""Frames that come whole and alone, as nearly all do: read at a quarter of what the parser takes for them."""

import struct
from typing import Final

import attrs

_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
_SHORT: Final = 125
_TWO_BYTES: Final = 126
_EIGHT_BYTES: Final = 127
_KEY: Final = 4
_MEDIUM: Final = struct.Struct("!H")
_LARGE: Final = struct.Struct("!Q")


@attrs.define(eq=False)
class Boundaries:
    """Ends of the frames in a stream of bytes, by their headers alone."""

    _missing: int = attrs.field(default=0, init=False)  # of the frame that has begun
    _header: bytes = attrs.field(default=b"", init=False)  # of a frame, as much of it as there is

    @property
    def is_between(self) -> bool:
        """Whether the next byte is the first one of a frame."""
        return not self._missing and not self._header

    def feed(self, data: bytes) -> None:
        """Go on over *data*."""
        at = self._missing
        if self._header:
            data, self._header = self._header + data, b""
        while at < len(data):
            size = _frame_size(data, at)
            if size is None:
                self._missing, self._header = 0, data[at:]
                return
            at += size
        self._missing = at - len(data)


def _frame_size(data: bytes, at: int) -> int | None:
    """How long the frame is that begins at *at*; None if too little of it is there to know."""
    if len(data) < at + 2:
        return None
    second = data[at + 1]
    length, header = second & _LENGTH, 2 + (_KEY if second & _MASKED else 0)
    if length <= _SHORT:
        return header + length
    extended = _MEDIUM if length == _TWO_BYTES else _LARGE
    if len(data) < at + 2 + extended.size:
        return None
    return header + extended.size + int(extended.unpack_from(data, at + 2)[0])


def payload_of(data: bytes, *, is_masked: bool) -> bytes | None:
    """The payload of the one short or medium frame that *data* is. None if it is anything else: the parser's affair."""
    if len(data) < 2:
        return None
    length, at = data[1] ^ (_MASKED if is_masked else 0), 2
    if length == _TWO_BYTES and len(data) > 4:
        length, at = _MEDIUM.unpack_from(data, 2)[0], 4
        if length <= _SHORT:
            return None
    elif length > _SHORT:
        return None
    if not is_masked:
        return data[at:] if len(data) == at + length else None
    start = at + _KEY
    if len(data) != start + length:
        return None
    key = (data[at:start] * (length // _KEY + 1))[:length]
    masked, mask = int.from_bytes(data[start:], "little"), int.from_bytes(key, "little")
    return (masked ^ mask).to_bytes(length, "little")
