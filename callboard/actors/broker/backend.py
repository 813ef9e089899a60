"""A configured server that the broker stands in front of: kept alive, listened to, and left alone when it is down."""

import math
from collections.abc import Callable, Mapping, Set
from typing import Final, Never, TypeAlias

import attrs
import trio
from msgspec import Raw

from callboard.actors.broker.circuit import Circuit, State
from callboard.actors.broker.interests import Interests
from callboard.actors.broker.leg import EVERYBODY, SHARED, Key, Leg, Reach, Use, leaf_of
from callboard.actors.broker.legs import Legs
from callboard.actors.broker.listings import read_list
from callboard.actors.broker.settings import BackendSettings
from callboard.actors.caller import Patience
from callboard.actors.eras import Agreed
from callboard.actors.exchange import Exchange
from callboard.actors.terms import ANYBODY, Terms
from callboard.codecs.crossing.definitions import KINDS
from callboard.codecs.crossing.signature import NOTHING, signature_of
from callboard.codecs.members import Members
from callboard.codecs.revisions import LATEST, METHODS, MODERN, Implementation
from callboard.errors import BackendGone, CallboardError, ConnectionLost, Overloaded, RequestTimedOut, SessionGone
from callboard.supervisor import Actor, Fact, Supervisor, get_logger

log = get_logger("callboard.broker")

START_WAIT: Final = 5.0
"""Seconds that a request waits for a backend that is about to come up."""

READ_AGAIN: Final = 5.0
"""Seconds after which lists are read again that a backend would not tell, though it said that they changed."""

GATHER: Final = 0.05
"""Seconds in which changes of lists are gathered before they are read anew."""

EARS: Final = 1.0
"""Seconds that a backend has to say that its changes are heard, before its lists are read."""

HEALTH: Final = 10.0
"""Seconds between two looks at a backend on which nothing else would tell that it is gone."""

_CHANGES: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resourceTemplates"),
}

OnListing: TypeAlias = Callable[[str, dict[str, list[Members]], Set[str]], None]
"""Told of what a backend offers: its name, its lists, and which of them it said had changed."""

OnState: TypeAlias = Callable[[str], None]
"""Told that a backend is up, or is not any more."""

OnUpdated: TypeAlias = Callable[[str, str, object], None]
"""Told of a resource that changed: its URI, the one it was followed by, and who shares the connection it came on."""


@attrs.define(eq=False)
class Backend(Actor[Never]):
    """Owns the connections to one server. The shared one is always tried to be kept open: the lists come from it."""

    mailbox = None

    name: str
    settings: BackendSettings
    reach: Reach
    info: Implementation
    group: Supervisor
    """Where its connections live, and those who ask its questions."""
    on_listing: OnListing
    on_state: OnState
    on_updated: OnUpdated
    circuit: Circuit = attrs.field(init=False)
    legs: Legs = attrs.field(init=False)
    interests: Interests = attrs.field(init=False)
    agreed: Agreed | None = attrs.field(default=None, init=False)
    why: str = attrs.field(default="", init=False)
    """Why it is not up."""
    in_flight: int = attrs.field(default=0, init=False)
    _brief: str | None = attrs.field(default=None, init=False)  # the same for clients, if they may not be told that
    _exit_code: int | None = attrs.field(default=None, init=False)
    _scout: Leg | None = attrs.field(default=None, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _doubted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _dirty: set[str] = attrs.field(factory=set, init=False)
    _is_dirty: trio.Event = attrs.field(factory=trio.Event, init=False)
    _listing: dict[str, list[Members]] = attrs.field(factory=dict, init=False)
    _spoke: Leg | None = attrs.field(default=None, init=False)
    """Which of several processes said last that its lists have changed: they may be others than its neighbour's."""

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.circuit = Circuit(settings.restarts)
        self.legs = Legs(
            self.group.supervisor_of("legs"),
            self._leg,
            lambda leg: leg is self._scout or self.interests.needs(leg),
            max(settings.max_connections, 1),
            settings.idle_time,
        )
        self.interests = Interests(self, self.group.supervisor_of("interests"))

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.legs.sweep)
                nursery.start_soon(self._wait_stop, nursery.cancel_scope)
                while True:
                    await self._live()
                    await self._rest()
        finally:
            self._enter(State.ENDED)
            for leg in self.legs:
                leg.retire()

    def facts(self) -> Mapping[str, Fact]:
        shown: dict[str, Fact] = {
            "state": self.circuit.state.value,
            "connections": len(self.legs),
            "in_flight": self.in_flight,
            "restarted": self.circuit.restarted,
        }
        if self.agreed is not None:
            shown["revision"] = self.agreed.revision.value
        if self.why and self.circuit.state is not State.UP:
            shown["why"] = self.why
        return shown

    # What others ask of it.

    @property
    def is_up(self) -> bool:
        return self.circuit.state is State.UP

    @property
    def patience(self) -> Patience:
        return Patience(timeout=self.settings.timeout, cap=self.settings.cap)

    def admit(self) -> None:
        """One more request, until it is over. Raises `Overloaded` if that is one too many."""
        if self.in_flight >= self.settings.max_in_flight:
            raise Overloaded(f"too many requests are in flight to {self.name}", for_all=True)
        self.in_flight += 1

    def over(self) -> None:
        """One less."""
        self.in_flight -= 1

    async def wait_up(self) -> Leg:
        """The shared connection. Raises `BackendGone` if there is none, and none is to be expected soon."""
        if (scout := self._scout_that_is_up()) is not None:
            return scout
        with trio.move_on_after(START_WAIT):
            while self.circuit.may_wait or (self.is_up and self._scout_that_is_up() is None):
                await self._changed.wait()
        if (scout := self._scout_that_is_up()) is None:
            raise self.gone()
        return scout

    def _scout_that_is_up(self) -> Leg | None:
        scout = self._scout
        return scout if scout is not None and self.is_up and not scout.is_lost else None

    async def wait_settled(self) -> None:
        """Wait until it is up, or has failed once."""
        while self.circuit.state is State.STARTING:
            await self._changed.wait()

    async def take(self, terms: Terms, exchange: Exchange | None, method: str, use: Use) -> Leg:
        """A connection for a request, begun on it. Raises `BackendGone`, `Overloaded`."""
        scout = await self.wait_up()
        key = self.key_for(terms, exchange)
        if key == SHARED or scout.revision in MODERN:
            scout.begin(use)
            return scout
        use.may_ask = bool(key.signature) and LATEST in METHODS[method].may_ask
        alone = use.may_ask and not scout.is_http and key.who is not _session(exchange)
        try:
            leg = await self.legs.take(key, use, alone=alone)
        except Overloaded:
            raise
        except CallboardError as error:
            raise self.gone(error.brief or str(error)) from None
        if self.interests.misses(leg):
            await self._have_it_tell(leg, use)
        return leg

    async def _have_it_tell(self, leg: Leg, use: Use) -> None:
        is_told = False
        try:
            await self.interests.join(leg)
            is_told = True
        finally:
            if not is_told:
                self.give_back(leg, use)

    def key_for(self, terms: Terms, exchange: Exchange | None) -> Key:
        """Which connections a request may use."""
        signature = NOTHING if exchange is None else signature_of(terms.capabilities)
        session = _session(exchange)
        who = EVERYBODY if self.settings.share == "all" or terms.principal == ANYBODY else terms.principal
        if session is not None and (signature or self.settings.share == "session"):
            return Key(session, signature, who)  # what it is asked, only this session can answer
        return Key(who, signature)

    def give_back(self, leg: Leg, use: Use) -> None:
        self.legs.give_back(leg, use)

    def gone(self, why: str = "") -> BackendGone:
        """What whoever asks is told. The server's own words stay in the log."""
        text = f"{self.name} is {self.circuit.state.value}: {why or self._brief or self.why or 'not there'}"
        return BackendGone(text[:500], backend=self.name, exit_code=self._exit_code)

    def doubt(self, leg: Leg, error: Exception) -> None:
        """Somebody's connection broke. A session that was ended is over; else the server is asked if it is there."""
        if isinstance(error, SessionGone):
            leg.retire()
        elif leg.is_http:
            self._doubted.set()

    def refresh(self, *members: str) -> None:
        """Read these lists anew, soon."""
        self._dirty.update(members or (kind.member for kind in KINDS))
        self._is_dirty.set()

    async def refresh_now(self) -> None:
        """Read all lists anew. Raises what the connection raises."""
        await self._read_lists(await self.wait_up(), {kind.member for kind in KINDS})

    # Its life.

    async def _live(self) -> None:
        """Open the shared connection, and stay as long as it lasts."""
        leg = self._scout = self.legs.open(SHARED)
        try:
            await leg.wait_open()
            self.agreed = leg.agreed
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_lists, leg)
                is_heard = trio.Event()
                nursery.start_soon(self.interests.hear_lists, leg, is_heard)
                with trio.move_on_after(EARS):  # first listen, then read: what changes in between is not overlooked
                    await is_heard.wait()
                await self._read_lists(leg, {kind.member for kind in KINDS})
                self.circuit.opened(trio.current_time())
                self._enter(State.UP)
                log.info("backend_up", backend=self.name, revision=leg.revision.value)
                nursery.start_soon(self.interests.keep_following)
                nursery.start_soon(self._check_health, leg)
                await leg.address.wait_ended()
                nursery.cancel_scope.cancel()
        except CallboardError as error:
            self._lose(error)
        except BaseExceptionGroup as group:
            failures, rest = group.split(CallboardError)
            if rest is not None or failures is None:
                raise
            self._lose(leaf_of(failures))
        else:
            self.why, self._brief = leg.lost, None if leg.failure is None else _brief(leg.failure)
        finally:
            leg.retire()
            self._scout = None
        self._exit_code = leg.exit_code
        log.warning("backend_lost", backend=self.name, why=self.why, said=leg.last_words())

    def _lose(self, error: CallboardError) -> None:
        self.why, self._brief = str(error)[:500], error.brief

    async def _rest(self) -> None:
        """Wait before the next attempt."""
        delay = self.circuit.lost(trio.current_time())
        self._enter(self.circuit.state)
        for leg in self.legs:
            if not leg.uses:  # another process of it may live, and work for somebody
                leg.retire()
        if self.circuit.state is State.DOWN:
            log.warning("backend_down", backend=self.name, again_in=round(delay, 1))
        await trio.sleep(delay)
        self.circuit.tried(trio.current_time())
        self._enter(self.circuit.state)

    def _enter(self, state: State) -> None:
        self.circuit.state = state
        self._changed.set()
        self._changed = trio.Event()
        self.on_state(self.name)

    async def _wait_stop(self, whole: trio.CancelScope) -> None:
        await self.wait_stopping()
        whole.cancel()

    async def _check_health(self, leg: Leg) -> None:
        """Over HTTP nothing ends when a server does: it is asked now and then."""
        heard = trio.current_time()
        while leg.is_http:
            with trio.move_on_after(HEALTH):
                await self._doubted.wait()
            self._doubted = trio.Event()
            method = "server/discover" if leg.revision in MODERN else "ping"
            try:
                await leg.caller.send(
                    method, {"_meta": dict(leg.caller.said())}, patience=Patience(timeout=HEALTH, cap=HEALTH)
                )
                heard = trio.current_time()
            except CallboardError as error:
                is_patient = trio.current_time() - heard < self.settings.timeout
                if isinstance(error, RequestTimedOut) and self.in_flight and is_patient:
                    continue  # many servers do one thing at a time, and are busy with what they were asked
                self.why = str(error)[:500]
                leg.retire()
                return

    # Lists.

    async def _watch_lists(self, leg: Leg) -> None:
        while True:
            await self._is_dirty.wait()
            await trio.sleep(GATHER)
            dirty, self._dirty, self._is_dirty = self._dirty, set(), trio.Event()
            spoke = self._spoke
            try:
                await self._read_lists(leg if spoke is None or spoke.is_over else spoke, dirty, said=dirty)
            except ConnectionLost:
                continue  # the end of the connection tells it all
            except CallboardError as error:
                log.warning("lists_not_read", backend=self.name, reason=type(error).__name__)
                await trio.sleep(READ_AGAIN)
                self.refresh(*dirty)

    async def _read_lists(self, leg: Leg, members: Set[str], said: Set[str] = frozenset()) -> None:
        patience = Patience(timeout=self.settings.timeout, cap=self.settings.timeout)
        for kind in KINDS:
            if kind.member in members:
                self._listing[kind.member] = await read_list(leg, kind, patience)
        self.on_listing(self.name, dict(self._listing), said)

    def changed(self, leg: Leg, method: str, params: Mapping[str, Raw]) -> None:
        """A notification that came on no request's way."""
        if method in _CHANGES:
            if leg.key.whose == EVERYBODY:
                self._spoke = leg if leg.is_process else None
            self.refresh(*_CHANGES[method])
        else:
            self.interests.heard(leg, method, params)

    def _leg(self, key: Key) -> Leg:
        leg = Leg(
            self.name,
            key,
            self.reach,
            self.info,
            self.group.supervisor_of("answers"),
            on_change=lambda method, params: self.changed(leg, method, params),
            on_end=self._ended,
            roots=self.settings.roots,
        )
        leg.used = trio.current_time() if trio.lowlevel.in_trio_run() else -math.inf
        return leg

    def _ended(self, leg: Leg) -> None:
        self.legs.forget(leg)
        self.interests.lost(leg)
        if leg is self._spoke:
            self._spoke = None
            self.refresh()


def _brief(error: Exception) -> str | None:
    return error.brief if isinstance(error, CallboardError) else None


def _session(exchange: Exchange | None) -> object | None:
    """The session of a legacy client, by which its connections are known; None for a modern one."""
    return None if exchange is None else exchange.questions
