"""The native HTTP listener: accepts connections, and declares their tree."""

import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final, Never, Protocol

import attrs
import trio

from callboard import tree
from callboard.actors.rate import Rate, RateLimit
from callboard.supervisor import Actor, Fact, Supervisor, SupervisorSpec, get_logger
from callboard.transports.bind import BACKLOG
from callboard.transports.limits import Settings
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.server.http.crowd import ConnectionLimit, counted_address
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.handler import RequestHandler
from callboard.transports.server.http.slow_requests import SlowRequests
from callboard.transports.server.http.write_batch import WriteBatch
from callboard.transports.server.http2 import Http2, Opening
from callboard.transports.server.tls import Certificate
from callboard.transports.ssl_wire import SslWire
from callboard.transports.wire import SocketWire, Wire, peer_of

log = get_logger("callboard.transports")

BURST: Final = 8
"""Connections that are taken in before others get a turn. With 64, a flood of connections that ask and leave delayed a
neighbour's brokered call by 3.8 s; with 8 by 0.2 s. The rest waits in the kernel."""

PAUSE: Final = 0.1
"""Seconds to wait when the system has no descriptor left for another connection."""

SAID: Final = Rate(1, per=10.0)
"""Log lines of one listener about connections that it has no room for, for each reason."""

_NO_ROOM: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Turns(Protocol):
    """Other processes accept on the same sockets: who goes first."""

    async def wait_turn(self) -> None:
        """Before accepting: let others go first if this process has more connections than they have, or no room."""

    def say(self, connections: int, *, is_full: bool = False) -> None:
        """So many connections are open now; and whether there is no room for another one."""


@attrs.frozen(eq=False)
class Edge:
    """State that the listeners of one edge share. It outlives each of them."""

    handler: RequestHandler
    settings: Settings
    tls: ssl.SSLContext | Certificate | None = None
    http2: Http2 | None = None
    write_batch: WriteBatch = attrs.field(factory=WriteBatch)
    slow_requests: SlowRequests = attrs.field(factory=SlowRequests)
    crowd: ConnectionLimit = attrs.field()
    turns: Turns | None = None
    names: "count[int]" = attrs.field(factory=lambda: count(1))
    said: RateLimit = attrs.field(factory=lambda: RateLimit(SAID))

    @crowd.default
    def _crowd(self) -> ConnectionLimit:
        return ConnectionLimit(self.settings.max_connections)

    def wire(self, connected: socket.socket) -> Wire:
        tls, write_time = self.tls.context if isinstance(self.tls, Certificate) else self.tls, self.settings.write_time
        wire = SocketWire(connected, write_time) if tls is None else SslWire(connected, tls, write_time)
        wire.write_batch = self.write_batch
        return wire


@attrs.define(eq=False)
class HttpListener(Actor[Never]):
    """Accepts on one socket, which is its caller's to close."""

    mailbox = None

    edge: Edge
    listening: socket.socket
    accepted: int = attrs.field(default=0, init=False)

    async def run(self) -> None:
        connections = self.supervisor.supervisor_of(tree.CONNECTIONS)
        self.listening.setblocking(False)
        while True:
            await trio.lowlevel.wait_readable(self.listening)
            if self.edge.turns is not None:
                await self.edge.turns.wait_turn()
            for _ in range(BURST if self.edge.turns is None else 1):
                try:
                    connected, peer = self.listening.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _NO_ROOM:
                        self._say("no_room_for_connections", errno.errorcode[error.errno])
                        await trio.sleep(PAUSE)
                    break
                self._take(connected, peer, connections)

    def take_waiting(self, connections: Supervisor) -> None:
        """Take all that wait in the kernel now, at most as many as can: after `run` has ended."""
        with suppress(OSError):  # none is left, or there is no room
            for _ in range(BACKLOG):
                self._take(*self.listening.accept(), connections)

    def _take(self, connected: socket.socket, peer: object, connections: Supervisor) -> None:
        edge, address = self.edge, counted_address(peer)
        full = edge.crowd.enter(address, connected.fileno())
        if full is not None:
            connected.close()
            self._say("connections_refused", full)
            self._say_load()
            return
        try:
            self._begin(connected, partial(self._left, address), connections)
        except Exception as error:  # a fault of one connection, or lack of memory: the others are accepted
            edge.crowd.leave(address)
            connected.close()
            self._say("connection_not_taken", type(error).__name__)
        else:
            self.accepted += 1
            self._say_load()

    def _left(self, address: str | None) -> None:
        self.edge.crowd.leave(address)
        self._say_load()

    def _say_load(self) -> None:
        if self.edge.turns is not None:
            self.edge.turns.say(self.edge.crowd.total, is_full=self.edge.crowd.is_full)

    def _begin(self, connected: socket.socket, leave: Callable[[], None], connections: Supervisor) -> None:
        edge = self.edge
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            with suppress(OSError):  # some systems say so if the peer is gone already
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = HttpConnection(
            *(edge.handler, edge.wire(connected), edge.settings, edge.slow_requests, peer_of(connected)), on_end=leave
        )
        name = f"c-{self.listening.fileno()}-{next(edge.names)}"
        connections.spawn(connection if edge.http2 is None else Opening(connection, edge.http2), name=name)

    def _say(self, event: str, why: str) -> None:
        if self.edge.said.allow((event, why), trio.current_time()):
            log.warning(event, listener=self.path, why=why, refused=self.edge.crowd.refused)

    def facts(self) -> dict[str, Fact]:
        return {"accepted": self.accepted, "refused": self.edge.crowd.refused}


def listeners(edge: Edge, sockets: Sequence[socket.socket]) -> tree.Children:
    """The children that take connections in, and the connections."""
    accepting = [partial(HttpListener, edge, listening) for listening in sockets]
    return tree.listeners(lambda: edge.write_batch, lambda: edge.slow_requests, accepting, edge.settings.write_time)


def http_edge(
    name: str,
    endpoint: Endpoint,
    sockets: Sequence[socket.socket],
    tls: ssl.SSLContext | Certificate | None = None,
    *,
    with_http2: bool = False,
    turns: Turns | None = None,
) -> SupervisorSpec:
    """The tree of one edge. Stopped bottom to top: first no connection is accepted any more, then open ones finish."""
    http2 = Http2(endpoint, is_tls=tls is not None) if with_http2 else None
    listening = listeners(Edge(endpoint, endpoint.settings, tls, http2, turns=turns), sockets)
    return tree.http(name, lambda: endpoint.pulse, listening, endpoint.settings.write_time if with_http2 else None)
