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
from callboard.actors.broker.circuit import Circuit, CircuitState
from callboard.actors.broker.connection import BackendConnection, Reach
from callboard.actors.broker.health import HEALTH, SILENT, BackendHealth, Check
from callboard.actors.broker.leases import EVERYBODY, SHARED, ConnectionKey, Lease, sharer
from callboard.actors.broker.listing import BackendLists
from callboard.actors.broker.personal import CallerReach
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.broker.pool import BackendPool
from callboard.actors.broker.upstream_subscriptions import UpstreamSubscriptions
from callboard.actors.broker.views import ListViews, OnView
from callboard.actors.client.answerer import question_bytes
from callboard.actors.client.conversation import Patience
from callboard.actors.client.negotiate import Agreed
from callboard.actors.fan_out import FanOut
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange
from callboard.actors.shares import Shares
from callboard.actors.terms import Terms
from callboard.actors.undo import undo_unless_done
from callboard.codecs.bridge.askable import NOTHING, signature_of
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.bridge.tasks import runs_tasks
from callboard.codecs.caller import Caller
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


@attrs.frozen
class Listed:
    """A backend has read its lists, and some are others than before. The lists are the backend's; this is a mark."""

    backend: str


@attrs.frozen
class StateChanged:
    """A backend is up, or is not any more."""

    backend: str


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
    broker: Address[Listed | StateChanged]
    on_view: OnView
    serves: Serves
    fan_out: FanOut
    withdraw: Withdraw | None = None
    """Has another process, which speaks to the server for this one, end what a client was asked in vain for."""
    personal: CallerReach | None = None
    """Opens the connections of callers, where each has its own; the shared one is then for the lists alone."""
    circuit: Circuit = attrs.field(init=False)
    pool: BackendPool = attrs.field(init=False)
    subscriptions: UpstreamSubscriptions = attrs.field(init=False)
    listings: BackendLists = attrs.field(init=False)
    views: ListViews = attrs.field(init=False)
    health: BackendHealth = attrs.field(factory=BackendHealth, init=False)
    agreed: Agreed | None = attrs.field(default=None, init=False)
    runs_tasks: bool = attrs.field(default=False, init=False)
    """Whether it takes calls that are to run as tasks."""
    why: str = attrs.field(default="", init=False)
    """Why it is not up."""
    said: tuple[str, ...] = attrs.field(default=(), init=False)
    """The last lines on its standard error before it was lost. For the operator, never for a client."""
    next_try: float | None = attrs.field(default=None, init=False)
    """When it is tried again, on Trio's clock, while it rests."""
    in_flight: Shares = attrs.field(init=False)
    passes: frozenset[bytes] = attrs.field(init=False)
    patience: Patience = attrs.field(init=False)
    asking_patience: Patience = attrs.field(init=False)
    """Of a request during which the client may be asked: while it thinks, only the request's own time counts, which
    stands still when it is parked."""
    _asked: Shares = attrs.field(factory=question_bytes, init=False)
    _brief: str = attrs.field(default="", init=False)  # the same for clients, without paths
    _checks: int = attrs.field(default=0, init=False)
    _exit_code: int | None = attrs.field(default=None, init=False)
    _primary: BackendConnection | None = attrs.field(default=None, init=False)
    _changed: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _rested: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.circuit = Circuit(settings.restarts)
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
            settings.idle_time,
        )
        self.subscriptions = UpstreamSubscriptions(self, self.group.supervisor_of(tree.SUBSCRIPTIONS), self.fan_out)
        self.listings = BackendLists(self.name, settings.timeout, self._listed)
        self.views = ListViews(self, self.group.supervisor_of(tree.ANSWERS), self.on_view)

    async def run(self) -> None:
        try:
            async with self.cancel_on_stop() as nursery:
                nursery.start_soon(self.pool.sweep)
                while True:
                    await self._live()
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
        if self.why and self.circuit.state is not CircuitState.UP:
            shown["why"] = self.why
        return shown

    # What others ask of it.

    @property
    def is_up(self) -> bool:
        return self._open_primary() is not None

    async def wait_up(self) -> BackendConnection:
        """The shared connection. Raises `BackendGone` if there is none, and none is to be expected soon."""
        if (primary := self._open_primary()) is not None:
            return primary
        with trio.move_on_after(START_WAIT):
            while self.circuit.may_wait or (self.circuit.state is CircuitState.UP and not self.is_up):
                await self._changed.park()
        if (primary := self._open_primary()) is None:
            raise self.gone()
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
        if agreed.revision.dialect.terms_per_request or self.key_for(terms, exchange) is SHARED:
            primary.begin(use)
            return primary
        return None

    async def take(self, terms: Terms, exchange: Exchange | None, method: str, use: Lease) -> BackendConnection:
        """A connection for a request, begun on it. Raises `BackendGone`, `Overloaded`."""
        primary = await self.wait_up()
        is_modern = primary.revision.dialect.terms_per_request
        key = SHARED if is_modern else self.key_for(terms, exchange)
        if self.personal is not None:
            key = self._key_of(terms.caller, self.personal, key)
        if key is SHARED:
            primary.begin(use)
            return primary
        use.may_ask = bool(key.signature) and LATEST in METHODS[method].may_ask
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

    def key_for(self, terms: Terms, exchange: Exchange | None) -> ConnectionKey:
        """The connections that a request may use."""
        signature = NOTHING if exchange is None else signature_of(terms.capabilities)
        session = None if exchange is None else exchange.session
        who = sharer(self.settings.share, terms.principal)
        if session is not None and (signature or self.settings.share == "session"):
            return ConnectionKey(session, signature, who)  # what it is asked, only this session can answer
        return ConnectionKey(who, signature) if who != EVERYBODY or signature else SHARED

    def _key_of(self, caller: Caller, personal: CallerReach, key: ConnectionKey) -> ConnectionKey:
        """The same connections, but only those of *caller*. Raises `BackendRefused`."""
        try:
            mark = personal.mark(caller)
        except NotAuthorized as error:
            raise self.not_authorized(error) from None
        who = key.who if isinstance(key.who, SessionKey) else caller.key
        return ConnectionKey(who, key.signature, caller.key, mark, caller)

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
        if (
            connection.timeouts >= SILENT
            and not connection.is_http
            and not connection.is_checked
            and not connection.is_over
        ):
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
        """If it rests, end that."""
        self._rested.set()

    def refresh(self) -> None:
        """Read all lists anew, soon."""
        self.listings.refresh()

    def act(self, action: str) -> bool:
        """Do what the operator wants: *restart*, *try* or *refresh*. Whether it is one of these."""
        verb = {"restart": self.restart, "try": self.try_now, "refresh": self.refresh}.get(action)
        if verb is None:
            return False
        verb()
        return True

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
            self.agreed = connection.agreed
            self.runs_tasks = runs_tasks(self.agreed.revision, self.agreed.capabilities)
            async with trio.open_nursery() as nursery:
                is_heard = trio.Event()
                nursery.start_soon(self.subscriptions.hear_lists, connection, is_heard)
                with trio.move_on_after(EARS):  # first listen, then read: what changes in between is not overlooked
                    await is_heard.wait()
                await nursery.start(self.listings.watch, connection)
                self.circuit.opened(trio.current_time())
                self.views.begin_anew()
                self._enter(CircuitState.UP)
                again = {"restarts": self.circuit.restarted} if self.circuit.restarted else {}
                log.info("backend_up", backend=self.name, revision=connection.revision.value, **again)
                nursery.start_soon(self.subscriptions.keep_following)
                nursery.start_soon(self._check_health, connection)
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
        self._exit_code, self.said = connection.exit_code, tuple(connection.last_words())
        if self.circuit.is_news:
            attempt = self.circuit.attempts + 1
            said = {"said": list(self.said)} if self.said else {}
            log.warning("backend_lost", backend=self.name, attempt=attempt, why=self.why, **said)

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
            connection.fail(
                await self.health.watch(connection, self.settings.timeout, lambda: self.in_flight.total > 0)
            )

    # What it hears.

    def changed(self, connection: BackendConnection, method: str, params: Mapping[str, Raw]) -> None:
        """A notification that came on no request's way."""
        if connection.key.signature and self.views.changed(connection, method):
            return
        if self.listings.changed(connection, method):
            self.views.base_changed(connection, method)
        else:
            self.subscriptions.heard(connection, method, params)

    def _listed(self) -> None:
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
            asked=self._asked,
        )
        connection.used = trio.current_time() if trio.lowlevel.in_trio_run() else -math.inf
        return connection

    def _ended(self, connection: BackendConnection) -> None:
        self.pool.forget(connection)
        self.subscriptions.lost(connection)
        self.listings.lost(connection)
        self.views.lost(connection)
