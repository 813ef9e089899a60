"""The pool of connections to one backend: which request gets which, when another is opened, and when one is ended."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import attrs
import trio

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import SHARED, ConnectionKey, Lease
from callboard.actors.server.client_requests import ClientRequests
from callboard.errors import Overloaded
from callboard.supervisor import Supervisor, get_logger

log = get_logger("callboard.broker")

SWEEP: Final = 5.0
"""Seconds between two looks for idle connections."""

MAX_WAIT: Final = 5.0
"""Seconds that a request waits while other requests run on all connections. It does not wait for people: a connection
whose requests wait for an answer of their clients is taken away from them."""

FEW: Final = 3
"""So few connections that none is spared for requests that cannot ask: there would be none left for those that can."""


@attrs.define(eq=False)
class BackendPool:
    """Connections by whose they are, *most* in all.

    No account may hold all of them: a quarter stays for the others, and one is only for requests that cannot ask. If
    all are taken, an idle one is ended, or else the one whose requests wait longest for answers of their clients.
    """

    supervisor: Supervisor
    make: Callable[[ConnectionKey], BackendConnection]
    keep: Callable[[BackendConnection], bool]
    """Whether a connection stays, also if it is idle: something is heard on it."""
    most: int
    idle_time: float
    _legs: dict[ConnectionKey, list[BackendConnection]] = attrs.field(factory=dict, init=False)
    _ending: set[BackendConnection] = attrs.field(
        factory=set, init=False
    )  # those that made room, and have not ended yet
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _freed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __len__(self) -> int:
        return sum(map(len, self._legs.values()))

    def __iter__(self) -> Iterator[BackendConnection]:
        return (leg for legs in list(self._legs.values()) for leg in list(legs))

    def open(self, key: ConnectionKey, account: str = "") -> BackendConnection:
        """Begin another connection, which *account* holds."""
        leg = self.make(key)
        leg.account = account
        self._legs.setdefault(key, []).append(leg)
        self.supervisor.spawn(leg, name=f"leg-{next(self._names)}")
        return leg

    async def take(self, key: ConnectionKey, use: Lease, account: str, *, alone: bool) -> BackendConnection:
        """A connection for *use*, which has begun on it; if it is a new one, *account* holds it. *alone*: with no other
        that may ask, so that a question can only be this one's.

        Raises what keeps a connection from opening, and `Overloaded` if none becomes free.
        """
        leg = self._free(key, alone=alone)
        if leg is None:
            leg = await self._another(key, account, alone=alone)
        return await self._begin(leg, use)

    async def _begin(self, leg: BackendConnection, use: Lease) -> BackendConnection:
        leg.begin(use)
        if not leg.opened.is_set():
            is_open = False
            try:
                await leg.wait_open()
                is_open = True
            finally:
                if not is_open:
                    self.give_back(leg, use)
        return leg

    async def borrow(self, key: ConnectionKey, use: Lease, account: str) -> BackendConnection:
        """As `take`, for business of the broker's own: neither does a connection end for it, nor does it take the last
        place. Raises `Overloaded` at once if there is no room."""
        leg = self._free(key, alone=False)
        if leg is None and (len(self) + 1 >= self.most or self._held(account) >= self._each):
            raise Overloaded("all connections to the server are in use")
        return await self._begin(leg or self.open(key, account), use)

    def give_back(self, leg: BackendConnection, use: Lease) -> None:
        leg.end(use)
        self._free_all()

    def forget(self, leg: BackendConnection) -> None:
        """A connection has ended."""
        self._ending.discard(leg)
        legs = self._legs.get(leg.key, [])
        if leg in legs:
            legs.remove(leg)
            if not legs:
                del self._legs[leg.key]
        self._free_all()

    async def sweep(self) -> None:
        """End idle connections, now and then."""
        while True:
            await trio.sleep(SWEEP)
            now = trio.current_time()
            for leg in self:
                is_orphan = isinstance(leg.key.who, ClientRequests) and leg.key.who.is_over
                if not leg.uses and not self.keep(leg) and (is_orphan or now - leg.used >= self.idle_time):
                    leg.retire()

    def _free(self, key: ConnectionKey, *, alone: bool) -> BackendConnection | None:
        for leg in self._legs.get(key, ()):
            if not leg.is_lost and not (alone and any(use.may_ask for use in leg.uses)):
                return leg
        return None

    async def _another(self, key: ConnectionKey, account: str, *, alone: bool) -> BackendConnection:
        with trio.move_on_after(MAX_WAIT):
            while True:
                if self._has_room(key, account):
                    return self.open(key, account)
                if not self._may_become_free(account):
                    break
                await self._freed.wait()
                if (leg := self._free(key, alone=alone)) is not None:
                    return leg
        is_own = self._held(account) >= self._each
        raise Overloaded("all connections to the server are in use", for_all=not is_own)

    @property
    def _each(self) -> int:
        """How many connections one account may hold: all but a quarter. The shared one belongs to none."""
        ours = self.most - 1
        return max(1, ours - max(1, ours // 4))

    def _held(self, account: str) -> int:
        return sum(leg.account == account for leg in self)

    def _has_room(self, key: ConnectionKey, account: str) -> bool:
        """Whether *account* may open another connection, if necessary in the place of an old one."""
        if self._held(account) >= self._each:
            return self._make_room([leg for leg in self if leg.account == account])
        spared = 1 if key.signature and self.most > FEW else 0
        return len(self) < self.most - spared or self._make_room(self._others(account))

    def _others(self, account: str) -> list[BackendConnection]:
        """The connections that may be ended for *account*: those of accounts that hold more than it does."""
        held = Counter(leg.account for leg in self)
        return [leg for leg in self if not leg.uses or held[leg.account] > held[account]]

    def _make_room(self, legs: list[BackendConnection]) -> bool:
        """End one of *legs*: the one that has been idle for longest, or whose requests have waited longest for their
        clients. False if there is none of either kind."""
        if len(self._ending) >= self.most:
            return False  # a process may take its time to end: there are never more than twice as many
        legs = [leg for leg in legs if leg.key != SHARED and leg.opened.is_set() and not leg.is_over]
        legs = [leg for leg in legs if not self.keep(leg)]
        oldest = min((leg for leg in legs if not leg.uses), key=lambda leg: leg.used, default=None)
        if oldest is None:
            oldest = min((leg for leg in legs if leg.waits_for_clients), key=lambda leg: leg.used, default=None)
        if oldest is None:
            return False
        if oldest.uses:
            log.info("connection_evicted", backend=oldest.backend, account=oldest.account, calls=len(oldest.uses))
        self.forget(oldest)
        self._ending.add(oldest)
        oldest.take_away()
        return True

    def _may_become_free(self, account: str) -> bool:
        """Whether waiting may help: a request runs on a connection that could then be had, or one is about to end."""
        if self._ending:
            return True
        is_own = self._held(account) >= self._each
        legs = [leg for leg in self if leg.account == account or not is_own]
        return any(leg.key != SHARED and not self.keep(leg) and not leg.waits_for_clients for leg in legs)

    def _free_all(self) -> None:
        self._freed.set()
        self._freed = trio.Event()
