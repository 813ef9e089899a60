"""The connections to one backend: who gets which, when another is opened, and when one is ended."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import attrs
import trio

from callboard.actors.broker.leg import SHARED, Key, Leg, Use
from callboard.actors.questions import Questions
from callboard.errors import Overloaded
from callboard.supervisor import Supervisor

SWEEP: Final = 5.0
"""Seconds between two looks at who uses which connection."""

MAX_WAIT: Final = 30.0
"""Seconds that a request waits for a connection to become free."""


@attrs.define(eq=False)
class Legs:
    """Connections by whose they are. At most *most*; whoever finds none free waits, and an idle one makes room."""

    supervisor: Supervisor
    make: Callable[[Key], Leg]
    keep: Callable[[Leg], bool]
    """Whether a connection stays, also if it is idle: something is heard on it."""
    most: int
    idle_time: float
    _legs: dict[Key, list[Leg]] = attrs.field(factory=dict, init=False)
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _freed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __len__(self) -> int:
        return sum(map(len, self._legs.values()))

    def __iter__(self) -> Iterator[Leg]:
        return (leg for legs in list(self._legs.values()) for leg in list(legs))

    def open(self, key: Key) -> Leg:
        """Begin another connection."""
        leg = self.make(key)
        self._legs.setdefault(key, []).append(leg)
        self.supervisor.spawn(leg, name=f"leg-{next(self._names)}")
        return leg

    async def take(self, key: Key, use: Use, *, alone: bool) -> Leg:
        """A connection for *use*, which has begun on it. *alone*: with no other that may ask, so that a question can
        only be this one's.

        Raises what keeps a connection from opening, and `Overloaded` if none becomes free.
        """
        leg = self._free(key, alone=alone)
        if leg is None:
            leg = await self._another(key, alone=alone)
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

    def give_back(self, leg: Leg, use: Use) -> None:
        leg.end(use)
        self._free_all()

    def forget(self, leg: Leg) -> None:
        """A connection has ended."""
        legs = self._legs.get(leg.key, [])
        if leg in legs:
            legs.remove(leg)
            if not legs:
                del self._legs[leg.key]
        self._free_all()

    async def sweep(self) -> None:
        """End what nobody uses, now and then."""
        while True:
            await trio.sleep(SWEEP)
            now = trio.current_time()
            for leg in self:
                is_orphan = isinstance(leg.key.who, Questions) and leg.key.who.is_over
                if not leg.uses and not self.keep(leg) and (is_orphan or now - leg.used >= self.idle_time):
                    leg.retire()

    def _free(self, key: Key, *, alone: bool) -> Leg | None:
        for leg in self._legs.get(key, ()):
            if not leg.is_lost and not (alone and any(use.may_ask for use in leg.uses)):
                return leg
        return None

    async def _another(self, key: Key, *, alone: bool) -> Leg:
        with trio.move_on_after(MAX_WAIT):
            while True:
                if len(self) < self.most or self._make_room():
                    return self.open(key)
                await self._freed.wait()
                if (leg := self._free(key, alone=alone)) is not None:
                    return leg
        raise Overloaded("all connections to the server are in use", for_all=True)

    def _make_room(self) -> bool:
        """End the connection that has been idle for longest, but for the shared one. False if all are in use."""
        idle = [leg for leg in self if not leg.uses and leg.key != SHARED and leg.opened.is_set()]
        idle = [leg for leg in idle if not leg.is_over and not self.keep(leg)]
        if not idle:
            return False
        oldest = min(idle, key=lambda leg: leg.used)
        self.forget(oldest)
        oldest.retire()
        return True

    def _free_all(self) -> None:
        self._freed.set()
        self._freed = trio.Event()
