"""HTTP/2 connections: hypercorn's protocol as a guest on a wire of ours.

hypercorn reads the frames and calls the ASGI application. The socket, the limits and the time belong to the actor here,
and any exception of hypercorn, h2 or wsproto for the bytes of one client ends its connection and nothing else.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Never

import attrs
import trio

from callboard import tree
from callboard.actors.rate import Rate, RateLimit
from callboard.codecs.http.frames import FrameMeter, may_be_http2
from callboard.errors import SupervisorClosed
from callboard.supervisor import WHY_DEADLINE, Actor, Fact, get_logger
from callboard.supervisor.groups import first_leaf
from callboard.transports.limits import Settings
from callboard.transports.server.asgi import AsgiApp
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.wire import Wire

if TYPE_CHECKING:
    from hypercorn.config import Config
    from hypercorn.events import Event

    from callboard.transports.server._hypercorn import Http2Protocol

log = get_logger("callboard.transports")

SLICE: Final = 2048
"""Bytes that are handed to h2 before other connections get a turn: 227 frames at most, some 5 ms of work."""

MAX_STREAMS: Final = 100
"""Requests that one HTTP/2 connection may have in flight, as RFC 9113 recommends at least."""

FAILED: Final = Rate(1, per=10.0)
"""Log lines about connections that failed: an attacker can make thousands of them in a second."""


@attrs.frozen(eq=False)
class Http2:
    """State that the HTTP/2 connections of one edge share."""

    endpoint: Endpoint
    is_tls: bool = False
    names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    failures: RateLimit = attrs.field(factory=lambda: RateLimit(FAILED), init=False)
    config: "Config" = attrs.field(init=False)

    @config.default
    def _config(self) -> "Config":
        from callboard.transports.server._hypercorn import configured  # now, and not while the first client waits

        return configured(MAX_STREAMS, self.endpoint.settings.max_header)


@attrs.define(eq=False)
class Opening(Actor[Never]):
    """A connection that is HTTP/2 if it starts with the preface; otherwise the native engine reads it."""

    mailbox = None

    http1: HttpConnection
    shared: Http2

    async def run(self) -> None:
        wire, settings = self.http1.wire, self.http1.settings
        self.expire(trio.current_time() + settings.first_byte_time)
        data, is_http2, is_taken_over = b"", None, False
        try:
            while is_http2 is None:
                piece = await wire.receive()
                data += piece
                is_http2 = may_be_http2(data) if piece else False
            if is_http2:
                http2 = Http2Connection(self.shared, wire, settings, data, self.http1.peer, self.http1.on_end)
                self.supervisor.spawn(http2, name=f"{self.name}-h2")
            elif data:
                self.http1.begin_with(data)
                self.supervisor.spawn(self.http1, name=f"{self.name}-h1")
            is_taken_over = bool(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, SupervisorClosed):
            pass  # the client disconnected before its first byte, or the listener closes
        finally:
            if not is_taken_over:
                self.http1.on_end()
                wire.close()

    def on_stop(self) -> None:
        self.http1.wire.close()


@attrs.define(eq=False)
class Http2Connection(Actor[Never]):
    """Owns a wire, hypercorn's protocol for it, and its deadline: idle, or in the middle of a head, it is cut."""

    mailbox = None

    shared: Http2
    wire: Wire
    settings: Settings
    ahead: bytes
    peer: str
    on_end: Callable[[], None]
    _meter: FrameMeter = attrs.field(factory=FrameMeter, init=False)
    _protocol: "Http2Protocol | None" = attrs.field(default=None, init=False)
    _idle_since: float = attrs.field(default=0.0, init=False)
    _head_since: float = attrs.field(default=math.inf, init=False)
    _is_stopping: bool = attrs.field(default=False, init=False)

    async def run(self) -> None:
        self._idle_since = trio.current_time()
        self._mind_the_time()
        try:
            await self._converse()
        except Exception as error:  # a trust boundary: hypercorn and h2 may raise anything for odd bytes
            if self.shared.failures.allow(None, trio.current_time()):
                cause = first_leaf(error)  # a group is of hypercorn's nursery
                log.warning("http2_connection_failed", connection=self.path, failure=type(cause).__name__)
        finally:
            self._say_goodbye()
            self.wire.close()
            self.on_end()

    def facts(self) -> dict[str, Fact]:
        return {"requests": 0 if self._protocol is None else len(self._protocol.streams)}

    async def _converse(self) -> None:
        from callboard.transports.server._hypercorn import Closed, Http2Protocol, RawData, TaskGroup, WorkerContext

        context: Any = WorkerContext(None)
        requests = self.supervisor.supervisor.supervisor_of(tree.REQUESTS)
        app = AsgiApp(self.shared.endpoint, requests, self.shared.names, self.peer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._finish_when_asked, context)
            async with TaskGroup() as group:
                shared, is_tls = self.shared, self.shared.is_tls
                protocol = Http2Protocol.of(app, shared.config, context, group, self._send, is_tls=is_tls)
                self._protocol = protocol
                await protocol.initiate()
                data = self.ahead
                while data:
                    for at in range(0, len(data), SLICE):
                        await protocol.handle(RawData(data[at : at + SLICE]))
                        await trio.lowlevel.checkpoint()
                    self._follow(data)
                    data = await self._receive()
                self.expire(trio.current_time() + self.settings.write_time)
                await protocol.handle(Closed())
            nursery.cancel_scope.cancel()

    async def _receive(self) -> bytes:
        """The next data of the client; empty at its end. An error that is raised inside hypercorn's nursery would
        come out of it in a group, with what its other tasks say to that."""
        try:
            return await self.wire.receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _send(self, event: "Event") -> None:
        """Events of the protocol: data for the client, the end, or whether any request is in flight."""
        from callboard.transports.server._hypercorn import Closed, RawData, Updated

        if isinstance(event, RawData):
            try:
                await self.wire.send(event.data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                await self._lose()
        elif isinstance(event, Closed):
            await self._lose()
        elif isinstance(event, Updated):
            self._idle_since = trio.current_time() if event.idle else math.inf
            self._mind_the_time()
            if event.idle and self._is_stopping:
                await self._lose()

    async def _lose(self) -> None:
        from callboard.transports.server._hypercorn import Closed

        self.wire.close()
        if self._protocol is not None and not self._protocol.closed:
            await self._protocol.handle(Closed())

    async def _finish_when_asked(self, context: Any) -> None:
        """Accept no new request after the listener closed; end when those in flight are answered."""
        await self.wait_stopping()
        self._is_stopping = True
        await context.terminated.set()
        if self._idle_since < math.inf:
            self._say_goodbye()
            await self._lose()

    def _say_goodbye(self) -> None:
        """GOAWAY, if that needs no waiting."""
        protocol = self._protocol
        if protocol is not None and not protocol.closed and (self._is_stopping or self.why_cut == WHY_DEADLINE):
            with suppress(Exception):  # the same trust boundary: h2 may be in any state
                protocol.connection.close_connection()
                self.wire.send_nowait(protocol.connection.data_to_send())

    # How long it waits for what.

    def _follow(self, data: bytes) -> None:
        self._meter.feed(data)
        if not self._meter.is_in_head:
            self._head_since = math.inf
        elif self._head_since == math.inf:
            self._head_since = trio.current_time()
        self._mind_the_time()

    def _mind_the_time(self) -> None:
        limits = self.settings
        self.expire(min(self._idle_since + limits.keep_alive, self._head_since + limits.header_time))
