"""A configured server that the broker stands in front of: kept alive, listened to, and left alone when it is down."""

import math
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Final, Never, TypeAlias

import attrs
import trio
from msgspec import Raw

from callboard import tree
from callboard.actors.broker.circuit import Circuit, CircuitState
from callboard.actors.broker.connection import BackendConnection, Reach, leaf_of
from callboard.actors.broker.health import HEALTH, SILENT, BackendHealth, Check
from callboard.actors.broker.leases import EVERYBODY, SHARED, ConnectionKey, Lease
from callboard.actors.broker.listing import BackendLists, Listing, OnListing
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.broker.pool import BackendPool
from callboard.actors.broker.upstream import OnUpdated
from callboard.actors.broker.upstream_subscriptions import UpstreamSubscriptions
from callboard.actors.broker.views import ListViews, OnView
from callboard.actors.client.answerer import question_bytes
from callboard.actors.client.caller import Patience, WaitChange
from callboard.actors.client.negotiate import Agreed
from callboard.actors.server.exchange import Exchange
from callboard.actors.shares import Shares
from callboard.actors.terms import ANYBODY, Terms
from callboard.codecs.bridge.askable import NOTHING, signature_of
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.revisions import LATEST, METHODS, Implementation
from callboard.errors import BackendGone, CallboardError, Overloaded, SessionGone, SupervisorClosed
from callboard.supervisor import Actor, Fact, Supervisor, get_logger

log = get_logger("callboard.broker")

START_WAIT: Final = 5.0
"""Seconds that a request waits for a backend that is about to come up."""

EARS: Final = 1.0
"""Seconds that a backend has to say that its changes are heard, before its lists are read."""

OnState: TypeAlias = Callable[[str], None]
"""Told that a backend is up, or is not any more."""


@attrs.define(eq=False)
class Backend(Actor[Never]):
    """Owns the connections to one server. The shared one is always tried to be kept open: the lists come from it."""

    mailbox = None

    name: str
    settings: BackendSettings
    reach: Reach
    info: Implementation
    group: Supervisor
    """Where its connections live, and the actors that ask its questions."""
    on_listing: OnListing
    on_view: OnView
    on_state: OnState
    on_updated: OnUpdated
    wait_change: WaitChange | None = None
    circuit: Circuit = attrs.field(init=False)
    legs: BackendPool = attrs.field(init=False)
    interests: UpstreamSubscriptions = attrs.field(init=False)
    listings: BackendLists = attrs.field(init=False)
    views: ListViews = attrs.field(init=False)
    health: BackendHealth = attrs.field(factory=BackendHealth, init=False)
    agreed: Agreed | None = attrs.field(default=None, init=False)
    why: str = attrs.field(default="", init=False)
    """Why it is not up."""
    said: tuple[str, ...] = attrs.field(default=(), init=False)
    """What it wrote last to standard error before it was lost. For the operator, never for a client."""
    in_flight: Shares = attrs.field(init=False)
    _asked: Shares = attrs.field(factory=question_bytes, init=False)
    _brief: str = attrs.field(default="", init=False)  # the same for clients, without paths
    _checks: int = attrs.field(default=0, init=False)
    _exit_code: int | None = attrs.field(default=None, init=False)
    _scout: BackendConnection | None = attrs.field(default=None, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.circuit = Circuit(settings.restarts)
        most = settings.max_in_flight
        self.in_flight = Shares(f"requests are in flight to {self.name}", most, most - most // 4)
        self.legs = BackendPool(
            self.group.supervisor_of(tree.LEGS),
            self._leg,
            lambda leg: leg is self._scout or self.interests.needs(leg),
            max(settings.max_connections, 1),
            settings.idle_time,
        )
        self.interests = UpstreamSubscriptions(self, self.group.supervisor_of(tree.INTERESTS))
        self.listings = BackendLists(self.name, settings.timeout, self._listed)
        self.views = ListViews(self, self.group.supervisor_of(tree.ANSWERS), self.on_view)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.legs.sweep)
                nursery.start_soon(self._wait_stop, nursery.cancel_scope)
                while True:
                    await self._live()
                    await self._rest()
        finally:
            self._enter(CircuitState.ENDED)
            for leg in self.legs:
                leg.retire()

    def facts(self) -> Mapping[str, Fact]:
        shown: dict[str, Fact] = {
            "state": self.circuit.state.value,
            "connections": len(self.legs),
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
        return self._scout_that_is_up() is not None

    @property
    def patience(self) -> Patience:
        return Patience(timeout=self.settings.timeout, cap=self.settings.cap)

    async def wait_up(self) -> BackendConnection:
        """The shared connection. Raises `BackendGone` if there is none, and none is to be expected soon."""
        if (scout := self._scout_that_is_up()) is not None:
            return scout
        with trio.move_on_after(START_WAIT):
            while self.circuit.may_wait or (self.circuit.state is CircuitState.UP and not self.is_up):
                await self._changed.wait()
        if (scout := self._scout_that_is_up()) is None:
            raise self.gone()
        return scout

    def _scout_that_is_up(self) -> BackendConnection | None:
        scout = self._scout
        is_open = self.circuit.state is CircuitState.UP and scout is not None and not scout.is_lost
        return scout if is_open else None

    async def wait_settled(self) -> None:
        """Wait until it is up, or has failed once."""
        while self.circuit.state is CircuitState.STARTING:
            await self._changed.wait()

    async def take(self, terms: Terms, exchange: Exchange | None, method: str, use: Lease) -> BackendConnection:
        """A connection for a request, begun on it. Raises `BackendGone`, `Overloaded`."""
        scout = await self.wait_up()
        key = self.key_for(terms, exchange)
        if key == SHARED or scout.revision.dialect.terms_per_request:
            scout.begin(use)
            return scout
        use.may_ask = bool(key.signature) and LATEST in METHODS[method].may_ask
        alone = use.may_ask and not scout.is_http and key.who is not _session(exchange)
        try:
            account = terms.principal if exchange is None else exchange.slot.account
            leg = await self.legs.take(key, use, account, alone=alone)
        except Overloaded:
            raise
        except CallboardError as error:
            raise self.gone(error.brief or str(error)) from None
        if self.interests.misses(leg):
            await self._have_it_tell(leg, use)
        return leg

    async def _have_it_tell(self, leg: BackendConnection, use: Lease) -> None:
        is_told = False
        try:
            await self.interests.join(leg)
            is_told = True
        finally:
            if not is_told:
                self.give_back(leg, use)

    def key_for(self, terms: Terms, exchange: Exchange | None) -> ConnectionKey:
        """Which connections a request may use."""
        signature = NOTHING if exchange is None else signature_of(terms.capabilities)
        session = _session(exchange)
        who = EVERYBODY if self.settings.share == "all" or terms.principal == ANYBODY else terms.principal
        if session is not None and (signature or self.settings.share == "session"):
            return ConnectionKey(session, signature, who)  # what it is asked, only this session can answer
        return ConnectionKey(who, signature)

    def give_back(self, leg: BackendConnection, use: Lease) -> None:
        self.legs.give_back(leg, use)

    def gone(self, why: str = "") -> BackendGone:
        """The error for a request. The server's own words stay in the log."""
        text = f"{self.name} is {self.circuit.state.value}: {why or self._brief or self.why or 'not there'}"
        return BackendGone(text[:500], backend=self.name, exit_code=self._exit_code)

    def doubt(self, leg: BackendConnection, error: Exception) -> None:
        """A connection broke. A session that was ended is over; else the server is asked if it is there."""
        if isinstance(error, SessionGone):
            leg.retire()
        elif leg.is_http:
            self.health.doubt()

    def late(self, leg: BackendConnection) -> None:
        """A request was not answered in time. After some in a row the server is asked whether it is there; one on HTTP
        is watched in any case."""
        leg.timeouts += 1
        if leg.timeouts >= SILENT and not leg.is_http and not leg.is_checked and not leg.is_over:
            leg.is_checked = True
            self._checks += 1
            with suppress(SupervisorClosed):  # it ends in any case
                self.group.supervisor_of(tree.ANSWERS).spawn(
                    Check(leg, min(HEALTH, self.settings.timeout)), name=f"check-{self._checks}"
                )

    def refresh(self) -> None:
        """Read all lists anew, soon."""
        self.listings.refresh()

    async def refresh_now(self) -> None:
        """Have the list of tools read anew, and wait for it. Raises `BackendGone`."""
        await self.wait_up()
        await self.listings.read_anew(TOOLS)

    # Its life.

    async def _live(self) -> None:
        """Open the shared connection, and stay as long as it lasts."""
        leg = self._scout = self.legs.open(SHARED)
        try:
            await leg.wait_open()
            self.agreed = leg.agreed
            async with trio.open_nursery() as nursery:
                is_heard = trio.Event()
                nursery.start_soon(self.interests.hear_lists, leg, is_heard)
                with trio.move_on_after(EARS):  # first listen, then read: what changes in between is not overlooked
                    await is_heard.wait()
                await nursery.start(self.listings.watch, leg)
                self.circuit.opened(trio.current_time())
                self.views.begin_anew()
                self._enter(CircuitState.UP)
                again = {"restarts": self.circuit.restarted} if self.circuit.restarted else {}
                log.info("backend_up", backend=self.name, revision=leg.revision.value, **again)
                nursery.start_soon(self.interests.keep_following)
                nursery.start_soon(self._check_health, leg)
                await leg.address.wait_ended()
                nursery.cancel_scope.cancel()
        except CallboardError as error:
            self._lose(error)
        except BaseExceptionGroup as group:
            failures, rest = group.split(CallboardError)
            if rest is not None:
                raise rest from None  # it is stopped: that the connection broke as well is no crash
            if failures is not None:
                self._lose(leaf_of(failures))
        else:
            self.why = self._brief = leg.lost
        finally:
            leg.retire()
            self._scout = None
        self._exit_code, self.said = leg.exit_code, tuple(leg.last_words())
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
        for leg in self.legs:
            if not leg.uses:  # another process of it may live, and serve a request
                leg.retire()
        if self.circuit.state is CircuitState.DOWN and is_news:
            log.warning("backend_down", backend=self.name, again_in=round(delay, 1))
        await trio.sleep(delay)
        self.circuit.tried(trio.current_time())
        self._enter(self.circuit.state)

    def _enter(self, state: CircuitState) -> None:
        self.circuit.state = state
        self._changed.set()
        self._changed = trio.Event()
        self.on_state(self.name)

    async def _wait_stop(self, whole: trio.CancelScope) -> None:
        await self.wait_stopping()
        whole.cancel()

    async def _check_health(self, leg: BackendConnection) -> None:
        if leg.is_http:
            leg.fail(await self.health.watch(leg, self.settings.timeout, lambda: self.in_flight.total > 0))

    # What it hears.

    def changed(self, leg: BackendConnection, method: str, params: Mapping[str, Raw]) -> None:
        """A notification that came on no request's way."""
        if leg.key.signature and self.views.changed(leg, method):
            return
        if self.listings.changed(leg, method):
            self.views.base_changed(leg, method)
        else:
            self.interests.heard(leg, method, params)

    def _listed(self, name: str, listing: Listing, said: Set[str]) -> None:
        self.on_listing(name, listing, said)
        self.views.base_read()

    def _leg(self, key: ConnectionKey) -> BackendConnection:
        leg = BackendConnection(
            self.name,
            key,
            self.reach,
            self.info,
            self.group.supervisor_of(tree.ANSWERS),
            on_change=self.changed,
            on_end=self._ended,
            roots=self.settings.roots,
            wait_change=self.wait_change,
            asked=self._asked,
        )
        leg.used = trio.current_time() if trio.lowlevel.in_trio_run() else -math.inf
        return leg

    def _ended(self, leg: BackendConnection) -> None:
        self.legs.forget(leg)
        self.interests.lost(leg)
        self.listings.lost(leg)
        self.views.lost(leg)


def _session(exchange: Exchange | None) -> object | None:
    """The session of a legacy client, by which its connections are known; None for a modern one."""
    return None if exchange is None else exchange.questions
