"""A client's WebSocket connection that survives its socket.

Both sides count whole messages: all of them if the server lets its client come back in any era, else from
`initialize` and its result on. When the socket drops, the client comes back with its count, is told the server's, and
each says again what the other one lacks: nothing is lost, and nothing comes twice. Where a server offers neither, a
dropped socket is the end.
"""

from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Self

import attrs
import trio
from trio.lowlevel import ParkingLot

from callboard.actors.undo import undo_unless_done
from callboard.codecs.websocket.client import (
    ResumeTicket,
    coming_back,
    is_first_word,
    offered_ticket,
    read_ticket,
    received_there,
)
from callboard.codecs.websocket.frames import (
    Close,
    Code,
    Ping,
    Pong,
    Received,
    Text,
    Violation,
    write_close,
    write_ping,
    write_pong,
    write_text,
)
from callboard.codecs.websocket.replay_buffer import ReplayBuffer
from callboard.errors import BadAnswer, CannotConnect, ConnectionLost, HttpRefused
from callboard.supervisor import get_logger
from callboard.transports.client.websocket_socket import BROKEN, ClientWebSocket, Door
from callboard.transports.wire import SocketWire

log = get_logger("callboard.client")

PING_EVERY: Final = 15.0
"""Seconds between two pings, which also tell how much has arrived. So a call outlives a server that went silent."""

MISSED: Final = 2
"""Pings without a sign of life after which a server is gone."""

MAX_KEPT: Final = 1024
"""Most messages that are kept for a server which may not have them, until it is known to."""

MAX_KEPT_BYTES: Final = 8 * 1024 * 1024
"""And how many bytes of them."""

RETURN_TIME: Final = 60.0
"""Longest time in which a dropped socket is replaced, in seconds, however long the server would wait."""

RETURNS: Final = 8
"""How often in a row a session is resumed that brings nothing."""

FIRST_PAUSE: Final = 0.1
"""Seconds before the second attempt to come back. Each pause is twice the last one."""

LONGEST_PAUSE: Final = 2.0
"""But never longer than this."""

REFUSED_TIME: Final = 3.0
"""Seconds for which connections may be refused where the server was, before it is given up."""

SLICE: Final = 8192
"""Bytes that are parsed before others get a turn."""

LOST: Final = "connection closed by the server"

_MAX_DIGITS: Final = 15
_PASSING: Final = frozenset({429, 502, 503, 504})  # a server that says so may have room later


@attrs.define(eq=False)
class ResumableLink:
    """Whole messages in both directions, over one socket after the other."""

    door: Door
    socket: ClientWebSocket | None
    why: str = attrs.field(default=LOST, init=False)
    """Why it is over, once it is."""
    resumed: int = attrs.field(default=0, init=False)
    received: int = attrs.field(default=0, init=False)
    counts_all: bool = attrs.field(default=False, init=False)
    """Whether the server lets its client come back in any era."""
    ticket: ResumeTicket | None = attrs.field(default=None, init=False)
    kept: ReplayBuffer | None = attrs.field(default=None, init=False)
    nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _texts: deque[bytes] = attrs.field(factory=deque, init=False)
    _flows: bool = attrs.field(default=True, init=False)
    _changed: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _returns: int = attrs.field(default=0, init=False)  # in a row, since the latest message
    _is_back: bool = attrs.field(default=False, init=False)  # and the server has not said its first word yet
    _is_heard: bool = attrs.field(default=True, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _is_asking: bool = attrs.field(default=False, init=False)  # how much has arrived
    _missed: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.ticket = None if self.socket is None else offered_ticket(self.socket.head)
        if self.ticket is not None:
            self.counts_all = self._is_back = True
            self.kept = ReplayBuffer(MAX_KEPT, MAX_KEPT_BYTES)

    # What is said.

    def count(self) -> None:
        """The next message is `initialize`: from here on they are counted, unless all are."""
        if not self.counts_all:
            self.kept, self.ticket, self.received = ReplayBuffer(MAX_KEPT, MAX_KEPT_BYTES), None, 0

    def begun(self) -> None:
        """The handshake is done. If the session cannot be resumed, nothing need be kept."""
        if self.ticket is None:
            self.kept = None

    async def send(self, frame: bytes) -> None:
        """Say it on the socket that there is, or wait for the next one. Raises BrokenResourceError if none can come."""
        socket = await self._wait_flowing()
        kept = self.kept
        if kept is None:
            await self._finish(socket.send(write_text(frame)))
            return
        kept.add(frame)
        await self._finish_kept(socket, socket.send(write_text(frame)))
        self._ask_if_much(socket, kept)

    async def _finish_kept(self, socket: ClientWebSocket, rest: Coroutine[Any, Any, None]) -> None:
        """See that a message is sent which is kept: if it cannot be, it is said again on the next socket."""
        is_sent = False
        try:
            await rest
            is_sent = True
        except BROKEN:
            return
        finally:
            if not is_sent:
                socket.wire.close()  # cut short or never begun: only coming back tells which

    def _ask_if_much(self, socket: ClientWebSocket, kept: ReplayBuffer) -> None:
        """Ask how much has arrived, before more is kept than may be."""
        if len(kept) > MAX_KEPT // 2 and not self._is_asking:
            self._is_asking = socket.send_nowait(self._ping())

    def begin(self, frame: bytes) -> Coroutine[Any, Any, None] | None:
        """As `send`; what is left to be done must be awaited, if anything is."""
        socket, kept = self.socket if self._flows else None, self.kept
        if socket is None or not isinstance(socket.wire, SocketWire):
            return self.send(frame)
        if kept is not None:
            kept.add(frame)
        try:
            rest = socket.wire.begin(socket.masked(write_text(frame)))
        except BROKEN as error:
            if kept is not None:
                socket.wire.close()
                return None  # it is kept, and said again
            raise error if isinstance(error, trio.BrokenResourceError) else trio.BrokenResourceError(self.why) from None
        if kept is None:
            return None if rest is None else self._finish(rest)
        self._ask_if_much(socket, kept)
        return None if rest is None else self._finish_kept(socket, rest)

    async def _finish(self, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except trio.ClosedResourceError:
            raise trio.BrokenResourceError(self.why) from None

    async def _wait_flowing(self) -> ClientWebSocket:
        while self.socket is None or not self._flows:
            if self.socket is None and not self._can_return:
                raise trio.BrokenResourceError(self.why)
            await self._changed.park()
        return self.socket

    # What is heard.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._texts:
            socket = self.socket
            if socket is None:
                raise StopAsyncIteration
            data = await socket.receive()
            if data:
                self._is_heard = True
                await self._read(socket, data)
            else:
                await self._return(socket)
        return self._texts.popleft()

    async def _read(self, socket: ClientWebSocket, data: bytes) -> None:
        try:
            for start in range(0, len(data), SLICE):
                if start:
                    await trio.lowlevel.checkpoint()
                for received in socket.reader.feed(data[start : start + SLICE]):
                    await self._meet(socket, received)
                    if self.socket is None:
                        return
        except Violation as violation:
            self._say_last(socket, violation.close)
            self._end(f"invalid WebSocket frame: {violation}")
        except BROKEN:
            socket.wire.close()  # heard when it is read again

    async def _meet(self, socket: ClientWebSocket, received: Received) -> None:
        match received:
            case Text(frame):
                self._take(frame)
            case Ping(payload):
                await socket.send(write_pong(payload))
            case Pong(payload):
                self._is_asking = False
                if self.kept is not None and payload.isdigit() and len(payload) <= _MAX_DIGITS:
                    self.kept.acknowledge(int(payload))
            case Close(code, reason):
                self._say_last(socket, Close(code))
                self.why = _closed(code, reason)
                if code == Code.OVERLOADED and self._can_return:
                    socket.wire.close()  # it did not read in time, and may come back: heard when it is read again
                else:
                    self._end(self.why)

    def _take(self, frame: bytes) -> None:
        if self._is_back:
            self._is_back = False
            if is_first_word(frame):
                return
        self._returns = 0
        if self.ticket is not None:
            self.received += 1
        elif self.kept is not None and (ticket := read_ticket(frame)) is not None:
            self.ticket, self.received = ticket, 1
        self._texts.append(frame)

    # Sockets come and go.

    @property
    def _can_return(self) -> bool:
        return self.ticket is not None and self._returns < RETURNS and not self._is_leaving

    async def _return(self, socket: ClientWebSocket) -> None:
        """The socket is gone: go on with another one, or end."""
        socket.wire.close()
        self.socket, self._flows = None, False
        if not self._can_return or self.ticket is None:
            self._end(self.why)
            return
        self._returns += 1
        why = "connection lost"
        with trio.move_on_after(min(self.ticket.grace, RETURN_TIME)):
            try:
                await self._come_back(self.ticket)
            except (HttpRefused, BadAnswer, ConnectionLost) as error:
                why = f"the session cannot be resumed: {error}"
            else:
                return
        self._end(why)

    async def _come_back(self, ticket: ResumeTicket) -> None:
        """Raises `HttpRefused`, `BadAnswer`, and `ConnectionLost` if too much is lost."""
        pause, heard = FIRST_PAUSE, trio.current_time()
        while True:
            try:
                socket = await self.door.open(coming_back(ticket, self.received))
                break
            except CannotConnect as away:
                if not away.is_refused:
                    heard = trio.current_time()
                elif trio.current_time() - heard >= REFUSED_TIME:
                    raise ConnectionLost(str(away)) from None
            except HttpRefused as refused:
                if refused.status not in _PASSING:
                    raise
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        with undo_unless_done(socket.wire.close):
            again = self._lacking(received_there(socket.head))
        self.socket, self._is_back, self._missed, self._is_asking = socket, True, 0, False
        self.why = LOST
        self.resumed += 1
        log.info("websocket_resumed", server=str(self.door.origin), resent=len(again))
        if self.nursery is not None:  # in a task of its own: both sides may have more to say than a connection holds
            self.nursery.start_soon(self._catch_up, socket, again)

    def _lacking(self, there: int) -> Sequence[bytes]:
        """The messages that did not arrive. Raises `ConnectionLost` if more are missing than were kept."""
        if self.kept is None or not self.kept.has_after(there):
            raise ConnectionLost("more messages were sent than are kept for replay")
        self.kept.acknowledge(there)
        return self.kept.after(there)

    async def _catch_up(self, socket: ClientWebSocket, frames: Sequence[bytes]) -> None:
        try:
            for frame in frames:
                await socket.send(write_text(frame))
        except BROKEN:
            return  # the reader comes back once more
        if self.socket is socket:
            self._flows = True
            self._changed.unpark_all()

    # Signs of life.

    async def beat(self) -> None:
        """Ping the server now and then; let go of a socket on which nothing comes back."""
        while True:
            await trio.sleep(PING_EVERY)
            socket = self.socket
            if socket is None:
                continue
            self._missed = 0 if self._is_heard else self._missed + 1
            self._is_heard = False
            if self._missed >= MISSED:
                self.why = f"no data from the server for {MISSED * PING_EVERY:g} s"
                socket.wire.close()
            else:
                socket.send_nowait(self._ping())

    def _ping(self) -> bytes:
        return write_ping(b"%d" % (0 if self.kept is None else self.kept.sent))

    # The end.

    def leave(self) -> None:
        """Send a close frame. The reader gets the server's, soon."""
        self._is_leaving = True
        if self.socket is not None and not self._say_last(self.socket, Close(Code.NORMAL)):
            self.socket.wire.close()

    def _say_last(self, socket: ClientWebSocket, close: Close) -> bool:
        return socket.send_nowait(write_close(close))

    def _end(self, why: str) -> None:
        self.why = why
        self.cut()

    def cut(self) -> None:
        """The end, at once."""
        self._is_leaving, self._flows = True, False
        if self.socket is not None:
            self.socket.wire.close()
            self.socket = None
        self._changed.unpark_all()


def _closed(code: int, reason: str) -> str:
    known = next((known.name.lower().replace("_", " ") for known in Code if known == code), "unknown code")
    said = f": {reason[:200]}" if reason else ""
    return f"the server closed the WebSocket with {code} ({known}){said}"
