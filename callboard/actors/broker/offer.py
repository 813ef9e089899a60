"""All backends as one server: what the broker's host offers to its clients."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET

from callboard.actors.broker.approved import approved_at
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.catalogue import Catalogue
from callboard.actors.broker.forward import Forward, ForwardTarget
from callboard.actors.broker.listing import Listing
from callboard.actors.broker.merging import MergedEntry
from callboard.actors.broker.owners import Knows
from callboard.actors.broker.tasks import Tasks
from callboard.actors.broker.views import VIEW_WAIT, ListView
from callboard.actors.broker.visible import GUARDED
from callboard.actors.changes import ListName
from callboard.actors.rules import HIDDEN, OPEN, AccessRules, CallerView, Decision, Gate
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.host import Instant
from callboard.actors.terms import modern_terms
from callboard.codecs.bridge.askable import NOTHING, Signature, signature_of
from callboard.codecs.bridge.definitions import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind
from callboard.codecs.bridge.names import SEPARATOR
from callboard.codecs.bridge.results import COMPLETE, Forwarded
from callboard.codecs.bridge.tasks import must_defer, runs_tasks
from callboard.codecs.caller import ANONYMOUS, Caller
from callboard.codecs.envelope import Request
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import Members, raw
from callboard.codecs.revisions import (
    ALL,
    DiscoverResult,
    Implementation,
    ListChangedCapability,
    Model,
    PaginatedRequestParams,
    ResourcesCapability,
    Revision,
    ServerCapabilities,
    ServerTaskRequests,
    ServerTasksCapability,
    ToolTaskRequests,
    UnsetType,
    declares,
)
from callboard.codecs.routing import Route
from callboard.errors import DefinitionChanged, InvalidParams, PeerError, ResourceNotFound

MAX_INSTRUCTIONS: Final = 16_384
"""Characters of all backends' instructions together."""

_LISTS: Final[Mapping[str, ListName]] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resourceTemplates": "resources",
}
OnLists: TypeAlias = Callable[[Iterable[ListName], Signature | None, Mapping[Signature, Set[ListName]]], None]
"""Told that lists are others now: for clients of one signature, or for all clients that do not see them unchanged."""

_FORWARDED: Final = ("tools/call", "resources/read", "prompts/get", "completion/complete")
_KEPT: Final = {"ttlMs": raw(0), "cacheScope": raw("private")}
_NO_META: Final[Members] = {}


@attrs.define(eq=False)
class BrokerOffer:
    """The offer of a broker. Lists come from the catalogue; only the first list of a client that can be asked may wait,
    and not for long. Everything else goes to a backend."""

    info: Implementation
    catalogue: Catalogue
    revisions: frozenset[Revision] = ALL
    on_lists: OnLists = attrs.field(default=lambda *_: None)
    backends: dict[str, Backend] = attrs.field(factory=dict, init=False)
    tasks: Tasks = attrs.field(factory=Tasks, init=False)
    instructions: str | None = attrs.field(default=None, init=False)
    instant: Mapping[str, Instant] = attrs.field(init=False)
    handlers: Mapping[str, Handler] = attrs.field(init=False)
    _capabilities: ServerCapabilities = attrs.field(init=False)
    _tools: dict[str, ForwardTarget] = attrs.field(factory=dict, init=False)  # those that were called
    _tools_of: int = attrs.field(default=0, init=False)  # the version of the catalogue that they were found in

    def __attrs_post_init__(self) -> None:
        self._capabilities = _union([])
        self.instant = {"server/discover": self._discover, **{kind.method: self._lister(kind) for kind in KINDS}}
        self.handlers = {
            **dict.fromkeys(_FORWARDED, self._forward),
            **{kind.method: self._lister_that_looks(kind) for kind in KINDS},
            **self.tasks.handlers(),
        }

    # What the host asks.

    def capabilities(self, _: Revision) -> ServerCapabilities:
        return self._capabilities

    def header_map(self, method: str, route: Route) -> HeaderMap:
        if method != "tools/call":
            return NO_HEADERS
        if (known := self._called(route.name or "")) is not None:
            return known.headers
        return self._headers(route.name or "", self._signature_in(route) if self.catalogue.tells_apart else NOTHING)

    def owner_of(self, method: str, name: str) -> str | None:
        found = self.catalogue.shown(TOOLS if method == "tools/call" else PROMPTS).get(name)
        return None if found is None else found.backend

    def offered(self) -> Iterator[tuple[str, str, str]]:
        for kind, method in ((TOOLS, "tools/call"), (PROMPTS, "prompts/get")):
            for shown, entry in self.catalogue.shown(kind).items():
                yield method, shown, entry.backend

    # What rules say.

    def guard(self, exchange: Exchange) -> None:
        request, route, terms, view = exchange.request, exchange.route, exchange.terms, _view(exchange)
        signature = signature_of(terms.capabilities) if self.catalogue.tells_apart else NOTHING
        if request.method == "tools/call":
            self._of_tool(route.name or "", signature, view)
        elif request.method in _FORWARDED:
            self._destination(request, route, signature, view)

    def decide_resource(self, rules: AccessRules, caller: Caller, uri: str, method: str) -> Decision:
        view = CallerView(rules, caller)
        try:
            found = self.catalogue.owner_of(uri, NOTHING, _knows(view, method))
        except InvalidParams:
            return OPEN  # several backends have it, and the caller may know of them
        return HIDDEN if found is None else rules.decide(caller, "resource", *found, method=method)

    def gates(self, rules: AccessRules) -> Mapping[ListName, Sequence[Gate]]:
        found = {kind.member: self.catalogue.gates(kind, rules) for kind in KINDS}
        resources = (*found[RESOURCES.member], *found[TEMPLATES.member])
        return {"tools": found[TOOLS.member], "prompts": found[PROMPTS.member], "resources": resources}

    def instructions_for(self, rules: AccessRules, caller: Caller) -> str | None:
        known = [backend for name, backend in self.backends.items() if rules.sees_server(caller, name)]
        return self.instructions if len(known) == len(self.backends) else _instructions(known)

    # What changes it.

    def put(self, backend: str, listing: Listing, said: Set[str] = frozenset()) -> None:
        """A backend has said what it offers. Clients are told of the lists that are others now, and of those *said*."""
        views = self.backends[backend].views
        apart = {one: those for one, those in self.catalogue.apart(backend).items() if views.knows(one)}
        changed = self.catalogue.put(backend, listing)
        self.look_around()
        self.tell_of([*changed, *said], apart=apart)

    def put_for(self, backend: str, signature: Signature, listing: Listing, tells: bool) -> None:
        """A backend has said what it offers to clients of *signature*. If it *tells*, they hear of what is new."""
        changed = self.catalogue.put_for(signature, backend, listing)
        if tells:
            self.tell_of(changed, signature)

    def tell_of(
        self,
        changed: Collection[str],
        signature: Signature | None = None,
        apart: Mapping[Signature, Set[str]] = MappingProxyType({}),
    ) -> None:
        """Tell clients that these lists, named as in results, are others now: clients of *signature*, or all, but of a
        list that is *apart* from the base list not the clients that see it."""
        names = dict.fromkeys(_LISTS[member] for member in changed)
        but = {
            one: names.keys() - {_LISTS[member] for member in changed if member not in members}
            for one, members in apart.items()
        }
        self.on_lists(names, signature, but)

    def look_around(self) -> None:
        """Take in which backends there are, and what they can do."""
        self._tools.clear()
        found = _union(list(self.backends.values()))
        if found != self._capabilities:
            self._capabilities = found
        self.instructions = _instructions(list(self.backends.values()))

    # What is answered at once.

    def _discover(self, exchange: Exchange) -> Model:
        rules = exchange.engine.rules
        said = self.instructions if rules is None else self.instructions_for(rules, exchange.terms.caller)
        return DiscoverResult(
            supported_versions=sorted(self.revisions),
            capabilities=self._capabilities,
            instructions=UNSET if said is None else said,
            ttl_ms=0,
            cache_scope="private",
        )

    def _lister(self, kind: Kind) -> Instant:
        def listed(exchange: Exchange) -> Forwarded | None:
            signature = signature_of(exchange.terms.capabilities)
            return None if signature and self._unknown(signature, exchange) else self._listed(kind, exchange, signature)

        return listed

    def _lister_that_looks(self, kind: Kind) -> Handler:
        async def listed(exchange: Exchange) -> Forwarded:
            signature = signature_of(exchange.terms.capabilities)
            await self._look(signature, exchange)
            return self._listed(kind, exchange, signature)

        return listed

    def _listed(self, kind: Kind, exchange: Exchange, signature: Signature) -> Forwarded:
        cursor = exchange.params(PaginatedRequestParams).cursor
        revision = exchange.terms.revision
        view = _view(exchange)
        page, following = self.catalogue.page(kind, revision, None if cursor is UNSET else cursor, signature, view)
        if signature:
            for backend in self.backends.values():
                backend.views.shown(signature)
        members: dict[str, Any] = {kind.member: page}
        if following is not None:
            members["nextCursor"] = raw(following)
        if revision.dialect.typed_results:
            members |= {**_KEPT, "resultType": COMPLETE}
        return Forwarded(members)

    # What clients of one signature are shown.

    def _unknown(self, signature: Signature, exchange: Exchange) -> list[ListView]:
        """Lists that are being read for clients of *signature*, and are waited for."""
        account = exchange.slot.account
        wanted = (backend.views.want(signature, account) for backend in self.backends.values())
        return [view for view in wanted if view is not None]

    async def _look(self, signature: Signature, exchange: Exchange) -> bool:
        """Wait until it is known what the backends show to clients of *signature*, but not for long. False if there was
        nothing to wait for."""
        views = self._unknown(signature, exchange)
        with trio.move_on_after(VIEW_WAIT):
            for view in views:
                await view.tried.wait()
        for view in views:
            view.is_late = not view.tried.is_set()
        return bool(views)

    def _signature_in(self, route: Route) -> Signature:
        """The questions that the client of a modern request can answer; none if that cannot be read."""
        try:
            return signature_of(modern_terms(route, self.revisions, ANONYMOUS).capabilities)
        except PeerError:
            return NOTHING

    def end_all_of(self, principals: Set[str]) -> None:
        """Forget the tasks of *principals*, and end the connections that are theirs alone."""
        self.tasks.forget_all_of(principals)
        for backend in self.backends.values():
            backend.end_all_of(principals)

    # What goes to a backend.

    def _forward(self, exchange: Exchange) -> Awaitable[Model | Forwarded]:
        rules = exchange.engine.rules
        if rules is not None and rules.approves and exchange.request.method == "tools/call":
            return self._forward_approved(exchange)
        try:
            return self._forwarding(exchange).run()
        except (InvalidParams, ResourceNotFound):
            signature = signature_of(exchange.terms.capabilities)
            if not signature:
                raise
            return self._look_and_forward(signature, exchange)

    async def _look_and_forward(self, signature: Signature, exchange: Exchange) -> Model | Forwarded:
        await self._look(signature, exchange)
        return await self._forwarding(exchange).run()

    async def _forward_approved(self, exchange: Exchange) -> Model | Forwarded:
        request, signature = exchange.request, signature_of(exchange.terms.capabilities)
        if signature and self._unknown(signature, exchange):
            await self._look(signature, exchange)
        await approved_at(exchange, lambda: self._forwarding(exchange).to.backend.name)
        return await self._forwarding(exchange, request).run()  # not the retry: its answer is not for the backend

    def _forwarding(self, exchange: Exchange, request: Request | None = None) -> Forward:
        request, route, terms = request or exchange.request, exchange.route, exchange.terms
        is_call = request.method == "tools/call"
        to = self._called(route.name or "") if is_call else None
        if to is None or self.backends.get(to.backend.name) is not to.backend:
            signature = signature_of(terms.capabilities) if self.catalogue.tells_apart else NOTHING
            view = _view(exchange)
            if not is_call:
                return Forward(request, terms, route, self._destination(request, route, signature, view), exchange)
            to = self._of_tool(route.name or "", signature, view)
        elif (rules := exchange.engine.rules) is not None:
            name = route.name or ""
            if rules.decide(terms.caller, "tool", to.backend.name, name) is not OPEN:  # mostly it is
                self._check_tool(name, to.backend.name, _view(exchange))
        forwarding = self.tasks.forwarding if to.backend.runs_tasks else Forward
        return forwarding(request, terms, route, to, exchange)

    def _destination(
        self, request: Request, route: Route, signature: Signature, view: CallerView | None
    ) -> ForwardTarget:
        """The route of a request that is no call of a tool. Raises `InvalidParams`, `ResourceNotFound` or
        `InsufficientScope`."""
        match request.method:
            case "prompts/get":
                return self._of_prompt(route.name or "", signature, view)
            case "resources/read":
                backend, uri = self.find_resource(route.uri or "", signature, view)
                renamed = {} if uri == route.uri else {"uri": raw(uri)}
                is_private = view is not None and view.rules.gate("resource", backend.name, uri).is_private
                return ForwardTarget(
                    backend=backend, renamed=renamed, uri=uri, may_repeat=True, may_share=not is_private
                )
        return self._of_completion(request, signature, view)

    def _called(self, shown: str) -> ForwardTarget | None:
        """The way to a tool that was called before, if all clients are shown the same. Each call asks twice."""
        if self._tools_of != self.catalogue.version:
            self._tools.clear()
            self._tools_of = self.catalogue.version
        return self._tools.get(shown)

    def _check_tool(self, shown: str, backend: str, view: CallerView | None) -> None:
        """Raises as `_of_tool` does, for a tool that there is."""
        if view is not None and view.refuses("tool", backend, shown):
            self._check_listed(TOOLS, shown, view)
            raise InvalidParams(f"Unknown tool: {shown[:128]}")

    def _of_tool(self, shown: str, signature: Signature, view: CallerView | None) -> ForwardTarget:
        """Raises `InvalidParams`, `DefinitionChanged`, `InsufficientScope`."""
        try:
            entry = self.catalogue.tool(shown, signature)
        except DefinitionChanged:
            self._check_tool(shown, self.catalogue.withholder(shown, signature), view)
            raise
        if entry is None:
            self._check_listed(TOOLS, shown, view)
            raise InvalidParams(f"Unknown tool: {shown[:128]}")
        self._check_tool(shown, entry.backend, view)
        backend = self.backends[entry.backend]
        to = ForwardTarget(
            backend=backend,
            renamed=_renamed(entry),
            headers=entry.headers,
            find_headers=lambda: self._headers(shown, signature),
            may_repeat=backend.settings.trusted and _is_harmless(entry),
            must_defer=must_defer(entry.definition),
        )
        if not self.catalogue.tells_apart:
            self._tools[shown] = to
        return to

    def _of_prompt(self, shown: str, signature: Signature, view: CallerView | None) -> ForwardTarget:
        entry = self.catalogue.prompt(shown, signature)
        if entry is None or (view is not None and view.refuses("prompt", entry.backend, shown)):
            self._check_listed(PROMPTS, shown, view)
            raise InvalidParams(f"Unknown prompt: {shown[:128]}")
        return ForwardTarget(backend=self.backends[entry.backend], renamed=_renamed(entry), may_repeat=True)

    def _check_listed(self, kind: Kind, shown: str, view: CallerView | None) -> None:
        """Raises `BackendGone` if the name has the prefix of a backend that has not listed what it has, unless the
        caller may not know of that backend."""
        named = {
            name if one.settings.prefix is None else one.settings.prefix: one for name, one in self.backends.items()
        }
        fitting = [prefix for prefix in named if prefix and shown.startswith(prefix + SEPARATOR)]
        backend = named[max(fitting, key=len)] if fitting else None
        if backend is None or backend.listings.has_read(kind):
            return
        if view is None or view.knows_server(backend.name) or not view.hides(GUARDED[kind], backend.name, shown):
            raise backend.gone()

    def _of_completion(self, request: Request, signature: Signature, view: CallerView | None) -> ForwardTarget:
        params, method = request.members, request.method
        ref = _reference(params)
        if "name" in ref:
            entry = self.catalogue.prompt(ref["name"], signature)
            if entry is None or (view is not None and view.refuses("prompt", entry.backend, entry.shown, method)):
                raise InvalidParams(f"Nothing to complete: {ref['name'][:128]}")
            renamed = {} if entry.name == entry.shown else {"ref": raw({**ref, "name": entry.name})}
            return ForwardTarget(backend=self.backends[entry.backend], renamed=renamed, may_repeat=True)
        uri = ref.get("uri", "")
        found = self.catalogue.owner_of_template(uri, signature, _knows(view, method))
        if found is None or (view is not None and view.refuses("resource", *found, method)):
            raise InvalidParams(f"Nothing to complete: {uri[:128]}")
        owner, there = found
        renamed = {} if there == uri else {"ref": raw({**ref, "uri": there})}
        return ForwardTarget(backend=self.backends[owner], renamed=renamed, may_repeat=True)

    def find_resource(
        self, uri: str, signature: Signature = NOTHING, view: CallerView | None = None
    ) -> tuple[Backend, str]:
        """The backend of a resource, and its URI there. Raises `ResourceNotFound`, `InvalidParams`,
        `InsufficientScope`."""
        found = self.catalogue.owner_of(uri, signature, _knows(view))
        if found is None or (view is not None and view.refuses("resource", *found)):
            raise ResourceNotFound(uri)
        name, there = found
        return self.backends[name], there

    def _headers(self, shown: str, signature: Signature) -> HeaderMap:
        try:
            entry = self.catalogue.tool(shown, signature)
        except DefinitionChanged:
            return NO_HEADERS
        return NO_HEADERS if entry is None else entry.headers


def _view(exchange: Exchange) -> CallerView | None:
    """The rules for the caller of a request, if there are any."""
    rules = exchange.engine.rules
    return None if rules is None else CallerView(rules, exchange.terms.caller)


def _knows(view: CallerView | None, method: str | None = None) -> Knows | None:
    """Which URIs of which backends a caller may know of."""
    return None if view is None else lambda backend, uri: not view.hides("resource", backend, uri, method)


def _renamed(entry: MergedEntry) -> Mapping[str, Any]:
    return {} if entry.name == entry.shown else {"name": raw(entry.name)}


def _is_harmless(entry: MergedEntry) -> bool:
    """Whether a tool says that it may be called twice."""
    try:
        said = msgspec.json.decode(entry.definition.get("annotations", b"{}"))
    except msgspec.DecodeError:
        return False
    return isinstance(said, dict) and (said.get("readOnlyHint") is True or said.get("idempotentHint") is True)


def _reference(params: Members) -> dict[str, Any]:
    """The prompt or template to complete. Raises `InvalidParams`."""
    try:
        ref = msgspec.json.decode(params["ref"])
    except (KeyError, msgspec.DecodeError):
        raise InvalidParams("params.ref: is required") from None
    kind = str(ref.get("type")) if isinstance(ref, dict) else ""
    key = {"ref/prompt": "name", "ref/resource": "uri"}.get(kind)
    if key is None or not isinstance(ref.get(key), str):
        raise InvalidParams("params.ref: expected a prompt or a resource")
    return {str(name): value for name, value in ref.items()}


def _union(backends: list[Backend]) -> ServerCapabilities:
    """Capabilities of at least one backend. A backend that was never up may have any."""
    known = [backend.agreed for backend in backends if backend.agreed is not None]
    is_known = len(known) == len(backends) and bool(backends)

    def can(path: str) -> bool:
        return not is_known or any(declares(agreed.capabilities, path) for agreed in known)

    def listed(name: str) -> Any:
        return ListChangedCapability(list_changed=True) if can(name) else UNSET

    # A backend of a revision without a capability for completion may have it all the same.
    completes = can("completions") or not all(agreed.revision.dialect.declares_completions for agreed in known)
    return ServerCapabilities(
        tools=listed("tools"),
        prompts=listed("prompts"),
        resources=ResourcesCapability(list_changed=True, subscribe=can("resources.subscribe"))
        if can("resources")
        else UNSET,
        completions={} if completes else UNSET,
        logging={} if can("logging") else UNSET,
        tasks=_tasks([agreed.capabilities for agreed in known if runs_tasks(agreed.revision, agreed.capabilities)]),
    )


def _tasks(running: list[ServerCapabilities]) -> ServerTasksCapability | UnsetType:
    """Only of backends that are known: a client that asks for a task must get one. Lists of tasks are never shown."""
    if not running:
        return UNSET
    cancel: Any = {} if any(declares(one, "tasks.cancel") for one in running) else UNSET
    return ServerTasksCapability(cancel=cancel, requests=ServerTaskRequests(tools=ToolTaskRequests(call={})))


def _instructions(backends: list[Backend]) -> str | None:
    """The instructions of the backends; of several, each with its name."""
    said = {
        backend.name: backend.agreed.instructions
        for backend in backends
        if backend.agreed is not None and backend.agreed.instructions
    }
    if len(backends) > 1:
        said = {name: f"{name}: {text}\n\n" for name, text in said.items()}
    left, kept = MAX_INSTRUCTIONS, {}
    for rank, name in enumerate(sorted(said, key=lambda name: len(said[name]))):
        # The shortest first: one that says much gets what the others leave, and takes nothing from them.
        kept[name] = said[name][: left // (len(said) - rank)]
        left -= len(kept[name])
    return "".join(kept[name] for name in said).rstrip("\n") or None
