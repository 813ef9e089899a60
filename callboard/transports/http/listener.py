"""The native door: takes connections in, and the tree that they live in."""

import errno
import socket
import ssl
from collections.abc import Sequence
from itertools import count
from typing import Final, Never

import attrs
import trio

from callboard.supervisor import Actor, ChildSpec, Fact, Supervisor, SupervisorSpec, get_logger
from callboard.transports.http.connection import HttpConnection
from callboard.transports.http.endpoint import Endpoint
from callboard.transports.http.lookout import Lookout
from callboard.transports.outbox import Outbox
from callboard.transports.settings import Settings
from callboard.transports.wire import SocketWire, SslWire, Wire, peer_of

log = get_logger("callboard.transports")

BURST: Final = 64
"""Connections that are taken in before others get a turn."""

PAUSE: Final = 0.1
"""Seconds to wait when the system has no descriptor left for another connection."""

_NO_ROOM: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


@attrs.define(eq=False)
class HttpListener(Actor[Never]):
    """Accepts on one socket, which is its caller's to close."""

    mailbox = None

    endpoint: Endpoint
    listening: socket.socket
    settings: Settings
    tls: ssl.SSLContext | None = None
    outbox: Outbox | None = None
    lookout: Lookout = attrs.field(factory=Lookout)
    accepted: int = attrs.field(default=0, init=False)
    refused: int = attrs.field(default=0, init=False)
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def run(self) -> None:
        connections = self.supervisor.supervisor_of("connections")
        self.listening.setblocking(False)
        while True:
            await trio.lowlevel.wait_readable(self.listening)
            for _ in range(BURST):
                try:
                    connected, _ = self.listening.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _NO_ROOM:
                        log.warning("no_room_for_connections", listener=self.path, failure=errno.errorcode[error.errno])
                        await trio.sleep(PAUSE)
                    break
                self._take(connected, connections)

    def _take(self, connected: socket.socket, connections: Supervisor) -> None:
        if connections.child_count >= self.settings.max_connections:
            self.refused += 1
            connected.close()
            return
        self.accepted += 1
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = f"c-{self.listening.fileno()}-{next(self._names)}"
        connection = HttpConnection(
            self.endpoint, self._wire(connected), self.settings, self.lookout, peer_of(connected)
        )
        connections.spawn(connection, name=name)

    def _wire(self, connected: socket.socket) -> Wire:
        if self.tls is None:
            wire = SocketWire(connected, self.settings.write_time)
            wire.outbox = self.outbox
            return wire
        return SslWire(connected, self.tls, self.settings.write_time)

    def facts(self) -> dict[str, Fact]:
        return {"accepted": self.accepted, "refused": self.refused}


def http_edge(
    name: str, endpoint: Endpoint, sockets: Sequence[socket.socket], tls: ssl.SSLContext | None = None
) -> SupervisorSpec:
    """The tree of one edge. Stopped bottom to top: first nobody new is taken in, then those who are here finish."""
    settings, outbox, lookout = endpoint.settings, Outbox(), Lookout()

    def listener(listening: socket.socket) -> HttpListener:
        return HttpListener(endpoint, listening, settings, tls, outbox, lookout)

    return SupervisorSpec(
        name,
        children=(
            ChildSpec("pulse", lambda: endpoint.pulse, shutdown=0),
            ChildSpec("outbox", lambda: outbox, shutdown=0),
            ChildSpec("lookout", lambda: lookout, shutdown=0),
            SupervisorSpec("watches", drain=0),
            SupervisorSpec("connections", drain=settings.write_time),
            *(
                ChildSpec(f"listener-{number}", lambda listening=listening: listener(listening), shutdown=0)  # type: ignore[misc]
                for number, listening in enumerate(sockets, 1)
            ),
        ),
    )
