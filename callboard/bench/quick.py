"""Load on fast lanes, without a task for each request: an answer starts the next request, or is just counted."""

import random
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from callboard.bench.hub import QuickLane
from callboard.bench.seats import Seat
from callboard.bench.work import Act
from callboard.errors import CallboardError


class Counts(Protocol):
    """The engine, as this module needs it: the work, the end, and the counters."""

    in_flight: int
    until: float
    is_limited: bool
    work: Any

    def take(self, due: float) -> bool: ...

    def settle(
        self, seat: Seat[Any], lane: QuickLane, due: float, failure: CallboardError | None, now: float
    ) -> bool: ...

    def give_up(self, due: float) -> None: ...


@attrs.define(eq=False)
class Follower:
    """Makes a request as soon as the one before was answered (closed loop)."""

    engine: Counts
    seat: Seat[Any]
    lane: QuickLane
    chance: random.Random
    _due: float = attrs.field(default=0.0, init=False)
    _is_asking: bool = attrs.field(default=False, init=False)
    _may_follow: bool = attrs.field(default=True, init=False)
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self, due: float) -> bool:
        """From the first one, which is in flight already, until the time is over or the lane is of no use any more.
        Says whether another may follow at once."""
        self._begin(due)
        try:
            await self._over.wait()
        finally:
            if self._is_asking:
                self._is_asking = False
                self.engine.give_up(self._due)
        return self._may_follow

    def _begin(self, due: float) -> None:
        self._due, self._is_asking = due, True
        self.lane.begin(self.engine.work.choose(self.chance), self._settled)

    def _settled(self, failure: CallboardError | None) -> None:
        if not self._is_asking:
            return  # it was given up
        self._is_asking = False
        engine, now, due = self.engine, trio.current_time(), self._due
        arrived = self.lane.hub.arrived()
        if failure is None and now < engine.until and (not engine.is_limited or engine.take(now)):
            engine.in_flight += 1
            self._begin(now)  # first of all: so the server has something to do while we count
            engine.settle(self.seat, self.lane, due, None, arrived)
            return
        self._may_follow = engine.settle(self.seat, self.lane, due, failure, arrived)
        may_begin = now < engine.until and self._may_follow and not self.lane.is_lost
        if may_begin and (not engine.is_limited or engine.take(now)):
            engine.in_flight += 1
            self._begin(now)
        else:
            self._over.set()


@attrs.define(eq=False)
class Crowd:
    """Requests that were begun when they were due (open loop)."""

    engine: Counts
    _due: dict[int, float] = attrs.field(factory=dict, init=False)
    _last: int = attrs.field(default=0, init=False)
    _empty: trio.Event | None = attrs.field(default=None, init=False)

    def begin(self, seat: Seat[Any], lane: QuickLane, act: Act, due: float) -> None:
        """One of them, in flight already."""
        self._last += 1
        self._due[self._last] = due
        lane.begin(act, partial(self._settled, self._last, seat, lane))

    def _settled(self, number: int, seat: Seat[Any], lane: QuickLane, failure: CallboardError | None) -> None:
        due = self._due.pop(number, None)
        if due is None:
            return  # it was given up
        self.engine.settle(seat, lane, due, failure, lane.hub.arrived())
        if self._empty is not None and not self._due:
            self._empty.set()

    async def wait_settled(self) -> None:
        if self._due:
            self._empty = trio.Event()
            await self._empty.wait()

    def give_up(self) -> None:
        """No answer is waited for any longer."""
        given_up, self._due = self._due, {}
        for due in given_up.values():
            self.engine.give_up(due)
