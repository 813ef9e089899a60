"""WebSocket frames: bytes to messages, and messages to bytes (RFC 6455)."""

import struct
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, TypeAlias

import attrs
import msgspec

from callboard.codecs.pieces import Pieces
from callboard.codecs.websocket.masking import masked
from callboard.errors import PeerError

# The first byte of a frame that is all of its message.
_TEXT: Final = 0x81
_CLOSE: Final = 0x88
_PING: Final = 0x89
_PONG: Final = 0x8A
# Of one that is not.
_BEGINS: Final = 0x01
_GOES_ON: Final = 0x00
_ENDS: Final = 0x80
_BINARY: Final = frozenset((0x02, 0x82))
_CONTROL: Final = frozenset((_CLOSE, _PING, _PONG))

_MASKED: Final = 0x80
_KEY: Final = 4
_SHORT: Final = 125
_TWO_BYTES: Final = 126
_EIGHT_BYTES: Final = 127
_MEDIUM: Final = 0xFFFF
_utf8_decoder: Final = getincrementaldecoder("utf-8")


class Code(IntEnum):
    """Why a WebSocket was closed."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NOT_TEXT = 1003
    NO_CODE = 1005
    """Never on the wire: the peer closed without one."""
    NOT_UTF8 = 1007
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL = 1011
    OVERLOADED = 1013
    TAKEN_OVER = 4001
    """Ours: another connection goes on with this session."""


class Text(msgspec.Struct, frozen=True):
    """A whole message, however many frames it came in."""

    frame: bytes


class Ping(msgspec.Struct, frozen=True):
    """Wants the same payload back."""

    payload: bytes


class Pong(msgspec.Struct, frozen=True):
    """The payload of a ping of ours, or of none."""

    payload: bytes


class Close(msgspec.Struct, frozen=True):
    """One side's last word. The reason is for readers of a log."""

    code: int
    reason: str = ""


Received: TypeAlias = Text | Ping | Pong | Close


class Violation(PeerError):
    """The peer broke the framing, or a limit of it. *close* is the answer, and nothing that follows can be read."""

    def __init__(self, close: Close) -> None:
        super().__init__(close.reason)
        self.close = close


def _broken(reason: str) -> Violation:
    return Violation(Close(Code.PROTOCOL_ERROR, reason))


@attrs.define(eq=False)
class MessageReader:
    """Cut a peer's bytes into messages, none larger than *limit*. A client's are masked, a server's are not.

    Nearly all messages are one frame that comes whole: these are read in a few steps of Python each.
    """

    limit: int
    is_client: bool = False
    """Whether this is the client, and the peer the server."""
    is_closed: bool = attrs.field(default=False, init=False)
    """Whether the peer has closed."""
    _kept: bytes = attrs.field(default=b"", init=False)  # the beginning of a frame: its header, or of a control frame
    _frame: tuple[int, bytes] = attrs.field(default=(0, b""), init=False)  # first byte and mask of what has begun
    _missing: int = attrs.field(default=0, init=False)  # bytes of its payload
    _begun: Pieces | None = attrs.field(default=None, init=False)  # the message so far
    _decoder: IncrementalDecoder = attrs.field(factory=_utf8_decoder, init=False)  # of that message

    @property
    def is_amid(self) -> bool:
        """Whether a message has begun, and not ended."""
        return self._begun is not None

    @property
    def held(self) -> int:
        """Bytes of that message so far."""
        return 0 if self._begun is None else self._begun.size

    def feed(self, data: bytes) -> Iterator[Received]:
        """The messages that *data* completes, in order. None follow a `Close`. Raises `Violation`."""
        return (received for received in self.steps(data) if received is not None)

    def steps(self, data: bytes) -> Iterator[Received | None]:
        """As `feed`, one step for each frame: None for one that completes nothing. A reader that must not hold up
        others can pause after any of them."""
        at = 0
        if self._missing:
            at = min(self._missing, len(data))
            yield self._go_on(data[:at])
        elif self._kept:
            data, self._kept = self._kept + data, b""
        size, bit, key_size = len(data), 0 if self.is_client else _MASKED, 0 if self.is_client else _KEY
        while at < size and not self.is_closed:
            if size - at < 2:
                self._kept = data[at:]
                return
            first, length, start = data[at], data[at + 1] ^ bit, at + 2
            if first != _TEXT or length > _TWO_BYTES or self._begun is not None:
                self._check(first, length)
            if length > _SHORT:
                width = 2 if length == _TWO_BYTES else 8
                start += width
                if start <= size:
                    length = _long(data[start - width : start])
            begins = start + key_size
            end = begins + length
            if begins > size or (end > size and first in _CONTROL):
                self._kept = data[at:]
                return
            if end > size:
                self._frame, self._missing = (first, data[start:begins]), length
                if begins < size:
                    yield self._go_on(data[begins:])
                return
            payload = data[begins:end]
            if key_size:
                payload = masked(payload, data[start:begins])
            at = end
            if first == _TEXT and length <= self.limit and payload.isascii():
                yield Text(payload)
            else:
                yield self._take(first, payload)

    def _check(self, first: int, length: int) -> None:
        """Whether a frame may begin so here. Raises `Violation`."""
        if length & _MASKED:
            raise _broken("a server does not mask its frames" if self.is_client else "a client must mask its frames")
        if first in _CONTROL:
            if length > _SHORT:
                raise _broken("a control frame has at most 125 bytes")
        elif first & ~_ENDS == _GOES_ON:
            if self._begun is None:
                raise _broken("nothing that a frame could continue")
        elif self._begun is not None:
            raise _broken("a message began in the middle of another one")
        elif first & ~_ENDS != _BEGINS and first not in _BINARY:
            raise _broken("a reserved bit, a reserved opcode, or a control frame in pieces")

    def _go_on(self, piece: bytes) -> Text | None:
        """Take the next piece of a frame that does not come whole. Raises `Violation`."""
        first, key = self._frame
        self._missing -= len(piece)
        if key:
            turn = len(piece) % _KEY
            self._frame = first, key[turn:] + key[:turn]
            piece = masked(piece, key)
        return self._text(first, piece, ends=not self._missing and bool(first & _ENDS))

    def _take(self, first: int, payload: bytes) -> Received | None:
        """What a whole frame completes. Raises `Violation`."""
        if first == _PING:
            return Ping(payload)
        if first == _PONG:
            return Pong(payload)
        if first == _CLOSE:
            close = _read_close(payload)
            self.is_closed = True
            return close
        return self._text(first, payload, ends=bool(first & _ENDS))

    def _text(self, first: int, piece: bytes, *, ends: bool) -> Text | None:
        """What the next piece of a message completes. Raises `Violation`."""
        if first in _BINARY:
            raise Violation(Close(Code.NOT_TEXT, "messages must be text"))
        try:
            self._decoder.decode(piece, ends)
        except UnicodeDecodeError:
            raise Violation(Close(Code.NOT_UTF8, "text must be UTF-8")) from None
        begun = self._begun
        if len(piece) + (0 if begun is None else begun.size) > self.limit:
            raise Violation(Close(Code.TOO_BIG, f"message larger than {self.limit} bytes"))
        if begun is None:
            if ends:
                return Text(piece)
            begun = self._begun = Pieces()
        begun.add(piece)
        if not ends:
            return None
        self._begun = None
        return Text(begun.take())


def _long(number: bytes) -> int:
    """The length of a frame that is longer than a short one. Raises `Violation`."""
    length = int.from_bytes(number)
    if length <= (_SHORT if len(number) == 2 else _MEDIUM):
        raise _broken("a length takes no more bytes than it needs")
    if length >> 63:
        raise _broken("a length has 63 bits")
    return length


def _read_close(payload: bytes) -> Close:
    """Raises `Violation`."""
    if not payload:
        return Close(Code.NO_CODE)
    if len(payload) == 1:
        raise _broken("half a close code")
    code = int.from_bytes(payload[:2])
    if not (code in _CODES or _FIRST_FREE <= code <= _LAST_FREE):
        raise _broken("an invalid close code")
    try:
        return Close(code, payload[2:].decode())
    except UnicodeDecodeError:
        raise Violation(Close(Code.NOT_UTF8, "text must be UTF-8")) from None


_CODES: Final = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013))
"""Codes that the protocol knows and that may be sent."""
_FIRST_FREE, _LAST_FREE = 3000, 4999
"""Codes of libraries and applications."""


# What a server writes is not masked; `client.mask` does that.


def write_text(message: bytes) -> bytes:
    """A message in one frame. It must be UTF-8, as all that is written here is."""
    size = len(message)
    if size <= _SHORT:
        return bytes((_TEXT, size)) + message
    if size <= _MEDIUM:
        return struct.pack("!BBH", _TEXT, _TWO_BYTES, size) + message
    return struct.pack("!BBQ", _TEXT, _EIGHT_BYTES, size) + message


def write_ping(payload: bytes) -> bytes:
    return _write_control(_PING, payload)


def write_pong(payload: bytes) -> bytes:
    return _write_control(_PONG, payload)


def write_close(close: Close) -> bytes:
    """A last word. Without a code, if that is what it answers."""
    if close.code == Code.NO_CODE:
        return _write_control(_CLOSE, b"")
    # A reason that is cut must not be cut in the middle of a character.
    reason = close.reason.encode()[: _SHORT - 2].decode(errors="ignore").encode()
    return _write_control(_CLOSE, struct.pack("!H", close.code) + reason)


def _write_control(opcode: int, payload: bytes) -> bytes:
    return bytes((opcode, len(payload))) + payload
