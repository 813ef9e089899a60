"""The pool of connections to one backend: which request gets which, when another is opened, and when one is ended."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import attrs
import trio
from trio.lowlevel import ParkingLot

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import SHARED, ConnectionKey, Lease
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.shares import Shares
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

MAX_WITHDRAWALS: Final = 256
"""Tasks that a backend is being told to cancel at once, of one client a quarter: as many as it may have. More run out
their time."""


@attrs.define(eq=False)
class BackendPool:
    """Connections by account, *most* in all.

    No account may hold all of them: a quarter stays for the others, and one is only for requests that cannot ask. If
    all are taken, an idle one is ended, or else the one that waits longest for answers of its clients.
    """

    supervisor: Supervisor
    make: Callable[[ConnectionKey], BackendConnection]
    keep: Callable[[BackendConnection], bool]
    """Whether a connection stays, also if it is idle: something is heard on it."""
    most: int
    idle_time: float
    withdrawals: Shares = attrs.field(
        factory=lambda: Shares("tasks are withdrawn", MAX_WITHDRAWALS, MAX_WITHDRAWALS // 4), init=False
    )
    """Tasks that the backend is told to cancel, since no client waits for them: each holds a connection meanwhile."""
    _legs: dict[ConnectionKey, list[BackendConnection]] = attrs.field(factory=dict, init=False)
    _ending: set[BackendConnection] = attrs.field(
        factory=set, init=False
    )  # those that made room, and have not ended yet
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _freed: ParkingLot = attrs.field(factory=ParkingLot, init=False)

    def __len__(self) -> int:
        return sum(map(len, self._legs.values()))

    def __iter__(self) -> Iterator[BackendConnection]:
        return (connection for pool in list(self._legs.values()) for connection in list(pool))

    def open(self, key: ConnectionKey, account: str = "") -> BackendConnection:
        """Begin another connection, which *account* holds."""
        connection = self.make(key)
        connection.account = account
        self._legs.setdefault(key, []).append(connection)
        self.supervisor.spawn(connection, name=f"connection-{next(self._names)}")
        return connection

    async def take(self, key: ConnectionKey, use: Lease, account: str, *, alone: bool) -> BackendConnection:
        """A connection for *use*, which has begun on it; if it is a new one, *account* holds it. *alone*: with no other
        that may ask, so that a question can only be this one's.

        Raises what keeps a connection from opening, and `Overloaded` if none becomes free.
        """
        connection = self._free(key, alone=alone)
        if connection is None:
            connection = await self._another(key, account, alone=alone)
        return await self._begin(connection, use)

    async def _begin(self, connection: BackendConnection, use: Lease) -> BackendConnection:
        connection.begin(use)
        if not connection.opened.is_set():
            is_open = False
            try:
                await connection.wait_open()
                is_open = True
            finally:
                if not is_open:
                    self.give_back(connection, use)
        return connection

    async def borrow(self, key: ConnectionKey, use: Lease, account: str) -> BackendConnection:
        """As `take`, for business of the broker's own: neither does a connection end for it, nor does it take the last
        place. Raises `Overloaded` at once if there is no room."""
        connection = self._free(key, alone=False)
        if connection is None and (len(self) + 1 >= self.most or self._held(account) >= self._each):
            raise Overloaded("all connections to the server are in use")
        return await self._begin(connection or self.open(key, account), use)

    def give_back(self, connection: BackendConnection, use: Lease) -> None:
        connection.end(use)
        if self._freed:  # mostly no request waits for a connection
            self._free_all()

    def ended(self, connection: BackendConnection) -> bool:
        """A connection has ended. Whether that was a process beside the shared one, which died by itself."""
        self.forget(connection)
        if connection.key == SHARED or not connection.is_broken or connection.exit_code is None:
            return False
        facts = {"said": said} if (said := connection.last_words()) else {}
        log.warning("backend_process_lost", backend=connection.backend, why=connection.lost, **facts)
        return True

    def forget(self, connection: BackendConnection) -> None:
        """Give its place to another."""
        self._ending.discard(connection)
        pool = self._legs.get(connection.key, [])
        if connection in pool:
            pool.remove(connection)
            if not pool:
                del self._legs[connection.key]
        self._free_all()

    async def sweep(self) -> None:
        """End idle connections, now and then."""
        while True:
            await trio.sleep(SWEEP)
            now = trio.current_time()
            for connection in self:
                is_orphan = isinstance(connection.key.who, SessionKey) and connection.key.who.is_over
                if (
                    not connection.uses
                    and not self.keep(connection)
                    and (is_orphan or now - connection.used >= self.idle_time)
                ):
                    connection.retire()

    def _free(self, key: ConnectionKey, *, alone: bool) -> BackendConnection | None:
        for connection in self._legs.get(key, ()):
            if not connection.is_lost and not (alone and any(use.may_ask for use in connection.uses)):
                return connection
        return None

    async def _another(self, key: ConnectionKey, account: str, *, alone: bool) -> BackendConnection:
        with trio.move_on_after(MAX_WAIT):
            while True:
                if self._has_room(key, account):
                    return self.open(key, account)
                if not self._may_become_free(account):
                    break
                await self._freed.park()
                if (connection := self._free(key, alone=alone)) is not None:
                    return connection
        is_own = self._held(account) >= self._each
        raise Overloaded("all connections to the server are in use", for_all=not is_own)

    @property
    def _each(self) -> int:
        """How many connections one account may hold: all but a quarter. The shared one belongs to none."""
        ours = self.most - 1
        return max(1, ours - max(1, ours // 4))

    def _held(self, account: str) -> int:
        return sum(connection.account == account for connection in self)

    def _has_room(self, key: ConnectionKey, account: str) -> bool:
        """Whether *account* may open another connection, if necessary in the place of an old one."""
        if self._held(account) >= self._each:
            return self._make_room([connection for connection in self if connection.account == account])
        spared = 1 if key.can_be_asked and self.most > FEW else 0
        return len(self) < self.most - spared or self._make_room(self._others(account))

    def _others(self, account: str) -> list[BackendConnection]:
        """The connections that may be ended for *account*: those of accounts that hold more than it does."""
        held = Counter(connection.account for connection in self)
        return [connection for connection in self if not connection.uses or held[connection.account] > held[account]]

    def _make_room(self, pool: list[BackendConnection]) -> bool:
        """End one of *pool*: the one that has been idle for longest, or has waited longest for answers of its
        clients. False if there is none of either kind."""
        if len(self._ending) >= self.most:
            return False  # a process may take its time to end: there are never more than twice as many
        pool = [
            connection
            for connection in pool
            if connection.key != SHARED and connection.opened.is_set() and not connection.is_over
        ]
        pool = [connection for connection in pool if not self.keep(connection)]
        oldest = min(
            (connection for connection in pool if not connection.uses),
            key=lambda connection: connection.used,
            default=None,
        )
        if oldest is None:
            oldest = min(
                (connection for connection in pool if connection.waits_for_clients),
                key=lambda connection: connection.used,
                default=None,
            )
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
        pool = [connection for connection in self if connection.account == account or not is_own]
        return any(
            connection.key != SHARED and not self.keep(connection) and not connection.waits_for_clients
            for connection in pool
        )

    def _free_all(self) -> None:
        self._freed.unpark_all()
