"""Options of `serve`, read and validated, and the description of a running server.

What they lead to is loaded when it is made: the parent of workers reads them, too, and makes none of it.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

import attrs

from callboard.codecs.caller import TRUSTED
from callboard.codecs.http.access import EVERYONE, Access, is_wildcard
from callboard.errors import CannotServe
from callboard.serve.cluster_options import ClusterPlan, cluster_plan
from callboard.serve.refused_names import RefusedNames
from callboard.serve.state_keys import read_state_keys
from callboard.supervisor.audit import AUDIT_ARGUMENTS, ON_STANDARD_ERROR, WHEN_FULL, AuditArguments, WhenFull
from callboard.transports.bind import BindAddress, Bound, is_own_address
from callboard.transports.limits import DEFAULTS, Settings

if TYPE_CHECKING:
    from callboard.actors.server.host import Host
    from callboard.actors.server.parking import Parking
    from callboard.codecs.revisions import Implementation
    from callboard.serve.operator_desk import Balanced
    from callboard.serve.show_room import Overview, ShowRoom
    from callboard.serve.tokens import TokenTable
    from callboard.server.served import Behind
    from callboard.transports.server.http.guard import Authenticate
    from callboard.transports.server.stdio import Pipes
    from callboard.transports.server.tls import Certificate
    from callboard.workers.worker import Worker

MOST_WORKERS: Final = 64
"""Most workers of one server. Two generations of them must fit the page of loads."""

LIVE_PAGE: Final = "CALLBOARD_LIVE_PAGE"
"""Environment variable by which the parent tells workers the address of the live page."""

HttpEngine: TypeAlias = Literal["native", "asgi"]
HTTP_ENGINES: Final[tuple[HttpEngine, ...]] = ("native", "asgi")

TraceAccept: TypeAlias = Literal["always", "authenticated", "never"]
TRACE_ACCEPT: Final[tuple[TraceAccept, ...]] = ("always", "authenticated", "never")


@attrs.frozen
class Listening:
    """One way to the server that is open now. Of stdio there is no URL."""

    transport: Literal["stdio", "http", "ws", "sse", "admin"]
    url: str | None = None


@attrs.frozen
class ServerName:
    """A server that workers run, as their parent knows it."""

    name: str
    version: str


@attrs.frozen
class Ready:
    """A running server: its transports and warnings."""

    info: "Implementation | ServerName"
    listening: tuple[Listening, ...]
    warnings: tuple[str, ...] = ()
    behind: "Behind | None" = None
    """The backends, if it is a broker."""
    workers: int = 1
    """Processes that serve."""


class Options(TypedDict, total=False):
    """Options of `Server.run` and `serve`. Without any transport, stdio is served."""

    stdio: "bool | Pipes"
    http: str | int | None
    """Address for HTTP: `127.0.0.1:8000`, `8000` (this machine), `[::1]:8000`, `unix:/path`. Port 0: any."""
    ws: str | int | None
    """Address for WebSocket; may be the same as for HTTP."""
    http_engine: HttpEngine
    """`native`: HTTP/1.1. `asgi`: HTTP/2 as well, which hypercorn reads."""
    tls_cert: str | None
    tls_key: str | None
    allow_hosts: Sequence[str]
    """Names that the server goes by, beside that of its address; `*` for any."""
    allow_origins: Sequence[str]
    """Web pages that may use it, beside its own; `*` for any."""
    authenticate: "Authenticate | None"
    """Bearer token in, principal or `Caller` out; None refuses it."""
    authorization: str | None
    """File with the tables `authorization` and `quotas`: issuers of tokens, rules, quotas."""
    at: str | None
    """The server or profile of a broker that stdio serves, with its own names. Over HTTP each has a path of its own."""
    legacy_sse: bool
    """Serve HTTP+SSE (2024-11-05) at /sse as well."""
    admin: str | int | None
    """Address of the live page, metrics and health checks: different from the others."""
    admin_token_file: str | None
    """Tokens of those who may look at the page and the metrics. Needed unless `admin` is a loopback address."""
    admin_actions: bool
    """Let operators restart servers, approve tools, disconnect clients and drain, with a token of that file."""
    access_log: bool
    """Write a log line for each request."""
    audit: str | None
    """File of the audit log: a JSON line for each call and each decision; `-` for standard error."""
    audit_when_full: WhenFull
    """What happens when it cannot be written: `drop` lines and count them, or `refuse` new requests."""
    audit_arguments: AuditArguments
    """What it says of arguments: nothing, or a keyed digest. The key lies beside the file."""
    record: str | None
    """File to record messages to, as JSON lines without secrets: those of the server and its clients, or, of a broker,
    those of the broker and its servers."""
    trace: bool
    """Make spans, with the OpenTelemetry SDK that this process has set up."""
    trace_accept: TraceAccept | None
    """Which clients name the parent of our spans. Default: `always` if only this machine can connect,
    else `authenticated`."""
    state_key_file: str | None
    """File of the keys that seal what clients hold: it is good after a restart, and at other machines."""
    cluster: str | None
    """URL of the Redis or Valkey through which the nodes of a cluster know of each other."""
    cluster_name: str | None
    cluster_address: str | None
    """Address at which other nodes reach this one; any port."""
    cluster_cert: str | None
    cluster_key: str | None
    cluster_ca: str | None
    cluster_password_file: str | None
    worker: "Worker | None"
    """What this process is if a parent has started it."""
    workers: int | Literal["auto"]
    """Processes that serve; `auto`: one for each core. Not for stdio."""
    inspector: bool
    """Serve a page with a form for each tool, at /inspector of the HTTP address: for work on a server."""
    reload: bool
    """Start anew when a file of the server changes; what is in flight is finished. Not for stdio."""
    settings: Settings
    on_ready: Callable[[Ready], None] | None


def _place(text: str | int | None) -> BindAddress | None:
    return None if text is None else BindAddress.parse(text)


def _workers(count: int | Literal["auto"]) -> int:
    if count == "auto":
        return min(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MOST_WORKERS
        )
    if not 1 <= count <= MOST_WORKERS:
        raise CannotServe(f"workers: expected 1 to {MOST_WORKERS}, or auto")
    return count


def _has_telemetry() -> bool:
    try:
        return find_spec("opentelemetry.trace") is not None
    except ModuleNotFoundError:
        return False


@attrs.frozen(kw_only=True)
class ServePlan:
    """The options, read and checked. Raises `CannotServe`."""

    stdio: "bool | Pipes" = False
    http: BindAddress | None = attrs.field(default=None, converter=_place)
    ws: BindAddress | None = attrs.field(default=None, converter=_place)
    http_engine: HttpEngine = "native"
    tls_cert: str | None = None
    tls_key: str | None = None
    allow_hosts: Sequence[str] = ()
    allow_origins: Sequence[str] = ()
    authenticate: "Authenticate | None" = None
    authorization: str | None = None
    at: str | None = None
    legacy_sse: bool = False
    admin: BindAddress | None = attrs.field(default=None, converter=_place)
    admin_token_file: str | None = None
    admin_actions: bool = False
    access_log: bool = False
    audit: str | None = None
    audit_when_full: WhenFull = "drop"
    audit_arguments: AuditArguments = "none"
    record: str | None = None
    trace: bool = False
    trace_accept: TraceAccept | None = None
    workers: int = attrs.field(default=1, converter=_workers)
    state_key_file: str | None = None
    cluster_url: str | None = attrs.field(default=None, alias="cluster")
    cluster_name: str | None = None
    cluster_address: str | None = None
    cluster_cert: str | None = None
    cluster_key: str | None = None
    cluster_ca: str | None = None
    cluster_password_file: str | None = None
    cluster: ClusterPlan | None = attrs.field(init=False)
    worker: "Worker | None" = None
    reload: bool = False
    inspector: bool = False
    settings: Settings = DEFAULTS
    on_ready: Callable[[Ready], None] | None = None

    @cluster.default
    def _cluster(self) -> ClusterPlan | None:
        return cluster_plan(
            url=self.cluster_url,
            name=self.cluster_name,
            address=self.cluster_address,
            cert=self.cluster_cert,
            key=self.cluster_key,
            ca=self.cluster_ca,
            password_file=self.cluster_password_file,
            has_keys=self.state_key_file is not None,
        )

    def __attrs_post_init__(self) -> None:
        if self.http_engine not in HTTP_ENGINES:
            raise CannotServe(f"invalid http_engine {self.http_engine!r}: expected one of {', '.join(HTTP_ENGINES)}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise CannotServe("TLS needs a certificate and its key: --tls-cert FILE and --tls-key FILE")
        if self.at is not None and not self.serves_stdio:
            raise CannotServe("a server or profile is chosen for stdio only: over HTTP it is at /mcp/NAME")
        if self.legacy_sse and self.http is None:
            raise CannotServe("legacy SSE needs an HTTP address")
        if self.admin is not None and self.admin.port and self.admin in (self.http, self.ws):
            raise CannotServe("the admin listener needs its own address")
        if self.admin_actions and (self.admin is None or self.admin_token_file is None):
            raise CannotServe("actions need an admin address and --admin-token-file")
        if self.trace and not _has_telemetry():
            raise CannotServe("tracing needs opentelemetry-api: pip install 'callboard[telemetry]'")
        if self.trace_accept not in (None, *TRACE_ACCEPT):
            raise CannotServe(f"invalid trace_accept {self.trace_accept!r}: expected one of {', '.join(TRACE_ACCEPT)}")
        if self.audit_when_full not in WHEN_FULL or self.audit_arguments not in AUDIT_ARGUMENTS:
            raise CannotServe("invalid audit_when_full or audit_arguments: expected drop or refuse, none or digest")
        if self.audit == ON_STANDARD_ERROR and self.audit_arguments == "digest":
            raise CannotServe("digests of arguments need an audit file: their key lies beside it")
        if self.record is not None and (self.workers > 1 or self.cluster is not None):
            raise CannotServe("messages are recorded by one process: use --record without workers and cluster")
        if self.workers > 1 and self.serves_stdio:
            raise CannotServe("stdio is one client's own: it cannot be served by more than one worker")
        if self.cluster is not None and self.serves_stdio:
            raise CannotServe("stdio is one client's own: a cluster cannot serve it")
        if self.inspector and (self.http is None or not self.http.is_local):
            raise CannotServe("the inspector asks for no token: it needs an HTTP address of this machine")
        if self.reload and self.serves_stdio:
            raise CannotServe("--reload needs --http or --ws: over stdio the client starts the process")
        if self.has_parent and not hasattr(os, "memfd_create"):
            raise CannotServe("more than one worker, and --reload, are not supported on this system")

    def stdio_host(self, host: "Host") -> "Host":
        """What stdio serves: all, or the server or profile that was named. Raises `CannotServe`."""
        if self.at is None:
            return host
        found = None if host.paths is None else host.paths.find(self.at, TRUSTED)
        if found is None:
            raise CannotServe(f"there is no server or profile {self.at[:100]!r}")
        return found

    @property
    def has_parent(self) -> bool:
        """Whether a process that serves nothing itself starts those that do."""
        return self.workers > 1 or self.cluster is not None or self.reload

    @property
    def serves_stdio(self) -> bool:
        return self.stdio is not False or (self.http is None and self.ws is None)

    def places(self) -> list[BindAddress]:
        """Addresses to listen at: one if HTTP and WebSocket share it."""
        return list(dict.fromkeys(place for place in (self.http, self.ws) if place is not None))

    def local_url(self, bound: Iterable[Bound]) -> str | None:
        """The first address that only this machine can use, as a client calls it."""
        local = (at.place for at in bound if at.place.is_local and at.place.path is None)
        return next((place.url(self.schemes[0]) for place in local), None)

    def pipes(self) -> "AbstractContextManager[Pipes]":
        """The claimed standard streams, or a claim of them."""
        if not isinstance(self.stdio, bool):
            return nullcontext(self.stdio)
        from callboard.transports.server.stdio import claim_stdio

        return claim_stdio()

    def accepts_traces(self) -> TraceAccept:
        """Which clients name the parent of our spans, and so decide whether they are sampled."""
        if self.trace_accept is not None:
            return self.trace_accept
        return "always" if all(place.is_local for place in self.places()) else "authenticated"

    @property
    def schemes(self) -> tuple[str, str]:
        return ("http", "ws") if self.tls_cert is None else ("https", "wss")

    def tls(self) -> "Certificate | None":
        if self.tls_cert is None or self.tls_key is None:
            return None
        from callboard.transports.server.tls import Certificate

        spoken = ("h2", "http/1.1") if self.http_engine == "asgi" else ("http/1.1",)
        return Certificate(Path(self.tls_cert), Path(self.tls_key), spoken)

    def state_keys(self) -> list[bytes]:
        """The keys of the file; none without one. Raises `CannotServe`."""
        return [] if self.state_key_file is None else read_state_keys(Path(self.state_key_file))

    def parking(self, audience: str) -> "Parking":
        """Where requests wait for their clients."""
        from callboard.actors.server.parking import Parking
        from callboard.codecs.seal import KeyRing

        parking = Parking(audience, most=self.settings.max_parked, most_each=self.settings.max_parked_each)
        if keys := self.state_keys():  # which may be older than this process: so is the clock
            parking.ring, parking.clock = KeyRing.from_bytes(*keys), time.time
        return parking

    def access(self, place: BindAddress, *, is_admin: bool = False) -> Access:
        """The Host and Origin rules of *place*. No page may look at the admin listener, and it has no TLS."""
        if place.path is not None:
            return EVERYONE
        scheme, origins = ("http", ()) if is_admin else (self.schemes[0], self.allow_origins)
        refused = RefusedNames(str(place), allows_pages=not is_admin)
        try:
            return Access.of(
                *(place.host, place.port),
                scheme=scheme,
                hosts=self.allow_hosts,
                origins=origins,
                is_own=is_own_address,
                on_refused=refused.host,
                on_refused_origin=refused.origin,
            )
        except ValueError as error:
            raise CannotServe(str(error)) from None

    def admin_tokens(self, place: BindAddress) -> "TokenTable | None":
        """Those that the admin listener asks for; none where only this machine can connect. Raises `CannotServe`."""
        from callboard.serve.tokens import TokenTable

        if self.admin_token_file is not None:
            return TokenTable.read(Path(self.admin_token_file))
        return None if place.is_local else TokenTable()  # health alone: no token fits

    def room(self, overview: "Overview", health: "Balanced", place: BindAddress) -> "ShowRoom":
        """What the admin listener at *place* shows. Raises `CannotServe`."""
        from callboard.serve.show_room import ShowRoom  # with all that it shows, which few need

        refused = RefusedNames(str(place), "--admin-token-file")
        return ShowRoom(overview, self.admin_tokens(place), self.admin_actions, health, refused)


def listening_told(listening: Sequence[Listening]) -> list[dict[str, str]]:
    return [{"transport": one.transport, "url": one.url or ""} for one in listening]


def listening_at(plan: ServePlan, bound: Mapping[BindAddress, Bound], admin: Bound | None) -> Iterator[Listening]:
    """The transports that are open, with their URLs."""
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
        yield Listening("admin", admin.place.url("http").removesuffix("/mcp") + "/")


def warnings_for(plan: ServePlan, bound: Mapping[BindAddress, Bound], admin: Bound | None = None) -> Iterator[str]:
    """What the operator should know of these addresses. Raises `CannotServe` for names that cannot be."""
    for at in bound.values():
        plan.access(at.place)  # what is wrong with the names is said before anything starts
        if not at.place.is_local:
            tokens = "" if plan.authenticate or plan.authorization else " without authentication"
            yield f"other machines can reach {at.place}{tokens}"
            if not plan.allow_hosts:
                names = "an address of this machine" if is_wildcard(at.place.host) else str(at.place)
                yield f"the Host header of requests must be {names}; accept others with --allow-host NAME"
    if admin is not None:
        plan.access(admin.place, is_admin=True)
        if not admin.place.is_local:
            yield f"other machines can reach the health checks at {admin.place}"
            if plan.admin_token_file is None:
                yield f"the live page and the metrics at {admin.place} need --admin-token-file FILE"
