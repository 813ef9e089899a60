"""A server as an ASGI application of its own, for deployments that have a place for one."""

from collections.abc import Iterable

import attrs

from callboard import tree
from callboard.actors.server.parking import Parking
from callboard.codecs.http.access import Access
from callboard.serve.authorization import begin_renewing, open_guard
from callboard.server.served import Hosted
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.server.asgi import AsgiApp, Receive, Scope, Send
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.guard import Authenticate


@attrs.define(eq=False)
class Mounted:
    """Runs a server between the startup and the shutdown that the ASGI lifespan tells of. Needs a Trio worker."""

    server: Hosted
    access: Access
    settings: Settings
    authenticate: Authenticate | None = None
    authorization: str | None = None
    _app: AsgiApp | None = attrs.field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is None:
            raise RuntimeError("the server is not running: the ASGI application got no lifespan startup event")
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        limits = self.settings
        parking = Parking(self.server.info.name, most=limits.max_parked, most_each=limits.max_parked_each)
        async with self.server.host(parking=parking) as host:
            tables, guard = await open_guard(host, self.authenticate, self.authorization)
            begin_renewing(host, guard, self.authenticate, tables)
            endpoint = Endpoint(host, self.access, self.settings, guard=guard)
            edge = await host.root.add(tree.asgi(lambda: endpoint.pulse))
            self._app = AsgiApp(endpoint, edge.supervisor_of(tree.REQUESTS))
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
