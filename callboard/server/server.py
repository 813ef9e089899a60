"""The hosting API: a server is an object; its tools, resources and prompts are functions."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import attrs
import trio

from callboard import tree
from callboard.actors.changes import Change, ListChanged, ListName, ResourceUpdated
from callboard.actors.frames import custom_frame
from callboard.actors.rate import Rate, RateLimit
from callboard.actors.server.host import Host
from callboard.actors.server.log_levels import check_level
from callboard.actors.server.log_to_all import log_to_all
from callboard.actors.server.open_session import OpenSession
from callboard.actors.server.parking import Parking
from callboard.actors.server.progress import ProgressTimer
from callboard.actors.server.request import HARD_CAP
from callboard.actors.server.roots_reader import RootsListener, RootsWatch
from callboard.actors.server.tell_all import tell_all
from callboard.actors.server.tool_search import NAMES, ToolSearch
from callboard.codecs.http.passed import header_names
from callboard.codecs.revisions import (
    ALL,
    UNSET,
    CacheScope,
    Icon,
    Implementation,
    JSONObject,
    JSONValue,
    LoggingLevel,
    Revision,
)
from callboard.codecs.seal import Seal
from callboard.server.compose import Mounts
from callboard.server.decorators import Decorators, or_unset
from callboard.server.extension import Extension
from callboard.server.given import icons_of, revisions_of
from callboard.server.habits import SERVER, missing
from callboard.server.handlers import THREADS, ServerOffer
from callboard.server.include import ORIGINAL, chosen, needed_extensions
from callboard.server.lifespan import opened_lifespan
from callboard.server.middleware import Middleware
from callboard.server.misuse import check_loop
from callboard.server.mounted_lists import around_lists
from callboard.server.registry import CacheHint, E, Function, Loop, Offered, Registry
from callboard.server.served import Behind, Served
from callboard.server.signature.signature import Signature
from callboard.supervisor import get_logger, open_tree
from callboard.supervisor.logs import load_structlog

if TYPE_CHECKING:
    from ssl import SSLContext

    from callboard.server.asyncio_guest import AsyncioGuest

log = get_logger("callboard.handlers")

Lifespan: TypeAlias = Callable[["Server"], AbstractAsyncContextManager[Any]]
"""Lifespan of a server: an async context manager with the value of `ctx.lifespan`."""


DEFAULT_RATES: Final[Mapping[str, Rate]] = {"completion/complete": Rate(100)}
"""How often one principal may ask, by method. A person types no faster; what tools cost only their author knows."""


class Server(Decorators, Served):
    """An MCP server. Decorate functions to offer them; they may come and go while it runs."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon | Mapping[str, Any]] = (),
        instructions: str | None = None,
        revisions: Iterable[Revision | str] = ALL,
        lifespan: Lifespan | None = None,
        loop: Loop = "trio",
        rates: Mapping[str, Rate] = DEFAULT_RATES,
        ttl: float = 0,
        cache_scope: CacheScope = "private",
        show_errors: bool = False,
        timeout: float = HARD_CAP,
        threads: int = THREADS,
        offers: Collection[Offered] = (),
        extensions: Iterable[Extension] = (),
        experimental: Mapping[str, JSONObject] | None = None,
        headers: Collection[str] = (),
        search: bool = False,
    ) -> None:
        """*ttl* and *cache_scope*: how many seconds a client may keep a list, and whether for all its users.

        When a handler raises, the log gets the exception, its text and its place. The client gets the text of a
        `ToolError`, and of any other exception only the type; with *show_errors* the text of all of them.

        A request that takes longer than *timeout* seconds ends with an error; the time that it waits for an answer of
        its client does not count. At most *threads* plain functions run at once; further calls wait for a thread.

        Clients are told of tools, resources, prompts and completions if the server has any, and of log messages if a
        handler takes a context or there is a middleware. *offers* names the kinds whose first handler is added while
        the server runs: a client that was not told of prompts never asks for any. A server that is empty when it starts
        offers every kind, unless *offers* says which. *extensions* add capabilities, methods and notifications of
        their own; *experimental* is declared as it is. *headers* names those of a client's HTTP request that are in
        `ctx.headers`.

        With *search* a list of tools shows `search_tools` and `call_tool` alone, for catalogues that are too large for
        a model to read. All other tools are found by the first, and called by the second or by their own names.

        With `loop="asyncio"` the lifespan and all async handlers run on asyncio, in one thread beside Trio's; a handler
        may say otherwise.
        """
        if not timeout > 0 or threads < 1:
            raise ValueError("timeout must be positive, and threads at least 1")
        check_loop(loop)
        self.info = Implementation(
            name=name,
            version=version,
            title=or_unset(title),
            description=or_unset(description),
            website_url=or_unset(website_url),
            icons=icons_of(icons) or UNSET,
        )
        self.instructions = instructions
        self.revisions = revisions_of(revisions)
        self.registry = Registry()
        self.registry.offer(*offers)
        self.middlewares: list[Middleware] = []
        self.lists_kept = CacheHint.of(ttl, cache_scope)
        self.show_errors = show_errors
        self.timeout = timeout
        self.threads = threads
        self._rates = dict(rates)
        self._headers = header_names(headers)
        self._search = search
        self._lifespan = lifespan
        self._loop = loop
        self._guest: AsyncioGuest | None = None
        self._hosts: set[Host] = set()
        self._roots_listeners: list[RootsListener] = []
        self.mounts = Mounts(self, self._hosts, self._running, self._roots_listeners, self._headers)
        self.registry.declare_experimental(experimental)
        self.extensions: list[Extension] = []
        for extension in extensions:
            self.extend(extension)

    @classmethod
    def from_openapi(
        cls,
        document: str | Path | Mapping[str, Any],
        *,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        tls: "SSLContext | None" = None,
        **options: Any,
    ) -> Self:
        """A server with a tool for each operation of an HTTP API, as its OpenAPI 3 *document* says: a file, a URL or
        what was read of one.

        ```python
        server = Server.from_openapi("tickets.json", base_url="https://tickets.example.com/v1", headers={"X-Key": key})
        ```

        *headers* go with every request. Without *base_url* requests go where the document says, but only if it was
        fetched from there. A document at a URL is fetched when the server starts. *options* are those of a server,
        but for `lifespan` and `loop`. Raises `CannotServe` for a document that is none.
        """
        from callboard.server.openapi_source import ApiSource  # with a client of HTTP

        api = ApiSource(document, base_url, dict(headers or {}), tls)
        for option in sorted({"lifespan", "loop"} & options.keys()):
            raise TypeError(
                f"from_openapi() takes no {option!r}: a server in front, which mounts this one, has its own"
            )
        server = cls(name or api.title, **{"version": api.version or "0", **options, "lifespan": api.lifespan})
        api.offer(server)
        return server

    def extend(self, extension: Extension) -> None:
        """Add an extension, before the server runs. Raises ValueError if it has one of that id."""
        if any(one.id == extension.id for one in self.extensions):
            raise ValueError(f"extension {extension.id!r} already exists")
        if self._hosts:
            raise RuntimeError(f"extension {extension.id!r}: cannot be added while the server runs")
        for mount in self.mounts.above:
            mount.check_crossing(extension)
        self.extensions.append(extension)
        extension.attach(self)
        for mount in self.mounts.above:
            mount.cross(extension)

    def mount(self, other: "Server", prefix: str | None = None) -> None:
        """Offer all that *other* has, now and later, too: tools and prompts as `PREFIX__NAME`, resources as they are.

        ```python
        main.mount(shop, prefix="shop")
        ```

        It stays a server of its own: its lifespan, middlewares, threads and `show_errors` are for its own handlers, and
        `ctx.target` is the name that it gave itself. Rules, quotas and clients know the names that are shown; the rest
        is as this server says: *timeout*, *rates*, *revisions*, *instructions*, *experimental*, *ttl* and *search* of
        the other hold where it runs by itself. Without *prefix* names stay as they are.

        Raises ValueError for a name that is taken, or a server that is mounted already or contains this one, and
        RuntimeError while this one runs.
        """
        self.mounts.mount(other, prefix)

    def include(
        self,
        other: "Server",
        *,
        tools: Iterable[str] | None = None,
        prompts: Iterable[str] | None = None,
        resources: Iterable[str] | None = None,
    ) -> None:
        """Copy handlers of *other* into this server: those that are named (resources by URI or template, completions
        with what they complete), or all.

        ```python
        main.include(shop, tools=["buy", "cancel"])
        ```

        From then on they are this server's: with its lifespan, middlewares and threads. Later changes of *other* are
        not followed. Raises LookupError for what there is not, and ValueError for a name that is taken: then nothing
        is copied.
        """
        found, completions = chosen(other, tools, prompts, resources)
        for one in found:
            one.section(self.registry).check(one.name)
        for extension in needed_extensions(found):
            if all(known.id != extension.id for known in self.extensions):
                self.extend(extension)
        for one in found:
            one.section(self.registry).add(one.name, self._adopted(one.entry))
            self._offer(one.kind, one.entry.signature)
        for each in completions:
            self.registry.complete(each.of, each.argument, self._adopted(each.entry))
            self._offer("completions", each.entry.signature)
        for name in dict.fromkeys(one.of for one in found):
            self._changed(ListChanged(name))

    def _adopted(self, entry: E) -> E:
        """The same entry, for this server: what runs on asyncio does so in its own loop."""
        original: Function | None = getattr(entry.function, ORIGINAL, None)
        return (
            entry
            if original is None
            else attrs.evolve(entry, function=self._placed(original, entry.signature, "asyncio"))
        )

    def skills(self, folder: str | Path, *, prefix: str = "", watch: bool = False) -> None:
        """Offer the skills in *folder*, as `skill://PREFIX/NAME/SKILL.md`; with *watch*, as they are on the disk from
        then on. Raises `BadSkill` if one breaks a rule."""
        from callboard.server.skills import Skills  # with a parser of YAML, which most servers do not need

        known = next((one for one in self.extensions if isinstance(one, Skills)), None)
        if known is None:
            self.extend(Skills(folder, prefix=prefix, watch=watch))
        else:
            known.add(folder, prefix=prefix)
            known.watch = known.watch or watch

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return missing(self, name, SERVER)

    # What its clients hear.

    def notify_updated(self, uri: str) -> None:
        """Tell subscribers that a resource has another content now."""
        self._changed(ResourceUpdated(uri))

    def notify_changed(self, name: ListName) -> None:
        """Tell subscribers that a list is another one now. Adding and removing do so by themselves."""
        self._changed(ListChanged(name))

    async def log(self, level: LoggingLevel, data: JSONValue, *, logger: str | None = None) -> None:
        """Send a log message to all clients of legacy sessions that want any of this level. A modern client hears log
        messages of its own requests only: see `Context.log`.

        Clients must have been told that there are log messages: a handler takes a context, or
        `Server(offers=["logging"])`.
        """
        check_level(level)
        for host in list(self._hosts):
            await log_to_all(host.clients, level, data, logger)

    async def notify(self, method: str, /, **params: JSONValue) -> None:
        """Send a notification of an extension to all clients of legacy sessions. A modern client hears such of its own
        requests only: see `Context.notify`. A client that does not read loses the oldest.

        Raises ValueError for a name of the specification, or params that are too large.
        """
        frame = custom_frame(method, params)
        for host in list(self._hosts):
            await tell_all(host.clients, lambda _: frame)

    def complete_elicitation(self, elicitation_id: str) -> bool:
        """Tell the client that was sent to a page by `Context.elicit_url` or `require_url` that its user is done there.

        False if no client is told: it has left, or another worker serves it, or its revision has no such notification
        (only 2025-11-25 has it; a later client tries again by itself).
        """
        sessions = [session for host in self._hosts for session in host.clients.values()]
        return any(session.key.tell_complete(elicitation_id) for session in sessions)

    def on_roots_changed(self, listener: RootsListener) -> RootsListener:
        """Have an async function called with the `ClientRoots` of a legacy client that says that they have changed.

        Called at most once a second for each client. A modern client does not say so: ask with `Context.roots`.
        """
        self._roots_listeners.append(listener)
        return listener

    def own_name(self, name: str) -> str:
        """*name*: the handlers of a server know it by what it calls itself."""
        return name

    def _watch(self, session: OpenSession) -> None:
        if listeners := self.mounts.all_listeners():
            session.key.on_roots_changed.add(RootsWatch(session, listeners).changed)

    # How it runs.

    @asynccontextmanager
    async def host(self, *, parking: Parking | None = None) -> AsyncIterator[Host]:
        """Run the server, without any transport yet: for a caller that brings connections of its own."""
        load_structlog()
        lot, reports = Parking(self.info.name) if parking is None else parking, ProgressTimer()
        spec = tree.host(self.info.name.replace("/", "-"), lambda: lot, lambda: reports)
        async with self._running() as value, self.mounts.run() as mounted, open_tree(spec) as root:
            meters = {method: RateLimit(rate) for method, rate in self._rates.items()}
            self.registry.offer_anything()
            for of, argument in self.registry.completed_nothing():
                log.warning("completes_nothing", server=self.info.name, prompt_or_template=of, argument=argument)
            self.registry.cursors = Seal(lot.ring, "cursor")  # workers share the ring: any of them goes on with a list
            offer = ServerOffer(self, value, around_lists(self, self.mounts.below))
            offer.added = {**offer.around_added(mounted.added()), **offer.added}
            host = Host(offer, root, lot, cap=self.timeout, meters=meters, reports=reports)
            host.hear, host.on_session, host.passes = offer.hear, self._watch, self.mounts.all_headers()
            self._hosts.add(host)
            if self._search:
                host.search = self._tool_search()
            mounted.begin(host, self.registry.cursors)
            for extension in self.extensions:
                extension.begin(root)
            try:
                yield host
            finally:
                mounted.end(host)
                self._hosts.discard(host)

    def _tool_search(self) -> ToolSearch:
        """Raises ValueError if a tool of this server has the name of one that is for searching."""
        for name in NAMES & self.registry.tools.entries.keys():
            raise ValueError(f"tool {name!r}: with search=True the server has one of that name itself")
        return ToolSearch(self.lists_kept.ttl_ms)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[Any]:
        """The lifespan, in the loop that it is for. The asyncio thread, if there is one, outlives it."""
        guest = self._asyncio_guest() if self._loop == "asyncio" else self._guest
        async with (
            nullcontext() if guest is None else guest.running(),
            opened_lifespan(self.info.name, self._lifespan, self, guest if self._loop == "asyncio" else None) as value,
        ):
            yield value

    def _placed(self, function: Function, signature: Signature, loop: Loop | None) -> Function:
        check_loop(loop or self._loop)
        if not signature.is_async and loop == "asyncio":
            raise TypeError(f'{signature.name}(): loop="asyncio" is for async functions; a plain one runs in a thread')
        if not signature.is_async or (loop or self._loop) == "trio":
            return function
        return self._asyncio_guest().handler(function, signature)

    def _asyncio_guest(self) -> "AsyncioGuest":
        if self._guest is None:
            if self._hosts:
                raise RuntimeError("the first handler for asyncio must be added before the server runs")
            from callboard.server.asyncio_guest import AsyncioGuest  # with asyncio, which most servers do not need

            self._guest = AsyncioGuest(self.info.name)
        return self._guest

    def is_ready(self) -> bool:
        """Whether it runs."""
        return bool(self._hosts)

    def join_workers(self) -> None:
        """It runs, and is one of several workers: what it offers stays the same from now on."""
        self.registry.fix()
        for below in self.mounts.all_below():
            below.server.registry.fix()

    def behind(self) -> Behind | None:
        """None: only a broker stands in front of other servers."""
        return None

    def _offer(self, kind: Offered, signature: Signature | None = None) -> None:
        """Declare the kind of a handler, and log messages if it takes a context.

        The clients of a running server were told once what it offers: the author should know that these miss it.
        """
        logs = signature is not None and signature.context_parameter is not None
        late = self.registry.offer(kind, "logging") if logs else self.registry.offer(kind)
        if late and self._hosts:
            hint = f"clients see it after they reconnect; declare it at the start with Server(offers={late})"
            log.warning("registered_after_start", server=self.info.name, kinds=late, hint=hint)

    def _changed(self, change: Change) -> None:
        if not self._hosts:
            return
        if trio.lowlevel.in_trio_run():
            self._publish(change)
        else:  # a plain function, in its thread
            trio.from_thread.run_sync(self._publish, change)

    def _publish(self, change: Change) -> None:
        for host in self._hosts:
            host.topics.publish(change)
