"""All backends as one server: what the broker's host offers to its clients."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import attrs
import trio
from msgspec import UNSET

from callboard.actors.broker.approved import approved_at
from callboard.actors.broker.backend import Backend, OnCustom
from callboard.actors.broker.capabilities import capabilities_of, instructions_of, with_tasks
from callboard.actors.broker.catalogue import Catalogue
from callboard.actors.broker.custom import CustomMethods
from callboard.actors.broker.forward import Forward
from callboard.actors.broker.listing import Listing
from callboard.actors.broker.pinned_read import forward
from callboard.actors.broker.policy import ServerChoice
from callboard.actors.broker.routes import BrokerRoutes, knows_of
from callboard.actors.broker.skills import BrokeredSkills
from callboard.actors.broker.tasks import BrokeredTasks, sees_through
from callboard.actors.broker.views import VIEW_WAIT, ListView
from callboard.actors.changes import ListName
from callboard.actors.frames import Outcome
from callboard.actors.rules import HIDDEN, OPEN, AccessRules, CallerView, Decision, Gate
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod
from callboard.actors.server.offer import Instant
from callboard.actors.server.task_store import TaskStore
from callboard.actors.terms import Terms, modern_terms
from callboard.codecs.bridge.askable import NOTHING, Signature
from callboard.codecs.bridge.definitions import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind
from callboard.codecs.bridge.results import COMPLETE, Forwarded
from callboard.codecs.bridge.transparent import Transparent
from callboard.codecs.caller import ANONYMOUS, Caller
from callboard.codecs.envelope import Notification, Request
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import Members, raw
from callboard.codecs.revisions import (
    ALL,
    DiscoverResult,
    Implementation,
    Model,
    PaginatedRequestParams,
    Revision,
    ServerCapabilities,
)
from callboard.codecs.routing import Route
from callboard.errors import CallboardError, InvalidParams, PeerError, RequestFailed, ResourceNotFound

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


class BrokerExtensions(Protocol):
    """Extensions that the broker itself has: `OwnExtensions`."""

    methods: Mapping[str, AddedMethod]

    def declared(self, revision: Revision, capabilities: ServerCapabilities) -> ServerCapabilities: ...
    def hear(self, notification: Notification, terms: Terms | None) -> bool: ...


@attrs.define(eq=False)
class BrokerOffer:
    """The offer of a broker. Lists come from the catalogue; only the first list of a client that can be asked may wait,
    and not for long. Everything else goes to a backend."""

    info: Implementation
    catalogue: Catalogue
    revisions: frozenset[Revision] = ALL
    on_lists: OnLists = attrs.field(default=lambda *_: None)
    transparent: Transparent = attrs.field(factory=Transparent)
    routes: BrokerRoutes = attrs.field(
        default=attrs.Factory(lambda self: BrokerRoutes(self.catalogue), takes_self=True), init=False
    )
    tasks: BrokeredTasks = attrs.field(factory=BrokeredTasks)
    choice: ServerChoice | None = None
    own: BrokerExtensions | None = attrs.field(default=None, init=False)
    """They come before what backends have."""
    narrowed: "dict[str, BrokerOffer]" = attrs.field(factory=dict, init=False)
    """Offers of some of the servers, by the paths that they are at. They follow this one."""
    instructions: str | None = attrs.field(default=None, init=False)
    instant: Mapping[str, Instant] = attrs.field(init=False)
    handlers: Mapping[str, Handler] = attrs.field(init=False)
    added: CustomMethods = attrs.field(init=False)
    on_custom: OnCustom = attrs.field(default=lambda *_: None, init=False)
    """Told of notifications of backends that the specification does not have."""
    _capabilities: ServerCapabilities = attrs.field(init=False)
    _modern: ServerCapabilities = attrs.field(init=False)
    _around: "Around | None" = attrs.field(default=None, init=False)
    _skills: Mapping[str, AddedMethod] = attrs.field(init=False)
    _declared: dict[Revision, tuple[ServerCapabilities, ServerCapabilities]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.added = CustomMethods(self.routes)
        self._skills = dict(BrokeredSkills(self.routes, self.catalogue).methods())
        self._capabilities = self._modern = capabilities_of([], self.transparent)
        self.intercept(None)

    def intercept(self, around: "Around | None") -> None:
        """Have all requests and lists go through what *around* puts around their handlers. None: through nothing."""
        self._around = around
        self.instant = {"server/discover": self._discover}
        self.handlers = {**dict.fromkeys(_FORWARDED, self._forward), **self.tasks.handlers()}
        listers = {kind.method: self._lister(kind) for kind in KINDS}
        waiting = {kind.method: self._lister_that_looks(kind) for kind in KINDS}
        if around is None:
            self.instant = {**self.instant, **listers}
            self.handlers = {**self.handlers, **waiting}
        else:
            lists = {name: _either(instant, waiting[name]) for name, instant in listers.items()}
            layered = {name: around(self, handler) for name, handler in {**self.handlers, **lists}.items()}
            self.handlers = {**layered, "tools/call": self._call_through(layered["tools/call"])}
        self._put_methods()
        for one in self.narrowed.values():
            one.intercept(around)

    @property
    def backends(self) -> dict[str, Backend]:
        """The backends by name, in the order of the configuration."""
        return self.routes.backends

    @backends.setter
    def backends(self, those: dict[str, Backend]) -> None:
        self.routes.backends = those

    def find_resource(
        self, uri: str, signature: Signature = NOTHING, view: CallerView | None = None
    ) -> tuple[Backend, str]:
        """As `BrokerRoutes.find_resource`."""
        return self.routes.find_resource(uri, signature, view)

    # What the host asks.

    @property
    def task_store(self) -> TaskStore:
        return self.tasks.store

    def capabilities(self, revision: Revision) -> ServerCapabilities:
        found = self._modern if revision.dialect.has_extensions else self._capabilities
        if self.own is None:
            return found
        known = self._declared.get(revision)
        if known is None or known[0] is not found:
            known = self._declared[revision] = found, self.own.declared(revision, found)
        return known[1]  # the same object until that changes

    def header_map(self, method: str, route: Route) -> HeaderMap:
        if method != "tools/call":
            return NO_HEADERS
        if (known := self.routes.called(route.name or "")) is not None:
            return known.front_headers
        return self.routes.headers(
            route.name or "", self._signature_in(route) if self.catalogue.tells_apart else NOTHING
        )

    def owner_of(self, method: str, name: str) -> str | None:
        found = self.routes.tool(name) if method == "tools/call" else self.catalogue.shown(PROMPTS).get(name)
        return None if found is None else found.backend

    def rule_name(self, method: str, name: str, exchange: Exchange | None = None) -> str:
        if method != "tools/call":
            entry = self.catalogue.shown(PROMPTS).get(name)
        elif exchange is None:
            entry = self.routes.tool(name)
        else:
            try:
                return self._forwarding(exchange).to.guarded
            except CallboardError:  # it is answered so when its turn comes
                return name
        return name if entry is None else entry.guarded

    def offered(self) -> Iterator[tuple[str, str, str]]:
        for kind, method in ((TOOLS, "tools/call"), (PROMPTS, "prompts/get")):
            for shown, entry in self.catalogue.shown(kind).items():
                yield method, shown, entry.backend

    # What rules say.

    def guard(self, exchange: Exchange) -> None:
        request, route, terms, view = exchange.request, exchange.route, exchange.terms, _view(exchange)
        signature = self.transparent.signature_of(terms.capabilities) if self.catalogue.tells_apart else NOTHING
        if request.method == "tools/call":
            self.routes.of_tool(route.name or "", signature, view)
        elif request.method in _FORWARDED:
            self.routes.destination(request, route, signature, view)

    def decide_resource(self, rules: AccessRules, caller: Caller, uri: str, method: str) -> Decision:
        view = CallerView(rules, caller)
        try:
            found = self.catalogue.owner_of(uri, NOTHING, knows_of(view, method))
        except InvalidParams:
            return OPEN  # several backends have it, and the caller may know of them
        return HIDDEN if found is None else rules.decide(caller, "resource", *found, method=method)

    def gates(self, rules: AccessRules) -> Mapping[ListName, Sequence[Gate]]:
        found = {kind.member: self.catalogue.gates(kind, rules) for kind in KINDS}
        resources = (*found[RESOURCES.member], *found[TEMPLATES.member])
        return {"tools": found[TOOLS.member], "prompts": found[PROMPTS.member], "resources": resources}

    def instructions_for(self, rules: AccessRules, caller: Caller) -> str | None:
        known = [backend for name, backend in self.backends.items() if rules.sees_server(caller, name)]
        return self.instructions if len(known) == len(self.backends) else instructions_of(known)

    # What changes it.

    def put(self, backend: str, listing: Listing, said: Set[str] = frozenset()) -> None:
        """A backend has said what it offers. Clients are told of the lists that are others now, and of those *said*."""
        views = self.backends[backend].views
        apart = {one: those for one, those in self.catalogue.apart(backend).items() if views.knows(one)}
        changed = self.catalogue.put(backend, listing)
        self.look_around()
        self.tell_of([*changed, *said], apart=apart)
        for one in self.narrowed.values():
            if said and backend in one.backends:
                one.tell_of(said)

    def put_for(self, backend: str, signature: Signature, listing: Listing, tells: bool) -> None:
        """A backend has said what it offers to clients of *signature*. If it *tells*, they hear of what is new."""
        before = self.catalogue.version
        changed = self.catalogue.put_for(signature, backend, listing)
        if tells:
            self.tell_of(changed, signature)
        if self.catalogue.version != before:
            for one in self.narrowed.values():
                if backend in one.backends:
                    one.follow(self)

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
        self.routes.forget()
        backends = list(self.backends.values())
        found = capabilities_of(backends, self.transparent)
        modern = with_tasks(found) if any(backend.may_defer for backend in backends) else found
        if found != self._capabilities or modern != self._modern:
            self._capabilities, self._modern = found, modern
            self._put_methods()
        self.catalogue.let_defer(backend.name for backend in backends if backend.has_task_extension)
        self.instructions = instructions_of(list(self.backends.values()))
        self._lead()

    def _put_methods(self) -> None:
        tasks = {} if self._modern is self._capabilities else self.tasks.added()
        methods = {**self._skills, **({} if self.own is None else self.own.methods)}
        self.added.handler, around = self.added.forward, self._around
        if around is not None:  # the results of tasks have gone through it
            self.added.handler = around(self, self.added.forward)
            methods = {name: attrs.evolve(one, handler=around(self, one.handler)) for name, one in methods.items()}
        self.added.clear()
        self.added.update({**methods, **tasks})

    def adopt(self, own: BrokerExtensions | None) -> None:
        """Have extensions of the broker's own."""
        self.own = own
        self._put_methods()

    def take_in(self, backend: Backend) -> None:
        """A backend is about to run, in the place of another one of its name if there was one."""
        self.backends[backend.name] = backend
        for one in self.narrowed.values():
            if backend.name in one.backends:
                one.backends[backend.name] = backend

    def review(self) -> None:
        """Apply changed approvals."""
        self.tell_of(self.catalogue.review())
        self._lead()

    # Offers of some of the servers.

    def narrow(self, path: str, offer: "BrokerOffer") -> None:
        """Have *offer* follow this one, at a path of its own."""
        self.narrowed[path] = offer
        offer.intercept(self._around)
        offer.follow(self)

    def _lead(self) -> None:
        for one in self.narrowed.values():
            one.follow(self)

    def follow(self, main: "BrokerOffer") -> None:
        """Offer what *main* does, of the servers that were chosen. Clients are told of lists that are others now."""
        choice = self.choice or ServerChoice(())
        self.backends = {name: main.backends[name] for name in choice.servers if name in main.backends}
        changed, each = self.catalogue.follow(main.catalogue, choice)
        self.look_around()
        names = {_LISTS[member] for member in changed}
        unmoved = {one: names - {_LISTS[member] for member in those} for one, those in each.items()}
        self.on_lists(names, None, unmoved)
        for signature, those in each.items():
            self.tell_of(those - changed, signature)

    # What is answered at once.

    def _discover(self, exchange: Exchange) -> Model:
        rules = exchange.engine.rules
        said = self.instructions if rules is None else self.instructions_for(rules, exchange.terms.caller)
        return DiscoverResult(
            supported_versions=sorted(self.revisions),
            capabilities=self.capabilities(exchange.terms.revision),
            instructions=UNSET if said is None else said,
            ttl_ms=0,
            cache_scope="private",
        )

    def _lister(self, kind: Kind) -> Instant:
        def listed(exchange: Exchange) -> Forwarded | None:
            signature = self.transparent.signature_of(exchange.terms.capabilities)
            return None if signature and self._unknown(signature, exchange) else self._listed(kind, exchange, signature)

        return listed

    def _lister_that_looks(self, kind: Kind) -> Handler:
        async def listed(exchange: Exchange) -> Forwarded:
            signature = self.transparent.signature_of(exchange.terms.capabilities)
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
            return self.transparent.signature_of(modern_terms(route, self.revisions, ANONYMOUS).capabilities)
        except PeerError:
            return NOTHING

    def end_all_of(self, principals: Set[str]) -> None:
        """Forget the tasks of *principals*, and end the connections that are theirs alone."""
        self.tasks.forget_all_of(principals)
        for backend in self.backends.values():
            backend.end_all_of(principals)

    # What goes to a backend.

    def _call_through(self, layered: Handler) -> Handler:
        """A call, with interceptors around it, or inside of it if it may become a task of the broker's own."""

        def serve(exchange: Exchange) -> Awaitable[Outcome]:
            try:
                is_inside = sees_through(self._forwarding(exchange))
            except (PeerError, RequestFailed):
                is_inside = False  # it is told on the way
            return self._forward(exchange) if is_inside else layered(exchange)

        return serve

    def _forward(self, exchange: Exchange) -> Awaitable[Model | Forwarded]:
        rules = exchange.engine.rules
        if rules is not None and rules.approves and exchange.request.method == "tools/call":
            return self._forward_approved(exchange)
        try:
            return self._forwarding(exchange).run()
        except (InvalidParams, ResourceNotFound):
            signature = self.transparent.signature_of(exchange.terms.capabilities)
            if not signature:
                raise
            return self._look_and_forward(signature, exchange)

    async def _look_and_forward(self, signature: Signature, exchange: Exchange) -> Model | Forwarded:
        await self._look(signature, exchange)
        return await self._forwarding(exchange).run()

    async def _forward_approved(self, exchange: Exchange) -> Model | Forwarded:
        request, signature = exchange.request, self.transparent.signature_of(exchange.terms.capabilities)
        if signature and self._unknown(signature, exchange):
            await self._look(signature, exchange)
        await approved_at(exchange, lambda: self._tool_of(exchange))
        return await self._forwarding(exchange, request).run()  # not the retry: its answer is not for the backend

    def _tool_of(self, exchange: Exchange) -> tuple[str, str]:
        to = self._forwarding(exchange).to
        return to.backend.name, to.guarded

    def _forwarding(self, exchange: Exchange, request: Request | None = None) -> Forward:
        request, route, terms = request or exchange.request, exchange.route, exchange.terms
        is_call = request.method == "tools/call"
        to = self.routes.called(route.name or "") if is_call else None
        if to is None or self.backends.get(to.backend.name) is not to.backend:
            signature = self.transparent.signature_of(terms.capabilities) if self.catalogue.tells_apart else NOTHING
            view = _view(exchange)
            if not is_call:
                to = self.routes.destination(request, route, signature, view)
                return forward(request, terms, route, to, exchange)
            to = self.routes.of_tool(route.name or "", signature, view)
        elif (rules := exchange.engine.rules) is not None and (
            rules.decide(terms.caller, "tool", to.backend.name, to.guarded) is not OPEN  # mostly it is
        ):
            self.routes.check_tool(route.name or "", to.backend.name, to.guarded, _view(exchange))
        if to.hidden is not None:
            to.hidden.check(request.members)
        if to.backend.may_defer:
            through = None if self._around is None else partial(self._around, self)
            return self.tasks.forwarding(request, terms, route, to, exchange, through)
        return Forward(request, terms, route, to, exchange)


Around: TypeAlias = Callable[[BrokerOffer, Handler], Handler]
"""Puts something around a handler of an offer."""


def _either(instant: Instant, waiting: Handler) -> Handler:
    """What answers at once if it can, and waits otherwise."""

    async def serve(exchange: Exchange) -> Outcome:
        found = instant(exchange)
        return await waiting(exchange) if found is None else found

    return serve


def _view(exchange: Exchange) -> CallerView | None:
    """The rules for the caller of a request, if there are any."""
    rules = exchange.engine.rules
    return None if rules is None else CallerView(rules, exchange.terms.caller)
