"""Frames between two workers: many requests and their answers on one connection, in pieces, so that none waits for
another.

A frame is the length of its payload, the number of its stream, its kind, and the payload. What is longer than a piece
comes in several: all but the last are `PART`s. Kinds that are not known are ignored: a release that needs more than
that has another version of the protocol.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

MAX_PIECE: Final = 65_536
"""Longest payload of one frame: a small answer waits no longer than for one of these."""

WINDOW: Final = 65_536
"""Bytes of a stream that may be on their way: more are sent when the client has taken these."""

MAX_WHOLE: Final = 1 << 30
"""Longest payload in all. The worker that made it has bounded it by its own settings."""

# The worker that read a request says:
PART: Final = 0
REQUEST: Final = 1
"""An HTTP request, with its body."""
LOST: Final = 2
"""The client has left."""
CREDIT: Final = 3
"""The client has taken so many bytes of a stream."""
# The worker that answers it says (`PART`, too):
JSON: Final = 4
"""The answer is 200, and this is its JSON."""
ANSWER: Final = 5
"""Any other whole answer."""
BEGIN: Final = 6
"""A stream begins, with these headers."""
WRITE: Final = 7
END: Final = 8
CUT: Final = 9
"""It ends, and nothing more is said."""
LAST: Final = 10
"""The worker that answers ends. Of the requests with later numbers than this one it has begun none."""

NUMBERS: Final = 1 << 32
"""Numbers of streams. After the last one they begin anew, without those that are in use; 0 is the link itself."""

_HEAD: Final = struct.Struct(">IIB")
_SIZE: Final = _HEAD.size


def is_later(number: int, than: int) -> bool:
    """Whether a request was sent after another, which was among the latest (RFC 1982)."""
    return 0 < (number - than) % NUMBERS < NUMBERS // 2


class LinkFrame(NamedTuple):
    stream: int
    kind: int
    payload: bytes


class LinkAnswer(msgspec.Struct, array_like=True, frozen=True):
    """A whole answer, or the head of a stream."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""


_answers: Final = msgspec.msgpack.Decoder(LinkAnswer)
_encoder: Final = msgspec.msgpack.Encoder()


def write_frame(stream: int, kind: int, payload: bytes = b"") -> bytes:
    """One frame, for a payload that fits."""
    return _HEAD.pack(len(payload), stream, kind) + payload


def write_frames(stream: int, kind: int, payload: bytes) -> Iterator[bytes]:
    """As many as it takes."""
    last = max(len(payload) - 1, 0) // MAX_PIECE * MAX_PIECE
    for start in range(0, last, MAX_PIECE):
        yield write_frame(stream, PART, payload[start : start + MAX_PIECE])
    yield write_frame(stream, kind, payload[last:])


def write_link_answer(status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> bytes:
    return _encoder.encode(LinkAnswer(status, headers, body))


def read_link_answer(payload: bytes) -> LinkAnswer:
    """Raises `msgspec.MsgspecError`."""
    return _answers.decode(payload)


class LinkDecoder:
    """Bytes to frames. Raises ValueError for what no worker says."""

    def __init__(self) -> None:
        self._rest = b""
        self._parts: dict[int, list[bytes]] = {}

    def feed(self, data: bytes) -> list[LinkFrame]:
        if self._rest:
            data = self._rest + data
        at, end, found = 0, len(data), []
        while end - at >= _SIZE:
            length, stream, kind = _HEAD.unpack_from(data, at)
            if length > MAX_PIECE:
                raise ValueError("not a frame of a worker")
            if end - at < _SIZE + length:
                break
            payload = data[at + _SIZE : at + _SIZE + length]
            at += _SIZE + length
            if kind > LAST:
                continue  # of a newer release, which says nothing in it that must be heard
            if kind == PART:
                self._keep(stream, payload)
            elif stream in self._parts:
                found.append(LinkFrame(stream, kind, b"".join((*self._parts.pop(stream), payload))))
            else:
                found.append(LinkFrame(stream, kind, payload))
        self._rest = data[at:] if at else data
        return found

    def _keep(self, stream: int, payload: bytes) -> None:
        parts = self._parts.setdefault(stream, [])
        if len(parts) * MAX_PIECE > MAX_WHOLE:
            raise ValueError("a message of a worker is too long")
        parts.append(payload)
