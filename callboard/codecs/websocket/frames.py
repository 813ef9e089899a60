"""WebSocket frames: bytes to messages by wsproto's parser, and messages to bytes."""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, TypeAlias

import attrs
from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

from callboard.codecs.websocket.whole import Boundaries, payload_of
from callboard.errors import PeerError

_TEXT: Final = 0x81
_CLOSE: Final = 0x88
_PING: Final = 0x89
_PONG: Final = 0x8A
_SHORT: Final = 125
_MEDIUM: Final = 0xFFFF


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


@attrs.frozen
class Text:
    """A whole message, however many frames it came in."""

    frame: bytes


@attrs.frozen
class Ping:
    """Wants the same payload back."""

    payload: bytes


@attrs.frozen
class Pong:
    """The payload of a ping of ours, or of none."""

    payload: bytes


@attrs.frozen
class Close:
    """One side's last word. The reason is for readers of a log."""

    code: int
    reason: str = ""


Received: TypeAlias = Text | Ping | Pong | Close


class Violation(PeerError):
    """The peer broke the framing, or a limit of it. *close* is the answer, and nothing that follows can be read."""

    def __init__(self, close: Close) -> None:
        super().__init__(close.reason)
        self.close = close


@attrs.define(eq=False)
class MessageReader:
    """Cut a peer's bytes into messages, none larger than *limit*. A client's are masked, a server's are not."""

    limit: int
    is_client: bool = False
    """Whether this is the client, and the peer the server."""
    is_closed: bool = attrs.field(default=False, init=False)
    """Whether the peer has closed."""
    _protocol: FrameProtocol = attrs.field(init=False)
    _begun: bytearray | None = attrs.field(default=None, init=False)
    _boundaries: Boundaries = attrs.field(factory=Boundaries, init=False)

    def __attrs_post_init__(self) -> None:
        self._protocol = FrameProtocol(client=self.is_client, extensions=[])

    @property
    def is_amid(self) -> bool:
        """Whether a message has begun, and not ended."""
        return self._begun is not None

    @property
    def held(self) -> int:
        """Bytes of that message so far."""
        return 0 if self._begun is None else len(self._begun)

    def feed(self, data: bytes) -> Iterator[Received]:
        """The messages that *data* completes, in order. None follow a `Close`. Raises `Violation`."""
        return (received for received in self.steps(data) if received is not None)

    def steps(self, data: bytes) -> Iterator[Received | None]:
        """As `feed`, one step for each frame: None for one that completes nothing. A reader that must not hold up
        others can pause after any of them."""
        whole = self._whole(data)
        if whole is not None:
            yield whole
            return
        self._boundaries.feed(data)
        self._protocol.receive_bytes(data)
        try:
            for frame in self._protocol.received_frames():
                yield self._take(frame)
        except ParseFailed as failure:
            if failure.code is CloseReason.INVALID_FRAME_PAYLOAD_DATA:
                raise Violation(Close(Code.NOT_UTF8, "text must be UTF-8")) from None
            raise Violation(Close(Code.PROTOCOL_ERROR, str(failure))) from None

    def _whole(self, data: bytes) -> Received | None:
        """The message in *data*, if it is exactly one text, ping or pong frame."""
        if self._begun is not None or self.is_closed or not data or not self._boundaries.is_between:
            return None
        opcode = data[0]
        if opcode not in (_TEXT, _PING, _PONG) or (payload := payload_of(data, is_masked=not self.is_client)) is None:
            return None
        if opcode == _TEXT:
            try:
                payload.decode()
            except UnicodeDecodeError:
                raise Violation(Close(Code.NOT_UTF8, "text must be UTF-8")) from None
            return self._text(payload, ends=True)
        if len(payload) > _SHORT:
            return None
        return Ping(payload) if opcode == _PING else Pong(payload)

    def _take(self, frame: Frame) -> Received | None:
        payload = frame.payload
        if isinstance(payload, str):
            return self._text(payload.encode(), ends=frame.message_finished)
        if isinstance(payload, tuple):
            self.is_closed = True
            return Close(*payload)
        if frame.opcode is Opcode.PING:
            return Ping(payload)
        if frame.opcode is Opcode.PONG:
            return Pong(payload)
        raise Violation(Close(Code.NOT_TEXT, "messages must be text"))

    def _text(self, piece: bytes, *, ends: bool) -> Text | None:
        begun = self._begun
        if len(piece) + (0 if begun is None else len(begun)) > self.limit:
            raise Violation(Close(Code.TOO_BIG, f"message larger than {self.limit} bytes"))
        if begun is not None:
            begun += piece
        if not ends:
            if begun is None:
                self._begun = bytearray(piece)
            return None
        self._begun = None
        return Text(piece if begun is None else bytes(begun))


# What a server writes is not masked; `client.mask` does that.


def write_text(message: bytes) -> bytes:
    """A message in one frame. It must be UTF-8, as all that is written here is."""
    size = len(message)
    if size <= _SHORT:
        return bytes((_TEXT, size)) + message
    if size <= _MEDIUM:
        return struct.pack("!BBH", _TEXT, 126, size) + message
    return struct.pack("!BBQ", _TEXT, 127, size) + message


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
