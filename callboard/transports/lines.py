"""Frames on any byte stream, one to a line: pipes, sockets, anything with two ends."""

from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol, Self

import attrs
import trio

from callboard.actors.outlet import Begin, ImmediateSink
from callboard.codecs.lines import MAX_FRAME, Line, LineDecoder, as_line

READ_SIZE: Final = 65_536
"""Bytes that are read at once: what a pipe holds."""

IN_A_ROW: Final = 64
"""Lines of one read that are handed out without a pause. A thousand may come in one; others want a turn."""


class Incoming(Protocol):
    """The part of `trio.abc.ReceiveStream` that is used."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...


class Outgoing(Protocol):
    """The part of `trio.abc.SendStream` that is used."""

    def send_all(self, data: bytes) -> Coroutine[Any, Any, None]: ...


class ByteStream(Incoming, Outgoing, Protocol):
    """Both."""


@attrs.define(eq=False)
class LineConnection:
    """A `Connection` over a byte stream, for `open_session`. The stream is its caller's to close.

    A line over the limit is not kept: what is wrong with it takes its place, and reading goes on.
    """

    incoming: Incoming
    outgoing: Outgoing
    limit: int = MAX_FRAME
    received: int = attrs.field(default=0, init=False)
    sent: int = attrs.field(default=0, init=False)
    """Bytes of both directions, as far as they were handed over."""
    _begin: Begin | None = attrs.field(init=False)
    _decoder: LineDecoder = attrs.field(init=False)
    _lines: deque[Line] = attrs.field(factory=deque, init=False)  # at most those of one read
    _in_a_row: int = attrs.field(default=0, init=False)
    _ended: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.use(self.incoming, self.outgoing)
        self._decoder = LineDecoder(self.limit)

    def use(self, incoming: Incoming, outgoing: Outgoing) -> None:
        """Go on with these ends."""
        self.incoming, self.outgoing = incoming, outgoing
        self._begin = outgoing.begin if isinstance(outgoing, ImmediateSink) else None

    async def send(self, frame: bytes) -> None:
        """Waits as long as the peer does not read. Raises `trio.BrokenResourceError` when it never will."""
        await self._send(as_line(frame))

    def begin(self, frame: bytes) -> Coroutine[Any, Any, None] | None:
        """As `send`; what is left to be done must be awaited, if anything is."""
        return self._begin_lines(as_line(frame))

    def begin_together(self, frames: Sequence[bytes]) -> Coroutine[Any, Any, None] | None:
        """As `begin`, for several frames in order."""
        return self._begin_lines(b"".join([as_line(frame) for frame in frames]))

    def _begin_lines(self, lines: bytes) -> Coroutine[Any, Any, None] | None:
        self.sent += len(lines)
        if self._begin is None:
            return self._finish(self.outgoing.send_all(lines))
        try:
            rest = self._begin(lines)
        except trio.ClosedResourceError:
            raise trio.BrokenResourceError("closed locally") from None
        return None if rest is None else self._finish(rest)

    async def _finish(self, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except trio.ClosedResourceError:
            raise trio.BrokenResourceError("closed locally") from None

    async def send_together(self, frames: Sequence[bytes]) -> None:
        await self._send(b"".join([as_line(frame) for frame in frames]))

    async def _send(self, data: bytes) -> None:
        self.sent += len(data)
        await self._finish(self.outgoing.send_all(data))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Line:
        self._in_a_row += 1
        if self._lines and self._in_a_row > IN_A_ROW:
            self._in_a_row = 1
            await trio.lowlevel.checkpoint()
        while not self._lines:
            self._in_a_row = 1
            if self._ended:
                raise StopAsyncIteration
            await self._read()
        return self._lines.popleft()

    async def _read(self) -> None:
        try:
            data = await self.incoming.receive_some(READ_SIZE)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if data:
            self.received += len(data)
            self._lines.extend(self._decoder.feed(bytes(data)))
        else:
            self._ended = True
            self._lines.extend(self._decoder.finish())
