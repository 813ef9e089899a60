"""One WebSocket: reads what the client says, sees that it is still there, and says good-bye.

It is read by the task of its connection, which runs the requests, too; if one waits, another task reads on. A task that
wants the socket closed says so here, and the reading task does it.
"""

import math
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

import attrs
import trio

from callboard.codecs.websocket.frames import (
    Close,
    Code,
    MessageReader,
    Ping,
    Pong,
    Received,
    Text,
    Violation,
    write_close,
    write_ping,
    write_pong,
)
from callboard.errors import Overloaded
from callboard.supervisor import Fact
from callboard.transports.held import HeldBytes
from callboard.transports.limits import Settings
from callboard.transports.server.http.upgraded import Reading
from callboard.transports.server.websocket.resumable import ResumableSession
from callboard.transports.wire import Wire

SLICE: Final = 8192
"""Bytes that are parsed before others get a turn."""

FRAMES: Final = 16
"""Frames that are dealt with before others get a turn: a frame may be six bytes long, and takes as long as any."""

MAX_CONTROLS: Final = 100
"""Pings and pongs of a client in one second; with one more it is closed (1008). A ping every second is frequent."""

CLOSE_TIME: Final = 2.0
"""Seconds that a peer has for its last word, once it has heard ours."""

MISSED: Final = 2
"""Pings without an answer after which a peer is gone."""

TOO_SLOW: Final = Close(Code.OVERLOADED, "messages were not read in time")
"""Last word to a client that does not read what it is sent."""

CLEAN: Final = frozenset({Code.NORMAL, Code.GOING_AWAY, Code.NO_CODE})
"""Last words of a client that does not mean to come back."""


@attrs.define(eq=False, repr=False)
class WebSocketConnection:
    """A socket, and the conversation that it carries at the moment."""

    wire: Wire
    conversation: ResumableSession
    settings: Settings
    reading: Reading
    on_end: Callable[["WebSocketConnection"], None] = attrs.field(default=lambda _: None, kw_only=True)
    _opening: bytes = attrs.field(default=b"", init=False)
    _has: int = attrs.field(default=0, init=False)  # how many messages the client has already
    _incoming: Iterator[Received | None] = attrs.field(factory=lambda: iter(()), init=False)  # and not dealt with yet
    _reader: MessageReader = attrs.field(init=False)
    _held: HeldBytes = attrs.field(init=False)
    _listening: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _farewell: Close | None = attrs.field(default=None, init=False)
    _is_busy: bool = attrs.field(default=True, init=False)  # in the middle of something that must not be cut short
    is_heard: bool = attrs.field(default=True, init=False)
    """Whether anything has come since the latest ping."""
    _is_pinging: bool = attrs.field(default=False, init=False)
    _missed: int = attrs.field(default=0, init=False)
    _controls: int = attrs.field(default=0, init=False)
    _counted_since: float = attrs.field(default=-math.inf, init=False)
    _began: float | None = attrs.field(default=None, init=False)  # when the message began that is being read

    def __attrs_post_init__(self) -> None:
        self._reader = MessageReader(self.settings.max_frame)
        self._held = HeldBytes(self.conversation.host.bodies, self.conversation.session.account)

    def begin_with(self, opening: bytes, received: int, rest: bytes) -> None:
        """*opening* is what turns the connection into a WebSocket, *received* how many messages the client has, and
        *rest* what was read of its own already."""
        self.wire.say_if_slow(write_close(TOO_SLOW))
        self._opening, self._has, self._incoming = opening, received, self._parsed(rest)

    async def run(self) -> None:
        """Be the socket of the conversation until one of the three ends, or until another task reads on."""
        turn, is_whole = self.reading.turn, False
        try:
            if self._opening:
                opening, self._opening = self._opening, b""
                await self.wire.send(opening)
                await self.conversation.catch_up(self, self._has)
            with trio.CancelScope() as self._listening:
                await self._listen(turn)
            if self.reading.turn is turn:
                self.conversation.drop(self)
                if self._farewell is not None:
                    await part(self.wire, self._farewell, is_answer=self._reader.is_closed)
            is_whole = True
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            is_whole = True  # the peer is gone: that is its affair
        finally:
            if self.reading.turn is turn:
                self._end(is_whole=is_whole)

    def _end(self, *, is_whole: bool) -> None:
        if not is_whole:
            self._cut()
        self.wire.close()
        self._held.release()
        self.conversation.drop(self)
        self._incoming = iter(())
        self.on_end(self)

    def _cut(self) -> None:
        """It was cancelled, or broke."""
        is_cancelled = trio.current_effective_deadline() == -math.inf
        self.wire.send_nowait(write_close(Close(Code.GOING_AWAY if is_cancelled else Code.INTERNAL)))
        if not is_cancelled:
            self.conversation.end()

    # What the client says.

    async def _listen(self, turn: object) -> None:
        while True:
            try:
                await self._take(turn)
                if self.reading.turn is not turn:
                    return
                self._watch_the_message()
            except Violation as violation:
                self.begin_close(violation.close)
            except Overloaded as error:
                self.begin_close(Close(Code.OVERLOADED, str(error)))
            if self._is_over():
                return
            self._is_busy = False
            data = await self.wire.receive()
            self._is_busy = self.is_heard = True
            if not data or self._is_over():
                return
            self._incoming = self._parsed(data)

    def _is_over(self) -> bool:
        """Whether nothing more that the client says here counts."""
        return self._farewell is not None or not self.conversation.is_on(self)

    def _parsed(self, data: bytes) -> Iterator[Received | None]:
        """The messages in *data*; None for one that has not ended."""
        steps = self._reader.steps
        return chain.from_iterable(steps(data[start : start + SLICE]) for start in range(0, len(data), SLICE))

    async def _take(self, turn: object) -> None:
        if self._is_over():  # another socket has taken over before this task had its first turn
            return
        conversation, carrier = self.conversation, self.reading.carrier
        for count, received in enumerate(self._incoming, 1):
            if received is not None:
                if type(received) is Text:  # as `_meet` has it, and a coroutine less: most are
                    await conversation.receive(received.frame, carrier)
                else:
                    await self._meet(received)
                if self._is_over() or self.reading.turn is not turn:
                    return
            if count % FRAMES == 0:
                await trio.lowlevel.checkpoint()

    async def _meet(self, received: Received) -> None:
        match received:
            case Text(frame):
                await self.conversation.receive(frame, self.reading.carrier)
            case Ping(payload):
                self._count_control()
                await self.wire.send(write_pong(payload))
            case Pong(payload):
                self._count_control()
                self.conversation.acknowledge(payload)
            case Close(code):
                self.begin_close(Close(code))
                if code in CLEAN:
                    self.conversation.end()

    def _count_control(self) -> None:
        """Raises `Violation` for a client that sends control frames without end."""
        now = trio.current_time()
        if now - self._counted_since >= 1.0:
            self._counted_since, self._controls = now, 0
        self._controls += 1
        if self._controls > MAX_CONTROLS:
            raise Violation(Close(Code.POLICY, "too many pings and pongs"))

    def _watch_the_message(self) -> None:
        """A message that has begun must end in time, and what is held of it counts. Raises `Overloaded`."""
        if not self._reader.is_amid:
            self._began = None
            self._held.release()
            return
        if self._began is None:
            self._began = trio.current_time()
        self._held.grow(self._reader.held)

    # Whether it is still there.

    def beat(self, now: float, *, is_asked: bool) -> bool:
        """Look whether a ping was answered in time, if it *is_asked*; False if this socket needs no other beat."""
        if is_asked:
            self._missed = 0 if self.is_heard else self._missed + 1
        else:
            self.is_heard = False
        if self._farewell is not None:
            return False
        if self.is_silent:
            self.wire.close()
            self.conversation.drop(self)
            return False
        if self._began is not None and now - self._began > self.settings.body_time:
            self.begin_close(Close(Code.POLICY, "timed out while reading a message"))
            return False
        return True

    @property
    def is_silent(self) -> bool:
        """Whether its peer is taken for gone."""
        return self._missed >= MISSED

    def ping_nowait(self) -> bool:
        """Send a ping if that needs no waiting. It carries the number of messages so far, which a pong acknowledges."""
        return self.wire.send_nowait(self._ping())

    async def ping(self) -> None:
        """Send a ping, in line behind what is being written."""
        if self._is_pinging:
            return
        self._is_pinging = True
        try:
            await self.wire.send(self._ping())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.wire.close()
        finally:
            self._is_pinging = False

    def _ping(self) -> bytes:
        return write_ping(b"%d" % self.conversation.kept.sent)

    # The end.

    def begin_close(self, close: Close) -> None:
        """Have the reading task say *close*. The first one counts."""
        if self._farewell is None:
            self._farewell = close
            if not self._is_busy:
                self._listening.cancel()

    def leave(self) -> None:
        """The server ends."""
        self.conversation.leave()

    def facts(self) -> dict[str, Fact]:
        return {"state": "websocket", "session": self.conversation.session.path, "missed": self._missed}


async def part(wire: Wire, close: Close, *, is_answer: bool = False) -> None:
    """Say the last word. Unless it is an answer, wait for the peer's: else ours might be lost with the connection."""
    await wire.send(write_close(close))
    if not is_answer:
        with trio.move_on_after(CLOSE_TIME):
            await wire.linger()
