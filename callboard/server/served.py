"""The interface of servers and brokers for transports and commands."""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, Unpack

import attrs

from callboard.server.misuse import check_may_run

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection, WebSocketRequest

    from callboard.actors.server.host import Host
    from callboard.actors.server.parking import Parking
    from callboard.codecs.revisions import Implementation
    from callboard.serve.mount import Mounted, WebSocketDoor
    from callboard.serve.options import Options
    from callboard.transports.limits import Settings
    from callboard.transports.server.http.guard import Authenticate


@attrs.frozen(kw_only=True)
class BackendStatus:
    """How it stands with one server behind a broker. *why* it is not up, or what is wrong although it
    is, in a few words."""

    name: str
    state: str
    is_up: bool
    why: str = ""
    transport: str | None = None
    """How it is spoken to, if the configuration says."""


@attrs.frozen(kw_only=True)
class Behind:
    """The backends of a broker."""

    servers: tuple[BackendStatus, ...]
    tools: int
    example: str | None = None
    """Tools, with arguments, that are safe to call to see what happens: one on each line, with a comment."""

    @property
    def missing(self) -> tuple[BackendStatus, ...]:
        """Backends that cannot be used now."""
        return tuple(one for one in self.servers if not one.is_up)


class Hosted(Protocol):
    """A server or broker, as transports and commands need it."""

    info: "Implementation"

    def host(self, *, parking: "Parking | None" = None) -> "AbstractAsyncContextManager[Host]":
        """Run it, without any transport yet."""

    def is_ready(self) -> bool:
        """Whether a request could be answered now."""

    @property
    def wants_tokens(self) -> bool:
        """Whether a token of a caller must be kept with the caller."""

    def join_workers(self) -> None:
        """It runs, and is one of several workers."""

    def behind(self) -> Behind | None:
        """The backends; None for a server."""


class Served:
    """How it is served: the same for all."""

    @property
    def wants_tokens(self) -> bool:
        return False

    def run(self: Hosted, **options: Unpack["Options"]) -> None:
        """Serve on any set of transports at once, and return when that is over. Without any: stdio.

        ```python
        server.run(http="127.0.0.1:8000", ws="127.0.0.1:8001")
        ```

        SIGTERM and SIGINT let it drain: what is in flight is finished; a second one ends it at once. If it cannot run,
        for an address that is taken and the like, the process exits with 2 and one line that says why.
        """
        check_may_run()
        from callboard.serve.run import run_or_exit  # with all transports, which not every user of a server needs

        run_or_exit(self, **options)

    def asgi(
        self: Hosted,
        *,
        allow_hosts: Iterable[str] = (),
        allow_origins: Iterable[str] = (),
        authenticate: "Authenticate | None" = None,
        authorization: str | None = None,
        settings: "Settings | None" = None,
    ) -> "Mounted":
        """The endpoint `/mcp` as an ASGI application, for hypercorn or uvicorn, or to be mounted beside others.

        On asyncio the server runs in a thread beside it; hypercorn's Trio worker is faster.

        The server runs from the startup to the shutdown of the ASGI lifespan. It goes by the loopback names and by
        *allow_hosts*: name those that a proxy in front passes on. *authenticate* is given a bearer token and returns
        the principal or a `Caller`, or None to refuse it. *authorization* is a file with issuers, rules and quotas,
        which needs `resource`.

        The server in front reads HTTP, and counts and times connections: what it accepts (bare line feeds, folded
        lines) callboard cannot see. Do not put it behind a proxy that reuses connections, unless that server refuses
        them; `callboard run` does.
        """
        from callboard.serve.mount import mounted

        return mounted(self, allow_hosts, allow_origins, authenticate, settings, authorization)

    def websockets(
        self: Hosted,
        *,
        allow_origins: Iterable[str] = (),
        authenticate: "Authenticate | None" = None,
        authorization: str | None = None,
        settings: "Settings | None" = None,
    ) -> "AbstractAsyncContextManager[WebSocketDoor]":
        """Run it inside a trio-websocket application, which passes connections to `serve_websocket`.

        ```python
        async with server.websockets():
            await trio_websocket.serve_websocket(server.serve_websocket, "127.0.0.1", 8001, ssl_context=None)
        ```

        Pages of loopback origins and of *allow_origins* may connect. The other options are those of `asgi`.
        """
        from callboard.serve.mount import running

        return running(self, allow_origins, authenticate, settings, authorization)

    async def serve_websocket(self: Hosted, connection: "WebSocketRequest | WebSocketConnection") -> None:
        """Serve one WebSocket of a trio-websocket application to its end: a `WebSocketRequest`, which is answered here,
        or a `WebSocketConnection`, which the application has accepted. Raises RuntimeError outside `websockets`.

        The application then has chosen the subprotocol: it should be `mcp`, if that was offered. A client can resume
        such a connection, but must say so in headers: subprotocols are not passed on.
        """
        from callboard.serve.mount import door_of

        await door_of(self).serve(connection)
