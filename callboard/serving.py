"""How a server is run: any set of transports at once, in one process, until it is asked to end."""

import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypedDict, Unpack

import attrs
import trio

from callboard.actors.host import Host
from callboard.actors.lame_duck import drain
from callboard.actors.parking import Parking
from callboard.admin import Health, admin_edge
from callboard.announcing import announce, announce_drain
from callboard.codecs.http.access import EVERYONE, Access, is_wildcard
from callboard.collecting import collecting_now_and_then, collecting_seldom
from callboard.errors import CannotServe
from callboard.hosted import Behind, Hosted
from callboard.refusing import RefusedNames
from callboard.renewing import Renewing
from callboard.revoking import end_all_of
from callboard.signals import heed_hangups, heed_signals
from callboard.supervisor import Supervisor, SupervisorSpec
from callboard.tokens import TokenFile
from callboard.transports.bind import Bound, Place, is_own_address, listen
from callboard.transports.http.connection import HttpConnection
from callboard.transports.http.crowd import raise_descriptor_limit
from callboard.transports.http.endpoint import Authenticate, Endpoint
from callboard.transports.http.listener import HttpListener, http_edge
from callboard.transports.settings import DEFAULTS, Settings
from callboard.transports.stdio import Pipes, Stdio, claim_stdio
from callboard.transports.tls import Certificate
from callboard.transports.websocket.door import WebSocketDoor

Door: TypeAlias = Literal["native", "asgi"]
DOORS: Final[tuple[Door, ...]] = ("native", "asgi")


@attrs.frozen
class Listening:
    """One way to the server that is open now. Of stdio there is no URL."""

    transport: Literal["stdio", "http", "ws", "sse", "admin"]
    url: str | None = None


@attrs.frozen
class Ready:
    """What is served, where, and what the operator should know about it."""

    server: Hosted
    listening: tuple[Listening, ...]
    warnings: tuple[str, ...] = ()
    behind: Behind | None = None
    """Whom it stands in front of, if it is a broker."""


class Options(TypedDict, total=False):
    """What `Server.run` and `serve` take. Without any transport, stdio is served."""

    stdio: bool | Pipes
    http: str | int | None
    """Where to serve HTTP: `127.0.0.1:8000`, `8000` (this machine), `[::1]:8000`, `unix:/path`. Port 0: any."""
    ws: str | int | None
    """Where to serve WebSocket; it may be the same place."""
    door: Door
    """`native`: HTTP/1.1. `asgi`: HTTP/2 as well, which hypercorn reads."""
    tls_cert: str | None
    tls_key: str | None
    allow_hosts: Sequence[str]
    """Names that the server goes by, beside that of its address; `*` for any."""
    allow_origins: Sequence[str]
    """Web pages that may use it, beside its own; `*` for any."""
    authenticate: Authenticate | None
    """Bearer token in, principal out; None refuses it."""
    legacy_sse: bool
    """Serve HTTP+SSE (2024-11-05) at /sse as well."""
    admin: str | int | None
    """Where to say whether it lives (`/livez`) and whether it is ready (`/readyz`): an address of its own."""
    settings: Settings
    on_ready: Callable[[Ready], None] | None


def _place(text: str | int | None) -> Place | None:
    return None if text is None else Place.parse(text)


@attrs.frozen(kw_only=True)
class _Plan:
    """The options, read and checked. Raises `CannotServe`."""

    stdio: bool | Pipes = False
    http: Place | None = attrs.field(default=None, converter=_place)
    ws: Place | None = attrs.field(default=None, converter=_place)
    door: Door = "native"
    tls_cert: str | None = None
    tls_key: str | None = None
    allow_hosts: Sequence[str] = ()
    allow_origins: Sequence[str] = ()
    authenticate: Authenticate | None = None
    legacy_sse: bool = False
    admin: Place | None = attrs.field(default=None, converter=_place)
    settings: Settings = DEFAULTS
    on_ready: Callable[[Ready], None] | None = None

    def __attrs_post_init__(self) -> None:
        if self.door not in DOORS:
            raise CannotServe(f"{self.door!r} is no door: take one of {', '.join(DOORS)}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise CannotServe("TLS needs both, a certificate and its key")
        if self.legacy_sse and self.http is None:
            raise CannotServe("HTTP+SSE is served where HTTP is: give an address for that")
        if self.admin is not None and self.admin.port and self.admin in (self.http, self.ws):
            raise CannotServe("the admin listener needs an address of its own")
        if self.door == "asgi" and self.http is not None and self.http == self.ws:
            raise CannotServe("the ASGI door serves no WebSocket: give ws an address of its own")

    @property
    def serves_stdio(self) -> bool:
        return self.stdio is not False or (self.http is None and self.ws is None)

    def places(self) -> list[Place]:
        """Where to listen: one place if both share it."""
        return list(dict.fromkeys(place for place in (self.http, self.ws) if place is not None))

    def pipes(self) -> AbstractContextManager[Pipes]:
        """Those that were claimed already, or a claim of them."""
        return nullcontext(self.stdio) if isinstance(self.stdio, Pipes) else claim_stdio()

    @property
    def schemes(self) -> tuple[str, str]:
        return ("http", "ws") if self.tls_cert is None else ("https", "wss")

    def tls(self) -> Certificate | None:
        if self.tls_cert is None or self.tls_key is None:
            return None
        spoken = ("h2", "http/1.1") if self.door == "asgi" else ("http/1.1",)
        return Certificate(Path(self.tls_cert), Path(self.tls_key), spoken)

    def access(self, place: Place, *, is_admin: bool = False) -> Access:
        """Who may come in at *place*. No page may look at the admin listener, and it has no TLS."""
        if place.path is not None:
            return EVERYONE
        scheme, origins = ("http", ()) if is_admin else (self.schemes[0], self.allow_origins)
        try:
            return Access.of(
                *(place.host, place.port),
                scheme=scheme,
                hosts=self.allow_hosts,
                origins=origins,
                is_own=is_own_address,
                on_refused=RefusedNames(str(place)),
            )
        except ValueError as error:
            raise CannotServe(str(error)) from None


async def serve(
    server: Hosted,
    *,
    until: Callable[[], Awaitable[None]] = trio.sleep_forever,
    task_status: trio.TaskStatus[Ready] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[Options],
) -> None:
    """Serve until *until* returns, or whoever is at the other end of stdio leaves; then drain, and return.

    Raises `CannotServe` if one of the transports cannot be opened. Cancelled, it ends at once.
    """
    plan = _Plan(**options)
    tls, settings = plan.tls(), plan.settings
    async with AsyncExitStack() as stack:
        pipes = stack.enter_context(plan.pipes()) if plan.serves_stdio else None
        bound = {place: await stack.enter_async_context(listen(place)) for place in plan.places()}
        admin = None if plan.admin is None else await stack.enter_async_context(listen(plan.admin))
        ready = Ready(server, tuple(_listening(plan, bound, admin)), tuple(_warnings(plan, bound, admin)))
        parking = Parking(server.info.name, most=settings.max_parked, most_each=settings.max_parked_each)
        host = await stack.enter_async_context(server.host(parking=parking))
        if admin is not None:
            access = plan.access(admin.place, is_admin=True)
            await host.root.add(admin_edge(Health(server, host), access, admin.sockets))
        edges = [await host.root.add(_edge(plan, host, place, at, tls)) for place, at in bound.items()]
        if isinstance(plan.authenticate, TokenFile):
            plan.authenticate.on_gone = partial(end_all_of, host)
        for renewable in (tls, plan.authenticate):
            if isinstance(renewable, (Certificate, TokenFile)):
                host.root.spawn(Renewing(renewable), name=f"renew-{renewable.name}", shutdown=0)
        ends: list[Callable[[], Awaitable[object]]] = [until]
        if pipes is not None:
            ends.append(host.root.spawn(Stdio(host, pipes, settings.max_frame), name="stdio").wait_ended)
        ready = attrs.evolve(ready, behind=server.behind())
        if plan.on_ready is not None:
            plan.on_ready(ready)
        task_status.started(ready)
        await _wait_first(ends)
        await drain(
            host,
            close_doors=partial(_close_doors, edges),
            edges=[edge.address for edge in edges],
            errands=_errands(edges),
            tell=partial(announce_drain, within=settings.drain_time),
            within=settings.drain_time,
            spread=settings.spread,
        )


def run(server: Hosted, **options: Unpack[Options]) -> None:
    """`serve` in an event loop of its own, until a signal says that it is enough: the first one lets it drain."""
    options.setdefault("on_ready", announce)
    raise_descriptor_limit()
    with collecting_seldom():
        trio.run(partial(_run, server, options))


async def _run(server: Hosted, options: Options) -> None:
    """Serve until a signal comes. One that comes before the server is ready ends it at once: there is nothing to drain.

    Raises `KeyboardInterrupt` if that was Ctrl-C.
    """
    announces, is_ready, early = options.get("on_ready"), False, 0

    def on_ready(ready: Ready) -> None:
        nonlocal is_ready
        is_ready = True
        if announces is not None:
            announces(ready)

    def on_first(number: int) -> None:
        nonlocal early
        if not is_ready:
            early = number
            whole.cancel()

    options["on_ready"] = on_ready
    with (
        trio.CancelScope() as whole,
        heed_signals(whole.cancel, on_first=on_first) as asked,
        heed_hangups(),
        collecting_now_and_then(),
    ):
        await serve(server, until=asked.wait, **options)
    if early == signal.SIGINT:
        raise KeyboardInterrupt


def _edge(plan: _Plan, host: Host, place: Place, bound: Bound, tls: Certificate | None) -> SupervisorSpec:
    """The tree behind one address."""
    settings, authenticate = plan.settings, plan.authenticate
    is_http, is_ws = place == plan.http, place == plan.ws
    endpoint = Endpoint(
        host,
        plan.access(bound.place),
        settings,
        authenticate=authenticate,
        is_http=is_http,
        legacy_sse=is_http and plan.legacy_sse,
        on_upgrade=WebSocketDoor(host, settings, authenticate).serve if is_ws else None,
    )
    with_http2 = is_http and plan.door == "asgi"
    return http_edge("http" if is_http else "ws", endpoint, bound.sockets, tls, with_http2=with_http2)


def _listening(plan: _Plan, bound: Mapping[Place, Bound], admin: Bound | None) -> Iterator[Listening]:
    http, ws = plan.schemes
    if plan.http is not None:
        url = bound[plan.http].place.url(http)
        yield Listening("http", url)
        if plan.legacy_sse:
            yield Listening("sse", url.removesuffix("/mcp") + "/sse")
    if plan.ws is not None:
        yield Listening("ws", bound[plan.ws].place.url(ws))
    if plan.serves_stdio:
        yield Listening("stdio")
    if admin is not None:
        yield Listening("admin", admin.place.url("http").removesuffix("/mcp") + "/readyz")


def _warnings(plan: _Plan, bound: Mapping[Place, Bound], admin: Bound | None = None) -> Iterator[str]:
    for at in bound.values():
        plan.access(at.place)  # what is wrong with the names is said before anything starts
        if not at.place.is_local:
            tokens = "" if plan.authenticate is not None else ", and nobody is asked for a token"
            yield f"other machines can reach {at.place}{tokens}"
            if not plan.allow_hosts:
                names = "this machine's addresses" if is_wildcard(at.place.host) else str(at.place)
                yield f"requests must name {names}; allow other names with --allow-host NAME"
    if admin is not None:
        plan.access(admin.place, is_admin=True)
        if not admin.place.is_local:
            yield f"other machines can ask {admin.place} whether this one is ready"


async def _close_doors(edges: Sequence[Supervisor]) -> None:
    """Accept nobody any more, and let go of the addresses: whoever comes next may take them over."""
    for edge in edges:
        for address, actor in edge.actors():
            if isinstance(actor, HttpListener):
                await address.stop()
                actor.listening.close()


def _errands(edges: Sequence[Supervisor]) -> list[HttpConnection]:
    """The connections that run a request by themselves."""
    places = [place for edge in edges for _, place in edge.actors() if isinstance(place, Supervisor)]
    connections = [actor for place in places for _, actor in place.actors() if isinstance(actor, HttpConnection)]
    return [connection for connection in connections if connection.has_errand]


async def _wait_first(ends: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Wait until one of them returns."""
    async with trio.open_nursery() as nursery:

        async def wait(end: Callable[[], Awaitable[object]]) -> None:
            await end()
            nursery.cancel_scope.cancel()

        for end in ends:
            nursery.start_soon(wait, end)
