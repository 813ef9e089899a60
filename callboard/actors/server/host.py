"""A hosted server, as all of its peers share it: what it offers, and what lives longer than a connection."""

from collections.abc import Awaitable, Callable, Container, Mapping
from contextvars import Context, copy_context
from copy import copy
from itertools import count
from time import perf_counter
from typing import Any, Final, Protocol

import attrs
import trio
from msgspec import UNSET, Raw

from callboard import tree
from callboard.actors.changes import MAX_FOLLOWED_BYTES, count_of
from callboard.actors.quotas import Quotas
from callboard.actors.rate import RateLimit
from callboard.actors.rules import METHOD_OF, NO_RULES, AccessRules
from callboard.actors.server.approvals import Approvals
from callboard.actors.server.bounds import (
    FOLLOWED_WEIGHT,
    IN_FLIGHT_WEIGHT,
    MAX_BODY_BYTES,
    MAX_KEPT_BYTES,
    MAX_MEMORY,
    MAX_MEMORY_EACH,
    MAX_SESSIONS,
    MAX_SESSIONS_EACH,
    MAX_UNREAD_BYTES,
    SESSION_WEIGHT,
)
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.expiry import TokenExpiry
from callboard.actors.server.extensions import AddedMethod, NotificationListener, check_declared_extension
from callboard.actors.server.observer import Auditor, Observer
from callboard.actors.server.offer import Offer, OwnMethods
from callboard.actors.server.open_session import OpenSession
from callboard.actors.server.parking import PARKED, Parking, taken_up
from callboard.actors.server.progress import ProgressTimer
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.server.request import HARD_CAP, run_request, start_request
from callboard.actors.server.spans import HeadHolder, Tracer
from callboard.actors.server.subscription import Subscription, granted
from callboard.actors.server.task_following import TaskFollowing, wanted_tasks
from callboard.actors.server.tool_search import ToolSearch
from callboard.actors.shares import Shares
from callboard.actors.subscribers import Audience, HostedAudience, Subscribers
from callboard.actors.tape import Tape
from callboard.actors.terms import Terms, is_modern, modern_terms
from callboard.actors.unused_rules import KnownTools, UnusedRules
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.bridge.tasks import ABOUT_TASKS
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import Notification, Request
from callboard.codecs.home import LocalNames, Names
from callboard.codecs.http.head import Head
from callboard.codecs.http.status import refused_as
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import raw
from callboard.codecs.replay_budget import ReplayBudget
from callboard.codecs.revisions import (
    Direction,
    Method,
    Model,
    Revision,
    ServerCapabilities,
    SubscriptionsListenRequestParams,
    declares,
    method_of,
    write,
)
from callboard.codecs.routing import Route, read_route
from callboard.errors import Draining, MethodNotFound, Overloaded, PeerError, RequestFailed
from callboard.supervisor import Supervisor

MAX_IN_FLIGHT: Final = 64
"""Most requests that one peer may have in flight, subscriptions counted too."""

MAX_IN_FLIGHT_IN_ALL: Final = 16_384
"""Most requests of all peers that are in flight, subscriptions counted too."""

MAX_FOLLOWED: Final = 4096
"""Most resources and lists that one subscription, or one legacy session, may follow."""

_LISTEN: Final = frozenset({"subscriptions/listen"})

_BY_ENTRY: Final = frozenset(
    {"tools/call", "prompts/get", "resources/read", "resources/subscribe", "completion/complete"}
)
"""Methods of which the scopes are told together with those of the entry that they are about."""


class PathFinder(Protocol):
    """Finds the host of a path."""

    def find(self, name: str, caller: Caller) -> "Host | None":
        """The host at `/mcp/NAME`; None if there is none, or none that *caller* may know of."""


def _tell_paths(host: "Host", of: "attrs.Attribute[Any]", value: Any) -> Any:
    """What is set at the host holds at its paths, too."""
    for narrow in host.narrow:
        setattr(narrow, of.name, value)
    return value


_OWN: Final[Any] = {"on_setattr": attrs.setters.NO_OP}  # of each path


@attrs.define(eq=False, on_setattr=_tell_paths)
class Host:
    """One offer, the requests that outlive a connection, the parked ones among them, and the subscribers.

    A broker is served at several paths: each has a host of its own offer and audience, which shares all else.
    """

    offer: Offer = attrs.field(**_OWN)
    root: Supervisor
    parking: Parking
    topics: Subscribers = attrs.field(factory=Subscribers)
    audience: Audience = attrs.field(
        default=attrs.Factory(lambda self: HostedAudience(self.topics), takes_self=True), **_OWN
    )
    cap: float = HARD_CAP
    most_in_flight: int = MAX_IN_FLIGHT
    most_followed: int = MAX_FOLLOWED
    memory: Shares = attrs.field(
        factory=lambda: Shares("bytes are in use", MAX_MEMORY, MAX_MEMORY_EACH, each_address=MAX_MEMORY_EACH),
        init=False,
    )
    in_flight: Shares = attrs.field(init=False)
    sessions: Shares = attrs.field(init=False)
    bodies: Shares = attrs.field(init=False)
    unread: Shares = attrs.field(init=False)
    followed: Shares = attrs.field(init=False)
    kept: ReplayBudget = attrs.field(factory=lambda: ReplayBudget(MAX_KEPT_BYTES), init=False)
    meters: Mapping[str, RateLimit] = attrs.field(factory=dict)
    rules: AccessRules | None = None
    """What callers may use. None: everything. Replaced by `callboard.actors.server.new_rules.apply`."""
    unused_rules: UnusedRules = attrs.field(
        default=attrs.Factory(lambda self: UnusedRules(self.own_tools), takes_self=True)
    )
    """Tells of rules that name a tool which there is not."""
    quotas: Quotas | None = None
    approvals: Approvals = attrs.field(factory=Approvals, init=False)
    """Calls that wait for an operator."""
    check_extensions: Callable[[Request, Terms], None] = attrs.field(default=lambda _, __: None)
    """Raises what is said to a modern request that belongs to an extension which is not offered."""
    hear: NotificationListener = attrs.field(default=lambda _, __, ___: False)
    """Takes notifications of clients that the specification does not have, and that their callers may send."""
    elsewhere: Callable[[Exchange], Handler | None] = attrs.field(default=lambda _: None)
    """What serves a retry, or a request about a task, that came on a session and belongs to another worker."""
    task_names: Names = attrs.field(factory=LocalNames)
    """Makes the ids of tasks."""
    reports: ProgressTimer = attrs.field(factory=ProgressTimer)
    search: ToolSearch | None = None
    """Shows a search in the place of the tools."""
    expiry: TokenExpiry = attrs.field(init=False)
    context: Context = attrs.field(factory=copy_context, init=False)
    observer: Observer | None = attrs.field(default=None, init=False)
    tracer: Tracer | None = attrs.field(default=None, init=False)
    passes: tuple[bytes, ...] = attrs.field(default=(), init=False)
    """Headers of HTTP requests that some backend gets: names in lower case."""
    """Only beside an observer, which ends the spans."""
    auditor: Auditor | None = attrs.field(default=None, init=False)
    """Only beside an observer, which is its own."""
    on_session: Callable[[OpenSession], None] | None = attrs.field(default=None, init=False)
    """Told of each session when it begins."""
    tape: Tape | None = attrs.field(default=None, init=False)
    """Takes what is said to the server and what it says, if that is recorded."""
    barred: Callable[[], RequestFailed] | None = attrs.field(default=None, init=False)
    """Why no new work is taken."""
    clients: dict[str, OpenSession] = attrs.field(factory=dict, init=False)
    """The sessions that are open, by their names in the tree."""
    is_draining: bool = attrs.field(default=False, init=False)
    _requests: Supervisor | None = attrs.field(default=None, init=False)
    numbers: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _methods: dict[tuple[Revision, str], tuple[ServerCapabilities, Method]] = attrs.field(
        factory=dict, init=False, **_OWN
    )
    _infos: dict[Revision, Raw | None] = attrs.field(factory=dict, init=False)
    path: str = attrs.field(default="", init=False, **_OWN)
    """The name behind `/mcp/` that it is served at; none for all that there is."""
    paths: "PathFinder | None" = attrs.field(default=None, init=False, **_OWN)
    """Finds the hosts of other paths, if there are any."""
    narrow: "tuple[Host, ...]" = attrs.field(default=(), init=False, **_OWN)
    """The hosts of paths that were asked for."""

    def __attrs_post_init__(self) -> None:
        memory, self.expiry = self.memory, TokenExpiry(self.root)
        self.in_flight = Shares("requests are in flight", MAX_IN_FLIGHT_IN_ALL, MAX_IN_FLIGHT, IN_FLIGHT_WEIGHT, memory)
        self.sessions = Shares("sessions", MAX_SESSIONS, MAX_SESSIONS_EACH, SESSION_WEIGHT, memory)
        self.bodies = Shares("bytes are being sent", MAX_BODY_BYTES, MAX_BODY_BYTES // 2, 1, memory)
        self.unread = Shares("bytes wait to be read", MAX_UNREAD_BYTES, MAX_UNREAD_BYTES // 2, 1, memory)
        self.followed = Shares(
            "subscriptions to resources", MAX_FOLLOWED_BYTES, MAX_FOLLOWED_BYTES // 4, FOLLOWED_WEIGHT, memory
        )
        self.parking.count_in(memory)
        self.audience.fan_out.supervisor = self.root

    def at(self, path: str, offer: Offer, audience: Audience) -> "Host":
        """The host of a path: with an offer and an audience of its own, and all else in common."""
        narrow = copy(self)
        narrow.become(path, offer, audience)
        self.narrow = (*self.narrow, narrow)
        return narrow

    def become(self, path: str, offer: Offer, audience: Audience) -> None:
        """Be the host of a path: for a copy that is new."""
        self.narrow, self.paths, self.path = (), None, path
        self.offer, self.audience, self._methods = offer, audience, {}

    def observe(self, slot: ReplySlot, request: Request, route: Route, head: Head | None = None) -> None:
        """Have the observer, if there is one, told how the request ends, which begins now; and trace it. *head* is that
        of its own HTTP request, if it came by one."""
        # As `slot.watch` has it, without another call for each request.
        slot.observer, slot.target, slot.behind = self.observer, route.name, 0.0
        slot.began = perf_counter()
        if self.tracer is not None:
            if head is None and isinstance(slot.outlet, HeadHolder):
                head = slot.outlet.take_head()
            transport = "" if slot.admission is None else slot.admission.transport
            slot.trace = self.tracer.begin(request, route, slot.terms, transport, head)
        if self.auditor is not None:
            slot.observer = self.auditor.begin(slot, request, route)

    def count_refusal(self, error: PeerError | RequestFailed) -> None:
        """Have the observer told of what was refused before it was a request."""
        if self.observer is not None:
            self.observer.refuse(refused_as(error))

    def server_info(self, revision: Revision) -> Raw | None:
        """The server's name, as the revision writes it into a result; None where a result does not say."""
        if revision not in self._infos:
            self._infos[revision] = raw(write(revision, self.offer.info)) if revision.dialect.names_server else None
        return self._infos[revision]

    def method(self, revision: Revision, name: str, *, besides: Container[str] = ()) -> Method:
        """The method, if a client may call it in *revision* and this server (or the session *besides*) has it.

        Raises `MethodNotFound`, and `Draining` for everything once the end has begun.
        """
        self.check_admits()
        declared = self.offer.capabilities(revision)
        known = self._methods.get((revision, name))
        if known is not None and known[0] is declared:
            return known[1]
        added = self.added_to(revision, name)
        row = method_of(revision, name, Direction.CLIENT_TO_SERVER) if added is None else added.row
        needed = row.needed(revision, Direction.CLIENT_TO_SERVER)
        if needed is not None and not declares(declared, needed.path):
            raise MethodNotFound(f"{name} is not supported by this server")
        offer = self.offer
        if added is not None and name not in offer.added:
            return row  # any name that a client thinks of: there is nothing to be remembered
        if added is not None or name in offer.handlers or name in offer.instant or name in _LISTEN:
            self._methods[revision, name] = declared, row
        elif name not in besides:
            raise MethodNotFound(f"{name} is not supported by this server")
        return row

    def added_to(self, revision: Revision, name: str) -> AddedMethod | None:
        """The method of an extension, in the revisions that have it."""
        added = self.offer.added.get(name)
        return added if added is not None and revision in added.row.spoken[Direction.CLIENT_TO_SERVER] else None

    def method_for(self, request: Request, terms: Terms, *, besides: Container[str] = ()) -> Method:
        """As `method`, of a request. Raises also what `check_extensions` does."""
        if terms.revision.dialect.has_extensions:
            self.check_extensions(request, terms)
        row = self.method(terms.revision, request.method, besides=besides)
        if row.extension is not None:
            check_declared_extension(terms, row.extension)
        if self.rules is not None and self.rules.guards_methods:
            self._check_method(self.rules, request.method, terms.caller)
        return row

    def _check_method(self, rules: AccessRules, name: str, caller: Caller) -> None:
        decision = rules.decide_method(caller, name)
        if decision.is_hidden:
            raise MethodNotFound(f"{name} is not supported by this server")
        if name not in _BY_ENTRY:
            decision.check()

    def take_notification(
        self, notification: Notification, terms: Terms | None, caller: Caller, session: SessionKey
    ) -> bool:
        """Have a notification of a client heard that the specification does not have. False if it is not known, or
        *caller* may not send it. *terms* are those of its session, if it has any; else it says its own, or none."""
        rules, method = self.rules, notification.method
        if rules is not None and rules.guards_methods:
            decision = rules.decide_method(caller, method)
            if decision.is_hidden or decision.needs:
                return False
        if terms is None:
            try:
                route = read_route(notification)
                terms = modern_terms(route, self.offer.revisions, caller) if is_modern(route) else None
            except PeerError:
                return False
        return self.hear(notification, terms, session)

    def header_map(self, caller: Caller, method: str, route: Route) -> HeaderMap:
        """The arguments of a request that are mirrored into HTTP headers: none if *caller* may not know of the tool."""
        rules, offer = self.rules, self.offer
        found = offer.header_map(method, route)
        if rules is None or not found.paths or method != "tools/call":
            return found
        name = route.name or ""
        owner, known = offer.owner_of(method, name), offer.rule_name(method, name)
        is_hidden = owner is not None and rules.decide(caller, "tool", owner or offer.info.name, known).is_hidden
        return NO_HEADERS if is_hidden else found

    def begin_drain(self) -> None:
        """Take no new work from now on. A retry of what is parked is refused, too: so nothing stays parked."""
        self.is_draining = True
        self.barred = Draining
        self.parking.close()

    def check_admits(self) -> None:
        """Raises `Draining`, or why else no new work is taken."""
        if self.barred is not None:
            raise self.barred()

    def session_refusal(self, caller: Caller, account: str) -> RequestFailed | None:
        """Why *caller* may open no session now, which counts as a request; None if it may."""
        if self.is_draining:
            return Draining()
        if self.quotas is not None:
            try:
                self.quotas.count(caller, account, "initialize", None, trio.current_time())
            except Overloaded as error:
                return error
        return None

    def own_tools(self) -> KnownTools:
        """What a server without others behind it offers: all of it is known."""
        offered, own = self.offer.offered(), self.offer.info.name
        return KnownTools([(owner or own, name) for method, name, owner in offered if method == METHOD_OF["tool"]])

    def bar(self, why: Callable[[], RequestFailed] | None) -> None:
        """Take no new work for now, and say *why*; None: take it again, unless the end has begun."""
        if not self.is_draining:
            self.barred = why

    def check_rate(self, method: str, principal: str) -> None:
        """Raises `Overloaded` if *principal* does this too often."""
        meters = self.meters.get(method)
        if meters is not None and not meters.allow(principal, trio.current_time()):
            raise Overloaded(f"{method}: more than {meters.rate.count} in {meters.rate.per:g} s")

    def check_in_flight(self, count: int) -> None:
        """Raises `Overloaded` if one peer may not have another request beside these."""
        if count >= self.most_in_flight:
            raise Overloaded("too many requests in flight")

    @property
    def requests(self) -> Supervisor:
        """Under which modern requests are: they may outlive their connections."""
        if self._requests is None:
            self._requests = self.root.supervisor_of(tree.REQUESTS)
        return self._requests

    async def serve(self, exchange: Exchange, method: Method, own: OwnMethods | None = None) -> None:
        """Answer a request, or start what will; a session has methods of its *own*.

        Raises `PeerError` and `RequestFailed`: then it has not begun.
        """
        name, slot, handler = exchange.request.method, exchange.slot, None
        if self.quotas is not None:
            now, tool = trio.current_time(), exchange.route.name
            if tool is not None and self.quotas.counts_tools:
                tool = self.offer.rule_name(name, tool, exchange)
            self.quotas.count(slot.terms.caller, slot.account, name, tool, now)
        if exchange.route.request_state is not None and slot.terms.revision in method.may_ask:
            if await self._resume(exchange) is not exchange:
                return
        else:
            result: Model | Forwarded | None = None if own is None else own.own_answer(exchange)
            if self.search is not None:
                result, handler = result or self.search.answer(exchange), self.search.handler(self, exchange)
            instant = self.offer.instant.get(name)
            if result is None and instant is not None:
                result = instant(exchange)
            if result is not None:
                await slot.answer(result)
                return
            if own is not None:
                handler = own.own_handler(name) or handler
            if slot.admission is not None:
                slot.admission.check(slot)
        if name in _LISTEN:
            self._listen(exchange)
            return
        if handler is None:
            offer = self.offer
            handler = None if name in offer.added else offer.handlers.get(name)
        if handler is None:  # also one of an extension that crosses a broker, which is in neither
            handler = self._added_handler(slot.terms.revision, name)
        if (rest := self.begin_serving(handler, exchange)) is not None:
            await rest

    def _added_handler(self, revision: Revision, name: str) -> Handler:
        """That of an extension, in the revisions that have it."""
        added = self.added_to(revision, name)
        return self.offer.handlers[name] if added is None else added.handler

    def handler_elsewhere(self, exchange: Exchange, method: Method) -> Handler | None:
        """What serves a retry, or a request about a task, that belongs to another worker, on a connection that others
        share."""
        is_retry = exchange.route.request_state is not None and exchange.terms.revision in method.may_ask
        return self.elsewhere(exchange) if is_retry or exchange.request.method in ABOUT_TASKS else None

    def begin_serving(self, handler: Handler, exchange: Exchange) -> Awaitable[None] | None:
        """Have *handler* answer a request that was admitted. What is returned must be awaited, if anything is."""
        if exchange.carrier is not None:
            return run_request(exchange, handler)
        start_request(exchange, handler)
        return None

    async def _resume(self, exchange: Exchange) -> Exchange:
        """Go on with what the state of a retry leads to: the exchange that is parked, or this one, which gets back what
        an earlier run gave the client to keep.

        Raises as `Parking.open` and `Parking.retry` do.
        """
        request, route, slot = exchange.request, exchange.route, exchange.slot
        if slot.admission is not None:
            slot.admission.check(slot)
        slot.admit()  # opening the state may take a thread
        state = await self.parking.open(request, route.request_state or "", slot)
        if self.rules is not None:  # they may have changed while it was parked
            self.offer.guard(exchange)
        if state.payload.startswith(PARKED):
            parked = await self.parking.retry(request, route, state, slot)
            if slot.is_open:
                slot.follow(parked)
            return parked
        exchange.carried = taken_up(state.payload, slot)
        exchange.rounds.number = state.round
        return exchange

    def _listen(self, exchange: Exchange) -> None:
        subscription = self._subscription(exchange)
        exchange.kill = exchange.supervisor.spawn(subscription, name=f"r-{next(self.numbers)}").kill
        exchange.slot.admit()
        exchange.slot.follow(exchange)

    def may_follow(self, caller: Caller, uri: str) -> bool:
        """Whether *caller* may hear of a resource, or there is none that is different from an unknown one. Raises
        `InsufficientScope`."""
        if self.rules is None and not self.audience.follows_unknown:
            return True
        decision = self.offer.decide_resource(self.rules or NO_RULES, caller, uri, "resources/subscribe")
        decision.check()
        return self.audience.follows_unknown or not decision.is_hidden

    def hides_resource(self, caller: Caller, uri: str) -> bool:
        """Whether *caller* may not know of a resource that has changed."""
        rules = self.rules
        if rules is None or not rules.guards_resources:
            return False
        return self.offer.decide_resource(rules, caller, uri, METHOD_OF["resource"]).is_hidden

    def check_followed(self, count: int) -> None:
        """Raises `Overloaded` if one subscriber may not follow so many resources and lists."""
        if count > self.most_followed:
            raise Overloaded(f"more than {self.most_followed} subscriptions")

    def _subscription(self, exchange: Exchange) -> Subscription:
        revision = exchange.terms.revision
        params = exchange.params(SubscriptionsListenRequestParams)
        tasks = wanted_tasks(exchange, params.notifications)
        self.check_followed(count_of(params.notifications) + len(tasks))
        declared = self.offer.capabilities(revision)
        lists = {name: declares(declared, f"{name}.list_changed") for name in ("tools", "prompts", "resources")}
        allowed = granted(params.notifications, lists=lists, resources=declares(declared, "resources.subscribe"))
        if allowed.resource_subscriptions is not UNSET:
            caller = exchange.terms.caller
            uris = tuple(uri for uri in allowed.resource_subscriptions if self.may_follow(caller, uri))
            allowed = attrs.evolve(allowed, resource_subscriptions=uris or UNSET)
        store = self.offer.task_store
        following = None if store is None or not tasks else TaskFollowing(store, tasks)
        return Subscription(exchange, self.audience, allowed, self.followed, self.hides_resource, following)
