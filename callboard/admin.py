"""The admin listener: whether a broker lives, and whether it is ready, for whoever looks after it.

On a port of its own, off unless asked for, and without any detail: it is not asked who reads it.
"""

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Never

import attrs

from callboard.actors.host import Host
from callboard.codecs.http.access import Access
from callboard.codecs.http.refusal import Refusal
from callboard.hosted import Hosted
from callboard.supervisor import Actor, ChildSpec, SupervisorSpec

if TYPE_CHECKING:
    from quart_trio import QuartTrio

GRACE: Final = 1.0
"""Seconds that an answer under way has when the listener ends."""

MAX_HEAD: Final = 8192
"""Largest head of a request, in bytes."""

MAX_BODY: Final = 1024
"""Largest body of a request, in bytes. Nothing that is asked here needs any."""

_PLAIN: Final = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}


@attrs.frozen(eq=False)
class Health:
    """What is told of a served thing: whether it lives, and whether new work is welcome."""

    server: Hosted
    host: Host

    def is_ready(self) -> bool:
        return not self.host.is_draining and self.server.is_ready()


def admin_app(health: Health, access: Access) -> "QuartTrio":
    """The application. Whoever calls it by a name that is not its own is refused: a page could have sent it."""
    from quart import request
    from quart_trio import QuartTrio  # it takes half a second to load, and few ask for it

    app = QuartTrio("callboard.admin", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY

    @app.before_request
    async def check() -> tuple[str, int, dict[str, str]] | None:
        host, origin = request.headers.get("Host"), request.headers.get("Origin")
        try:
            access.check(None if host is None else host.encode(), None if origin is None else origin.encode())
        except Refusal as refusal:
            return "refused\n", refusal.status, _PLAIN
        return None

    @app.get("/livez")
    async def livez() -> tuple[str, int, dict[str, str]]:
        return "ok\n", 200, _PLAIN

    @app.get("/readyz")
    async def readyz() -> tuple[str, int, dict[str, str]]:
        return ("ok\n", 200, _PLAIN) if health.is_ready() else ("not ready\n", 503, _PLAIN)

    return app


@attrs.define(eq=False)
class AdminListener(Actor[Never]):
    """Runs hypercorn on sockets that listen already, until it is stopped."""

    mailbox = None

    health: Health
    access: Access
    sockets: Sequence[socket.socket]

    async def run(self) -> None:
        from hypercorn.config import Config, Sockets
        from hypercorn.trio.run import worker_serve
        from hypercorn.utils import wrap_app

        config = Config()
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.graceful_timeout = GRACE
        config.shutdown_timeout = GRACE
        config.h11_max_incomplete_size = MAX_HEAD
        app: Any = admin_app(self.health, self.access)
        await worker_serve(
            wrap_app(app, MAX_BODY, "asgi"),
            config,
            sockets=Sockets([], list(self.sockets), []),
            shutdown_trigger=self.wait_stopping,
        )


def admin_edge(health: Health, access: Access, sockets: Sequence[socket.socket]) -> SupervisorSpec:
    """The tree of the admin listener. It is there before the doors open, and after they were closed."""
    listener = ChildSpec("hypercorn", lambda: AdminListener(health, access, sockets), shutdown=GRACE + 0.5)
    return SupervisorSpec("admin", children=(listener,))
