"""A fast lane on the very connection that the client has: WebSocket and pipes, with many requests in flight on each.

A session over either lives and dies with its connection, so there is no other one to use. The lane hears all that
comes, takes the answers to its own requests out of it, and leaves everything else to the client, which notices nothing.
"""

import os
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

import attrs
import trio

from callboard.actors.client.link import Link
from callboard.bench.around import WireAround
from callboard.bench.framing import Cutter, FrameCutter, LineCutter
from callboard.bench.hub import Hub, QuickLane, QuickWire, Settled
from callboard.bench.requests import FIRST_ID, UNREADABLE, Answer, Template, decode, fault_of
from callboard.bench.work import Act
from callboard.codecs.websocket.client import mask
from callboard.codecs.websocket.frames import write_text
from callboard.errors import BadAnswer, ConnectionLost
from callboard.transports.client.process import ProcessLink
from callboard.transports.client.websocket import WebSocketLink
from callboard.transports.lines import LineConnection
from callboard.transports.pipe import PipeEnd
from callboard.transports.ssl_wire import SslWire
from callboard.transports.wire import READ_SIZE, SocketWire

MAX_HELD: Final = 16 * 1024 * 1024
"""Bytes that wait for the client. A server that says more than it can take in meanwhile is too much for a fast lane."""

_LENGTH: Final = 0x7F


@attrs.define(eq=False)
class Inlet:
    """Messages for the client. One task reads them."""

    _pieces: deque[bytes] = attrs.field(factory=deque, init=False)
    _size: int = attrs.field(default=0, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def put(self, data: bytes) -> bool:
        """Whether there is room for more."""
        self._pieces.append(data)
        self._size += len(data)
        self._changed.set()
        return self._size <= MAX_HELD

    def end(self) -> None:
        self._is_over = True
        self._changed.set()

    async def take(self) -> bytes:
        """All available data; waits for some. Empty at the end."""
        while not self._pieces and not self._is_over:
            self._changed = trio.Event()
            await self._changed.wait()
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return data

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As a stream has it."""
        return await self.take()


@attrs.define(eq=False)
class SharedLane(QuickLane):
    """A session of the client, with prepared requests of the generator on the same connection."""

    hub: Hub
    incoming: QuickWire
    outgoing: QuickWire
    cutter: Cutter
    framed: Callable[[bytes], bytes]
    """A message as it goes over this connection."""
    inlet: Inlet = attrs.field(factory=Inlet, init=False)
    templates: dict[Act, Template] = attrs.field(factory=dict, init=False)
    why: str = attrs.field(default="", init=False)
    """Why nothing can be asked any more, once that is so."""
    _descriptor: int = attrs.field(init=False)
    _ids: "count[int]" = attrs.field(factory=lambda: count(FIRST_ID), init=False)
    _waiting: dict[int, tuple[Act, Settled]] = attrs.field(factory=dict, init=False)
    _unsent: list[bytes] = attrs.field(factory=list, init=False)
    _is_finishing: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._descriptor = self.incoming.fileno()
        self.hub.add(self._descriptor, self.heard)

    @property
    def is_lost(self) -> bool:
        return bool(self.why)

    def begin(self, act: Act, settled: Settled) -> None:
        if self.why:
            settled(ConnectionLost(self.why))
            return
        number = next(self._ids)
        self._waiting[number] = act, settled
        self._unsent.append(self.framed(self.templates[act].filled(number)))
        if len(self._unsent) == 1:
            # What is begun in the same turn goes out together: one system call, and one packet, for all of it.
            self.hub.at_the_end(self._send)

    def close(self, why: str = "closed locally") -> None:
        """Hear nothing more. Waiters are told, and so is the client."""
        if self.why:
            return
        self.why = why
        self.hub.remove(self._descriptor)
        self.inlet.end()
        waiting, self._waiting = self._waiting, {}
        for _, settled in waiting.values():
            settled(ConnectionLost(why))

    def _send(self) -> None:
        data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
        self._unsent.clear()
        if self.why:
            return
        try:
            if not self.outgoing.write(data) and not self._is_finishing:
                self._is_finishing = True
                self.hub.start(self._finish)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(str(error) or "connection lost")

    async def _finish(self) -> None:
        try:
            await self.outgoing.finish()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader hears it
        finally:
            self._is_finishing = False

    def heard(self) -> None:
        """There is something to read."""
        if self.why:
            return
        try:
            data = self.incoming.receive_nowait()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(str(error) or "connection lost")
            return
        if data is None:
            return
        if not data:
            self.close("connection closed by the server")
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        """Of what has come, settle what is ours, and leave the rest to the client."""
        try:
            self._share_out(data)
        except BadAnswer as error:
            self.close(str(error))

    def _share_out(self, data: bytes) -> None:
        for message, raw in self.cutter.feed(data):
            if message is not None and (answer := _answer(message)) is not None:
                found = self._waiting.pop(answer.id, None)  # type: ignore[arg-type]  # another type is no key
                if found is not None:
                    act, settled = found
                    settled(fault_of(answer, act, message))
                    continue
            if not self.inlet.put(raw):
                self.close("too much unread data from the server")
                return


def _answer(message: bytes) -> Answer | None:
    try:
        answer = decode(message)
    except UNREADABLE:
        return None  # not of our kind; the client may know better
    return None if answer.result is None and answer.error is None else answer


# How it gets between a client and its connection.


Note: TypeAlias = Callable[[bytes], None]
"""Is told each message that the client writes."""


def share(link: Link, hub: Hub, note: Note) -> SharedLane | None:
    """A lane on the connection of *link*, which has just been opened; None if it has none to share."""
    if isinstance(link, WebSocketLink) and link.conversation.socket is not None:
        socket = link.conversation.socket
        if isinstance(socket.wire, SocketWire | SslWire):
            lane = SharedLane(hub, socket.wire, socket.wire, FrameCutter(), _masked)
            socket.wire = _SharedWire(socket.wire, lane, note)
            if socket.rest:
                rest, socket.rest = socket.rest, b""
                lane.take(rest)
            return lane
    if isinstance(link, ProcessLink) and isinstance(link.connection, LineConnection):
        pipes = link.connection
        if isinstance(pipes.incoming, PipeEnd) and isinstance(pipes.outgoing, PipeEnd):
            lane = SharedLane(hub, pipes.incoming, pipes.outgoing, LineCutter(), _line)
            pipes.use(lane.inlet, _SharedPipe(pipes.outgoing, note))
            return lane
    return None


def _masked(message: bytes) -> bytes:
    return mask(write_text(message), os.urandom(4))


def _unmasked(frame: bytes) -> bytes:
    """The message in a frame of the client."""
    size = frame[1] & _LENGTH
    start = {126: 4, 127: 10}.get(size, 2)
    key = frame[start : start + 4]
    bare = bytes((frame[0], size)) + frame[2:start] + frame[start + 4 :]
    return mask(bare, key)[start + 4 :]  # twice is not at all


def _line(message: bytes) -> bytes:
    return message + b"\n"


@attrs.define(eq=False)
class _SharedWire(WireAround):
    """The client's end of a wire that a lane reads."""

    lane: SharedLane
    note: Note

    async def receive(self, size: int = READ_SIZE) -> bytes:
        return await self.lane.inlet.take()

    async def send(self, data: bytes) -> None:
        self.note(_unmasked(data))
        await self.wire.send(data)

    def close(self) -> None:
        self.lane.close()
        self.wire.close()


@attrs.define(eq=False)
class _SharedPipe:
    """The client's end of a pipe that a lane writes to, as well."""

    pipe: PipeEnd
    note: Note

    async def send_all(self, data: bytes) -> None:
        self.note(data.rstrip(b"\n"))
        await self.pipe.send_all(data)
