"""A server as an ASGI application of its own, for deployments that have a place for one."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import attrs
import trio

from callboard import tree
from callboard.actors.server.client_pings import begin_pings
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.codecs.http.access import Access
from callboard.serve.authorization import begin_renewing, open_guard
from callboard.server.served import Hosted
from callboard.supervisor import Supervisor
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.server.asgi import AsgiApp
from callboard.transports.server.asgi_types import Receive, Scope, Send
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.guard import Authenticate
from callboard.transports.server.websocket.guest import GuestBlock
from callboard.transports.server.websocket.trio_socket import serve_trio_websocket
from callboard.transports.server.websocket.upgrade import WebSocketUpgrade

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection, WebSocketRequest

    from callboard.serve.asgi_on_asyncio import AsgiOnAsyncio


@attrs.define(eq=False)
class Mounted:
    """Runs a server between the startup and the shutdown that the ASGI lifespan tells of."""

    server: Hosted
    access: Access
    settings: Settings
    authenticate: Authenticate | None = None
    authorization: str | None = None
    _app: AsgiApp | None = attrs.field(default=None, init=False)
    _bridge: "AsgiOnAsyncio | None" = attrs.field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not trio.lowlevel.in_trio_run():
            await self._on_asyncio(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is None:
            raise RuntimeError("the server is not running: the ASGI application got no lifespan startup event")
        else:
            await self._app(scope, receive, send)

    async def _on_asyncio(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same under uvicorn or hypercorn's asyncio worker: the server runs on Trio, in a thread of its own."""
        if self._bridge is None:
            from callboard.serve.asgi_on_asyncio import AsgiOnAsyncio  # with asyncio, which few need

            self._bridge = AsgiOnAsyncio(self)
        await self._bridge(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        limits = self.settings
        parking = Parking(self.server.info.name, most=limits.max_parked, most_each=limits.max_parked_each)
        async with self.server.host(parking=parking) as host:
            tables, guard = await open_guard(host, self.server, self.authenticate, self.authorization)
            begin_renewing(host, guard, self.authenticate, tables)
            begin_pings(host.root, host.clients, limits.client_ping)
            upgrade = WebSocketUpgrade(host, self.settings, guard)
            endpoint = Endpoint(host, self.access, self.settings, guard=guard, on_upgrade=upgrade.serve)
            edge = await host.root.add(tree.asgi(lambda: endpoint.pulse))
            sockets = await host.root.add(tree.guests())
            self._app = AsgiApp(endpoint, edge.supervisor_of(tree.REQUESTS), sockets=sockets)
            try:
                await send({"type": "lifespan.startup.complete"})
                await receive()
            finally:
                self._app = None
        await send({"type": "lifespan.shutdown.complete"})


def mounted(
    server: Hosted,
    allow_hosts: Iterable[str],
    allow_origins: Iterable[str],
    authenticate: Authenticate | None,
    settings: Settings | None,
    authorization: str | None = None,
) -> Mounted:
    """See `Server.asgi`."""
    access = Access.on_any_port(hosts=allow_hosts, origins=allow_origins)
    return Mounted(server, access, settings or DEFAULTS, authenticate, authorization)


@attrs.define(eq=False)
class WebSocketDoor:
    """A server that runs inside a trio-websocket application, which passes connections on to it."""

    host: Host
    access: Access
    upgrade: WebSocketUpgrade
    connections: Supervisor
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def serve(self, given: "WebSocketRequest | WebSocketConnection") -> None:
        """See `Server.serve_websocket`."""
        upgrade = self.upgrade
        with GuestBlock(self.connections, f"t-{next(self._names)}", "TrioWebSocket") as block:
            await serve_trio_websocket(block, self.host, self.access, upgrade.serve, upgrade.settings, given)


_DOORS: Final[WeakKeyDictionary[Hosted, WebSocketDoor]] = WeakKeyDictionary()


@asynccontextmanager
async def running(
    server: Hosted,
    allow_origins: Iterable[str],
    authenticate: Authenticate | None,
    settings: Settings | None,
    authorization: str | None = None,
) -> AsyncIterator[WebSocketDoor]:
    """See `Server.websockets`."""
    limits = settings or DEFAULTS
    parking = Parking(server.info.name, most=limits.max_parked, most_each=limits.max_parked_each)
    async with server.host(parking=parking) as host:
        tables, guard = await open_guard(host, server, authenticate, authorization)
        begin_renewing(host, guard, authenticate, tables)
        begin_pings(host.root, host.clients, limits.client_ping)
        edge = await host.root.add(tree.guests())
        access = Access.on_any_port(origins=allow_origins)
        door = WebSocketDoor(host, access, WebSocketUpgrade(host, limits, guard), edge)
        _DOORS[server] = door
        try:
            yield door
        finally:
            del _DOORS[server]


def door_of(server: Hosted) -> WebSocketDoor:
    """The open door of a server. Raises RuntimeError if there is none."""
    try:
        return _DOORS[server]
    except KeyError:
        raise RuntimeError("the server is not running: use `async with server.websockets():` around it") from None
