"""A configured server that the broker stands in front of: kept alive, listened to, and left alone when it is down."""

import math
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Final, Never, TypeAlias

import attrs
import trio
from msgspec import Raw
from trio.lowlevel import ParkingLot

from callboard import tree
from callboard.actors.broker.cached_lists import KeptLists
from callboard.actors.broker.circuit import Circuit, CircuitState
from callboard.actors.broker.connection import BackendConnection, Reach
from callboard.actors.broker.health import HEALTH, SILENT, BackendHealth, Check
from callboard.actors.broker.keys import BackendKeys, personal_key
from callboard.actors.broker.leases import SHARED, ConnectionKey, Lease
from callboard.actors.broker.listing import BackendLists
from callboard.actors.broker.news import TAKEN_IN, Flush, Listed, StateChanged
from callboard.actors.broker.override_problems import warn_unused
from callboard.actors.broker.personal import CallerReach
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.broker.pool import BackendPool
from callboard.actors.broker.skill_pins import SkillPins
from callboard.actors.broker.sleep import BackendSleep, BackendUse
from callboard.actors.broker.upstream_subscriptions import UpstreamSubscriptions
from callboard.actors.broker.views import ListViews, OnView
from callboard.actors.client.answerer import question_bytes
from callboard.actors.client.conversation import Patience
from callboard.actors.client.negotiate import Agreed
from callboard.actors.fan_out import FanOut
from callboard.actors.server.exchange import Exchange
from callboard.actors.shares import Shares
from callboard.actors.terms import Terms
from callboard.actors.undo import undo_unless_done
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.bridge.tasks import has_task_extension, runs_tasks
from callboard.codecs.bridge.transparent import Transparent
from callboard.codecs.revisions import LATEST, METHODS, Implementation
from callboard.errors import (
    INTERNAL_ERROR,
    BackendGone,
    BackendRefused,
    CallboardError,
    ConnectionLost,
    NotAuthorized,
    Overloaded,
    SessionGone,
    SupervisorClosed,
)
from callboard.supervisor import Actor, Address, Fact, Supervisor, get_logger
from callboard.supervisor.groups import first_leaf

log = get_logger("callboard.broker")

START_WAIT: Final = 5.0
"""Seconds that a request waits for a backend that is about to come up."""

EARS: Final = 1.0
"""Seconds that a backend has to say that its changes are heard, before its lists are read."""

LONG: Final = 10 * 365 * 86_400.0  # no limit of its own: what waits so long is bounded elsewhere

Serves: TypeAlias = Callable[[str], bool]
"""Whether clients find a resource at a backend."""

Withdraw: TypeAlias = Callable[[str, str, Exchange], None]
"""Called with the method and the state of a request that asks, and the exchange that will not answer. Never waits."""

OnCustom: TypeAlias = Callable[["Backend", BackendConnection, str, Mapping[str, Raw]], None]

MAX_NOTICES: Final = 64
"""Notifications of clients that wait for one backend to take them; of one client half of them. More are dropped: a
notification may be lost."""


@attrs.define(eq=False)
class Backend(Actor[Never]):
    """Owns the connections to one server. The shared one is always tried to be kept open: the lists come from it."""

    mailbox = None

    name: str
    settings: BackendSettings
    reach: Reach
    info: Implementation
    group: Supervisor
    """Supervisor of its connections, and of the actors that ask its questions."""
    broker: Address[Listed | StateChanged | Flush]
    on_view: OnView
    serves: Serves
    fan_out: FanOut
    transparent: Transparent = attrs.field(factory=Transparent)
    on_custom: "OnCustom | None" = None
    """Told of notifications that the specification does not have."""
    withdraw: Withdraw | None = None
    """Has another process, which speaks to the server for this one, end what a client was asked in vain for."""
    personal: CallerReach | None = None
    """Opens the connections of callers, where each has its own; the shared one is then for the lists alone."""
    cache: KeptLists | None = None
    """Keeps its lists, so that it need not be started for them."""
    keys: BackendKeys = attrs.field(init=False)
    circuit: Circuit = attrs.field(init=False)
    pool: BackendPool = attrs.field(init=False)
    subscriptions: UpstreamSubscriptions = attrs.field(init=False)
    listings: BackendLists = attrs.field(init=False)
    views: ListViews = attrs.field(init=False)
    sleep: BackendSleep = attrs.field(init=False)
    skills: SkillPins | None = attrs.field(default=None, init=False)  # if they are pinned
    health: BackendHealth = attrs.field(factory=BackendHealth, init=False)
    agreed: Agreed | None = attrs.field(default=None, init=False)
    runs_tasks: bool = attrs.field(default=False, init=False)
    """Whether it takes calls that are to run as tasks (2025-11-25)."""
    has_task_extension: bool = attrs.field(default=False, init=False)
    """Whether it may answer calls by tasks (2026-07-28)."""
    why: str = attrs.field(default="", init=False)
    """Why it is not up."""
    said: tuple[str, ...] = attrs.field(default=(), init=False)
    """The last lines on its standard error before it was lost. For the operator, never for a client."""
    next_try: float | None = attrs.field(default=None, init=False)
    """When it is tried again, on Trio's clock, while it rests."""
    in_flight: Shares = attrs.field(init=False)
    notices: Shares = attrs.field(
        factory=lambda: Shares("notifications wait", MAX_NOTICES, MAX_NOTICES // 2), init=False
    )
    """Notifications of clients that are on their way to it."""
    passes: frozenset[bytes] = attrs.field(init=False)
    patience: Patience = attrs.field(init=False)
    asking_patience: Patience = attrs.field(init=False)
    """Of a request during which the client may be asked: while it thinks, only the request's own time counts, which
    stands still when it is parked."""
    _use: BackendUse = attrs.field(init=False)
    _asked: Shares = attrs.field(factory=question_bytes, init=False)
    _brief: str = attrs.field(default="", init=False)  # the same for clients, without paths
    _checks: int = attrs.field(default=0, init=False)
    _exit_code: int | None = attrs.field(default=None, init=False)
    _primary: BackendConnection | None = attrs.field(default=None, init=False)
    _changed: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _rested: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.keys = BackendKeys(settings.share, self.transparent)
        self.circuit = Circuit(settings.restarts)
        self.sleep = BackendSleep(settings, self.cache)
        self.passes = frozenset(name.encode() for name in settings.pass_headers)
        self.patience = Patience(timeout=settings.timeout, cap=settings.cap)
        self.asking_patience = Patience(timeout=settings.timeout, cap=LONG)
        most = settings.max_in_flight
        self.in_flight = Shares(f"requests are in flight to {self.name}", most, most - most // 4)
        self.pool = BackendPool(
            self.group.supervisor_of(tree.CONNECTIONS),
            self._connect,
            lambda connection: connection is self._primary or self.subscriptions.needs(connection),
            max(settings.max_connections, 1),
            self.sleep.idle_time,
        )
        self.subscriptions = UpstreamSubscriptions(self, self.group.supervisor_of(tree.SUBSCRIPTIONS), self.fan_out)
        self.listings = BackendLists(self.name, settings.timeout, self._listed, settings.override)
        self.views = ListViews(self, self.group.supervisor_of(tree.ANSWERS), self.on_view)
        self._use = BackendUse(self.pool, self.subscriptions, self.views, (self.in_flight, self.notices))

    async def run(self) -> None:
        try:
            async with self.cancel_on_stop() as nursery:
                nursery.start_soon(self.pool.sweep)
                if (agreed := await self.sleep.restore(self.listings)) is not None:
                    self._agree(agreed)
                    self._listed()
                    self._enter(CircuitState.ASLEEP)
                while True:
                    if self.circuit.state is CircuitState.ASLEEP:
                        await self.sleep.wait_needed(self._use)
                        self._enter(CircuitState.WAKING)
                    await self._live()
                    if self.circuit.state is not CircuitState.ASLEEP:
                        await self._rest()
        finally:
            self._enter(CircuitState.ENDED)
            for connection in self.pool:
                connection.retire()

    def facts(self) -> Mapping[str, Fact]:
        shown: dict[str, Fact] = {
            "state": self.circuit.state.value,
            "connections": len(self.pool),
            "in_flight": self.in_flight.total,
            "restarted": self.circuit.restarted,
        }
        if self.agreed is not None:
            shown["revision"] = self.agreed.revision.value
        if self.why and not self.is_available:
            shown["why"] = self.why
        return shown

    # What others ask of it.

    @property
    def is_up(self) -> bool:
        return self._open_primary() is not None

    @property
    def is_available(self) -> bool:
        """Whether it is up, or sleeps and is started by the next request."""
        return self.is_up or self.circuit.rests

    async def wait_up(self) -> BackendConnection:
        """The shared connection. Raises `BackendGone` if there is none, and none is to be expected soon. One that
        sleeps is started, and may take as long for that as for the request."""
        if (primary := self._open_primary()) is not None:
            return primary
        began = trio.current_time()
        with trio.CancelScope() as scope:
            while self.circuit.may_wait or (self.circuit.state is CircuitState.UP and not self.is_up):
                scope.deadline = began + (self.settings.timeout if self.circuit.rests else START_WAIT)
                self.sleep.wake()
                await self._changed.park()
        if (primary := self._open_primary()) is None:
            raise self.gone(f"not up after {self.settings.timeout:g} s" if self.circuit.rests else "")
        return primary

    @property
    def shared(self) -> BackendConnection | None:
        """The connection that all may use, if there is one."""
        return self._primary

    def _open_primary(self) -> BackendConnection | None:
        primary = self._primary
        is_open = self.circuit.state is CircuitState.UP and primary is not None and not primary.is_lost
        return primary if is_open else None

    async def wait_settled(self) -> None:
        """Wait until it is up, or has failed once."""
        while self.circuit.state is CircuitState.STARTING:
            await self._changed.park()

    def take_shared(self, terms: Terms, exchange: Exchange | None, use: Lease) -> BackendConnection | None:
        """The shared connection, begun on it, if the request may use it and it is open. Mostly that is so."""
        primary, agreed = self._primary, self.agreed
        if primary is None or agreed is None or primary.is_lost or self.circuit.state is not CircuitState.UP:
            return None
        if self.personal is not None:
            return None
        if agreed.revision.dialect.terms_per_request or self.keys.of_request(terms, exchange) is SHARED:
            primary.begin(use)
            return primary
        return None

    async def take(self, terms: Terms, exchange: Exchange | None, method: str, use: Lease) -> BackendConnection:
        """A connection for a request, begun on it. Raises `BackendGone`, `Overloaded`."""
        primary = await self.wait_up()
        is_modern = primary.revision.dialect.terms_per_request
        key = SHARED if is_modern else self.keys.of_request(terms, exchange)
        if self.personal is not None:
            try:
                key = personal_key(terms.caller, self.personal, key)
            except NotAuthorized as error:
                raise self.not_authorized(error) from None
        if key is SHARED:
            primary.begin(use)
            return primary
        use.may_ask = key.can_be_asked and method in METHODS and LATEST in METHODS[method].may_ask
        alone = use.may_ask and not primary.is_http and (exchange is None or key.who is not exchange.session)
        try:
            account = terms.principal if exchange is None else exchange.slot.account
            connection = await self.pool.take(key, use, account, alone=alone)
        except Overloaded:
            raise
        except NotAuthorized as error:
            raise self.not_authorized(error) from None
        except CallboardError as error:
            raise self.gone(error.brief or str(error)) from None
        if self.subscriptions.misses(connection):
            await self._have_it_tell(connection, use)
        return connection

    async def _have_it_tell(self, connection: BackendConnection, use: Lease) -> None:
        with undo_unless_done(lambda: self.give_back(connection, use)):
            await self.subscriptions.join(connection)

    def not_authorized(self, error: NotAuthorized) -> BackendRefused:
        """The error for a request of which the server, or its authorization server, wants other credentials."""
        about = {"origin": "broker", "reason": "upstream auth", "backend": self.name}
        return BackendRefused(INTERNAL_ERROR, f"{self.name}: {error}"[:500], about)

    def give_back(self, connection: BackendConnection, use: Lease) -> None:
        self.pool.give_back(connection, use)

    @property
    def reason(self) -> str:
        """Why it is not up, as clients may know it."""
        return self._brief or self.why or "not connected"

    def gone(self, why: str = "") -> BackendGone:
        """The error for a request. The server's own words stay in the log."""
        text = f"{self.name} is {self.circuit.state.value}: {why or self.reason}"
        return BackendGone(text[:500], backend=self.name, exit_code=self._exit_code)

    def doubt(self, connection: BackendConnection, error: Exception) -> None:
        """A connection broke. A session that was ended is over; else the server is asked if it is there."""
        if isinstance(error, SessionGone):
            connection.retire()
        elif connection.is_http:
            self.health.doubt()

    def late(self, connection: BackendConnection) -> None:
        """A request was not answered in time. After some in a row the server is asked whether it is there; one on HTTP
        is watched in any case."""
        connection.timeouts += 1
        is_settled = connection.is_http or connection.is_checked or connection.is_over
        if connection.timeouts >= SILENT and not is_settled:
            connection.is_checked = True
            self._checks += 1
            with suppress(SupervisorClosed):  # it ends in any case
                self.group.supervisor_of(tree.ANSWERS).spawn(
                    Check(connection, min(HEALTH, self.settings.timeout)), name=f"check-{self._checks}"
                )

    def restart(self) -> None:
        """End all connections, and open the shared one again."""
        for connection in list(self.pool):
            connection.fail(ConnectionLost("restarted by the operator"))
        self.try_now()

    def end_all_of(self, principals: Set[str]) -> int:
        """End the connections that are only for *principals*. Returns how many there were."""
        found = [connection for connection in self.pool if connection.key.whose in principals]
        for connection in found:
            connection.fail(ConnectionLost("its user was revoked"))
        return len(found)

    def try_now(self) -> None:
        """If it rests or sleeps, end that."""
        self._rested.set()
        self.sleep.wake()

    def refresh(self) -> None:
        """Read all lists again, soon. One that sleeps is started for that."""
        self.listings.refresh()
        self.sleep.wake()

    def act(self, action: str) -> bool:
        """Do what the operator wants: *restart*, *try* or *refresh*. Whether it is one of these."""
        verb = {"restart": self.restart, "try": self.try_now, "refresh": self.refresh}.get(action)
        if verb is not None:
            verb()
        return verb is not None

    @property
    def may_defer(self) -> bool:
        """Whether calls of it may become tasks, here or there."""
        return self.runs_tasks or self.has_task_extension or self.settings.task_after is not None

    async def refresh_now(self) -> None:
        """Have the list of tools read anew, and wait for it. Raises `BackendGone`."""
        await self.wait_up()
        await self.listings.read_anew(TOOLS)

    # Its life.

    async def _live(self) -> None:
        """Open the shared connection, and stay as long as it lasts."""
        connection = self._primary = self.pool.open(SHARED)
        try:
            await connection.wait_open()
            self._agree(connection.agreed)
            async with trio.open_nursery() as nursery:
                is_heard = trio.Event()
                nursery.start_soon(self.subscriptions.hear_lists, connection, is_heard)
                with trio.move_on_after(EARS):  # first listen, then read: what changes in between is not overlooked
                    await is_heard.wait()
                await nursery.start(self.listings.watch, connection, self.settings.pin)
                await self.broker.ask(Flush(), within=TAKEN_IN)  # a tool that changed is withheld before it is called
                self.circuit.opened(trio.current_time())
                self.views.begin_anew()
                if not self.circuit.restarted:
                    warn_unused(self.name, self.listings)
                self._enter(CircuitState.UP)
                again = {"restarts": self.circuit.restarted} if self.circuit.restarted else {}
                log.info("backend_up", backend=self.name, revision=connection.revision.value, **again)
                nursery.start_soon(self.subscriptions.keep_following)
                nursery.start_soon(self._check_health, connection)
                nursery.start_soon(self.sleep.keep_lists, connection.agreed, self.listings)
                nursery.start_soon(self._fall_asleep, connection, nursery.cancel_scope)
                await connection.address.wait_ended()
                nursery.cancel_scope.cancel()
        except CallboardError as error:
            self._lose(error)
        except BaseExceptionGroup as group:
            failures, rest = group.split(CallboardError)
            if rest is not None:
                raise rest from None  # it is stopped: that the connection broke as well is no crash
            if failures is not None:
                self._lose(first_leaf(failures))
        else:
            self.why = self._brief = connection.lost
        finally:
            connection.retire()
            self._primary = None
        if self.circuit.state is CircuitState.ASLEEP:
            await connection.address.wait_ended()  # there are never two of a program
            self.why = self._brief = ""
            log.info("backend_asleep", backend=self.name)
            return
        self._exit_code, self.said = connection.exit_code, tuple(connection.last_words())
        if self.circuit.is_news:
            attempt = self.circuit.attempts + 1
            said = {"said": list(self.said)} if self.said else {}
            log.warning("backend_lost", backend=self.name, attempt=attempt, why=self.why, **said)

    def _agree(self, agreed: Agreed) -> None:
        self.agreed = agreed
        self.runs_tasks = runs_tasks(agreed.revision, agreed.capabilities)
        self.has_task_extension = has_task_extension(agreed.revision, agreed.capabilities)

    async def _fall_asleep(self, connection: BackendConnection, life: trio.CancelScope) -> None:
        """End it when it is idle. From that turn on it is up no more: a request that comes then wakes it."""
        await self.sleep.wait_idle(connection, self._use)
        if not connection.is_lost:  # else it died by itself
            self.sleep.begin()
            self._enter(CircuitState.ASLEEP)
            life.cancel()

    def _lose(self, error: CallboardError) -> None:
        self._brief = (error.brief or str(error))[:500]  # what a gateway says may hold what we said to it
        self.why = (error.for_operator or self._brief)[:500]

    async def _rest(self) -> None:
        """Wait before the next attempt."""
        is_news = self.circuit.is_news or self.circuit.state is not CircuitState.TRIED
        delay = self.circuit.lost(trio.current_time())
        self._enter(self.circuit.state)
        for connection in self.pool:
            if not connection.uses:  # another process of it may live, and serve a request
                connection.retire()
        if self.circuit.state is CircuitState.DOWN and is_news:
            log.warning("backend_down", backend=self.name, retry_in=round(delay, 1))
        self.next_try, self._rested = trio.current_time() + delay, trio.Event()
        with trio.move_on_after(delay):
            await self._rested.wait()
        self.next_try = None
        self.circuit.tried(trio.current_time())
        self._enter(self.circuit.state)

    def _enter(self, state: CircuitState) -> None:
        self.circuit.state = state
        self._changed.unpark_all()
        self.broker.send_nowait(StateChanged(self.name))

    async def _check_health(self, connection: BackendConnection) -> None:
        if connection.is_http:
            failure = await self.health.watch(connection, self.settings.timeout, lambda: self.in_flight.total > 0)
            connection.fail(failure)

    # What it hears.

    def changed(self, connection: BackendConnection, method: str, params: Mapping[str, Raw]) -> None:
        """A notification that came on no request's way."""
        if connection.key.signature and self.views.changed(connection, method):
            return
        if self.listings.changed(connection, method):
            self.views.base_changed(connection, method)
        elif method not in METHODS and self.on_custom is not None:
            self.on_custom(self, connection, method, params)
        else:
            self.subscriptions.heard(connection, method, params)

    def _listed(self) -> None:
        self.sleep.listed()
        self.broker.send_nowait(Listed(self.name))

    def _connect(self, key: ConnectionKey) -> BackendConnection:
        connection = BackendConnection(
            self.name,
            key,
            self.reach if self.personal is None or key.caller is None else self.personal.reach(key.caller),
            self.info,
            self.group.supervisor_of(tree.ANSWERS),
            on_change=self.changed,
            on_end=self._ended,
            roots=self.settings.roots,
            wait_change=self.fan_out.wait_source,
            transparent=self.transparent,
            asked=self._asked,
        )
        connection.notes_use = key is not SHARED or self.sleep.notes_use
        connection.used = trio.current_time() if trio.lowlevel.in_trio_run() else -math.inf
        return connection

    def _ended(self, connection: BackendConnection) -> None:
        if self.pool.ended(connection):
            self.circuit.restarted += 1  # the next call starts another one
        self.subscriptions.lost(connection)
        self.listings.lost(connection)
        self.views.lost(connection)
