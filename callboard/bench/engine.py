"""How load is made: so many sessions, so many requests at once or so many a second, for so long."""

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import attrs
import trio

from callboard.bench.hub import QuickLane
from callboard.bench.pace import Pace
from callboard.bench.quick import Crowd, Follower
from callboard.bench.seats import PAUSE, Open, Seat, seated
from callboard.bench.tally import OVERDUE, UNANSWERED, Tally
from callboard.bench.work import Act, Work
from callboard.errors import CallboardError, CannotConnect, ConnectionLost
from callboard.supervisor.groups import first_leaf

MAX_WAITING: Final = 10_000
"""Most requests that wait for an answer in an open loop. Beyond that none are sent, and each is counted as an error:
a real client would have been kept waiting too long."""

MAX_AT_ONCE: Final = 64
"""Requests that an open loop which is late begins before it lets others work."""

LAST_WAIT: Final = 2.0
"""Seconds after the end for which requests that have begun are waited for. So a stall at the end does not hide."""

TRIES: Final = 3
"""How often a request is tried before any load is made of it. What never works is a mistake, and not a measurement."""


class Lane(Protocol):
    """One session of a server: a legacy one, or a modern connection."""

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be asked on it any more."""

    async def do(self, act: Act) -> None:
        """Make a request and wait for its answer. Raises a `CallboardError` if that is none."""


W = TypeVar("W")
L = TypeVar("L")
E = TypeVar("E", bound=Exception)
OpenLane: TypeAlias = Open[Lane]


def portion(whole: int, part: int, of: int) -> int:
    """So many of *whole*, which are as even as can be and make up all of it."""
    return portion_start(whole, part + 1, of) - portion_start(whole, part, of)


def portion_start(whole: int, part: int, of: int) -> int:
    """How many of *whole* are in the portions before this one."""
    return whole * part // of


@attrs.frozen(kw_only=True)
class LoadPlan:
    """How much load, and for how long. Without a *pace* a request follows on an answer (closed loop)."""

    sessions: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    concurrency: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    pace: Pace | None = None
    duration: float = attrs.field(default=10.0, validator=attrs.validators.gt(0))
    warmup: float = attrs.field(default=1.0, validator=attrs.validators.ge(0))
    ramp: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    """Seconds in which workers begin, one after the other. A *pace* has its own."""
    requests: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """So many are counted, if they can be made in the *duration*."""
    seed: int = 0

    def share(self, part: int, of: int) -> "LoadPlan":
        """The part of the load for one of *of* processes: at least one session and one request in flight."""
        return attrs.evolve(
            self,
            sessions=max(1, portion(self.sessions, part, of)),
            concurrency=max(1, portion(self.concurrency, part, of)),
            pace=None if self.pace is None else self.pace.share(part, of),
            requests=None if self.requests is None else max(1, portion(self.requests, part, of)),
            seed=self.seed + part,
        )


@attrs.define(eq=False)
class Drive(ABC, Generic[W, L]):
    """One run of some kind. What it counts can be looked at while it runs, and it can be stopped.

    Its *work* is what it does, and can be written; *open_lane* opens a session.
    """

    plan: LoadPlan
    work: W
    open_lane: Open[L]
    tally: Tally = attrs.field(factory=Tally, init=False)
    in_flight: int = attrs.field(default=0, init=False)
    started: float = attrs.field(default=0.0, init=False)
    """When counting begins, on Trio's clock; 0 before `begun` is set."""
    until: float = attrs.field(default=0.0, init=False)
    begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    """All sessions are open, and requests are made."""
    gate: Callable[[], Awaitable[float]] | None = attrs.field(default=None, init=False)
    """Is asked when to begin, once all is ready; without one it begins at once."""
    lag: float = attrs.field(default=0.0, init=False)
    """Seconds until what happened is counted."""
    others_cpu: float = attrs.field(default=0.0, init=False)
    """Of one core: what the other load processes used."""
    is_stopped: bool = attrs.field(default=False, init=False)
    is_limited: bool = attrs.field(default=False, init=False)
    """Whether there are so many requests and no more: then each of them is allowed by `take`."""
    _taken: int = attrs.field(default=0, init=False)
    _whole: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self) -> float:
        """Make the load, and return the seconds in which it was counted: fewer than planned if it was stopped.

        Raises the `CallboardError` that keeps a session from opening, or each of a few first requests from an answer.
        """
        failure: CallboardError | None = None
        seats = [Seat(number, self.open_lane, self._happened, self._not_opened) for number in range(self.sessions)]
        with self._whole:
            try:
                async with seated(seats):
                    await self.rehearse(seats)
                    await self._load(seats)
            except* CallboardError as group:
                failure = first_leaf(group)
        if failure is not None and not self.is_stopped:
            raise failure
        return self.elapsed

    def stop(self) -> None:
        """End it now. What was counted stays."""
        self.is_stopped = True
        self.until = min(self.until, trio.current_time())
        self._whole.cancel()

    @property
    def elapsed(self) -> float:
        """Seconds for which it has been counted."""
        return max(0.0, min(trio.current_time(), self.until) - self.started) if self.started else 0.0

    @property
    def sessions(self) -> int:
        """How many it needs."""
        return self.plan.sessions

    @property
    def last_wait(self) -> float:
        """Seconds after the end for which what has begun is waited for."""
        return LAST_WAIT

    @property
    def figures(self) -> Mapping[str, float]:
        """Other figures, by the names in `callboard.bench.figures`."""
        return {name: float(count) for name, count in self.tally.counts.items()}

    @abstractmethod
    async def rehearse(self, seats: Sequence[Seat[L]]) -> None:
        """Try everything once. Raises the `CallboardError` for which there shall be no load."""

    @abstractmethod
    async def load(self, seats: Sequence[Seat[L]], begun: float) -> None:
        """Make the load, from *begun* on and until `until`."""

    async def _load(self, seats: Sequence[Seat[L]]) -> None:
        begun = trio.current_time() if self.gate is None else await self.gate()
        self.started = begun + self.plan.warmup
        self.until = self.started + self.plan.duration
        self.is_limited = self.plan.requests is not None
        self.begun.set()
        with trio.CancelScope(deadline=self.until + self.last_wait):
            await self.load(seats, begun)
        if self.is_limited:
            self.until = min(self.until, trio.current_time())  # all have been made
        await trio.sleep_until(self.until)  # the last one is due, and answered, a little earlier

    def take(self, due: float) -> bool:
        """Whether one more may be made, *due* then: of those that are counted there may be so many and no more."""
        if due < self.started or self.plan.requests is None:
            return True
        self._taken += 1
        return self._taken <= self.plan.requests

    def is_counted(self, due: float) -> bool:
        """Whether what was *due* then is counted: not while it is tried, or warms up."""
        return self.begun.is_set() and due >= self.started

    def failed(self, kind: str, due: float, step: str = "", text: str = "") -> None:
        """Count an error of what was *due* then. The first *text* of a kind is kept as its example."""
        if self.is_counted(due):
            self.tally.broke(kind, trio.current_time() - self.started, step=step, text=text)

    def _happened(self, event: str) -> None:
        if self.is_counted(trio.current_time()):
            self.tally.counts[event] += 1

    def _not_opened(self, error: CallboardError) -> None:
        self.failed(kind_of(error), trio.current_time(), text=str(error))


class Loop(Drive[W, L]):
    """A repeated action: the next one starts when the last one ended, or at a fixed rate."""

    @abstractmethod
    async def turn(self, seat: Seat[L], chance: random.Random, due: float) -> bool:
        """Do it once, in flight already. Says whether the next one may follow at once."""

    async def load(self, seats: Sequence[Seat[L]], begun: float) -> None:
        if self.plan.pace is None:
            await self._closed(seats, begun)
        else:
            await self._open(seats, self.plan.pace, begun)

    async def _closed(self, seats: Sequence[Seat[L]], begun: float) -> None:
        async def work(number: int) -> None:
            chance = random.Random(f"{self.plan.seed}/{number}")  # noqa: S311  # the same run twice, not a secret
            await trio.sleep_until(begun + self.plan.ramp * number / self.plan.concurrency)
            seat = seats[number % len(seats)]
            while (now := trio.current_time()) < self.until and self.take(now):
                self.in_flight += 1
                if not await self.turn(seat, chance, now):
                    await trio.sleep(PAUSE)

        async with trio.open_nursery() as nursery:
            for number in range(self.plan.concurrency):
                nursery.start_soon(work, number)

    async def _open(self, seats: Sequence[Seat[L]], pace: Pace, begun: float) -> None:
        chance = random.Random(self.plan.seed)  # noqa: S311
        async with trio.open_nursery() as nursery:
            for number in itertools.count():
                due = begun + pace.due(number)
                if due >= self.until or not self.take(due):
                    break
                if number % MAX_AT_ONCE == 0 or due > trio.current_time():
                    await self.wait_due(seats[number % len(seats)], due)
                if self.in_flight >= MAX_WAITING:
                    self.failed(OVERDUE, due)
                    continue
                self.in_flight += 1  # from now on: its task runs later
                self.launch(nursery, seats[number % len(seats)], chance, due)

    async def wait_due(self, seat: Seat[L], due: float) -> None:
        """Until it is time for the next one."""
        await trio.sleep_until(due)

    def launch(self, nursery: trio.Nursery, seat: Seat[L], chance: random.Random, due: float) -> None:
        """Do it once, without waiting for it."""
        nursery.start_soon(self.turn, seat, chance, due)


@attrs.define(eq=False)
class Engine(Loop[Work, Lane]):
    """Requests, each as often as its weight says."""

    _crowd: "Crowd" = attrs.field(init=False)

    async def rehearse(self, seats: Sequence[Seat[Lane]]) -> None:
        lane = await seats[0].lane()
        for act in self.work.acts:
            for left in reversed(range(TRIES)):
                try:
                    await lane.do(act)
                    break
                except CallboardError:
                    if not left:
                        raise

    async def turn(self, seat: Seat[Lane], chance: random.Random, due: float) -> bool:
        """One request; its latency counts from the time it was *due*. In a closed loop on a fast lane, also the next
        requests."""
        lane, is_settled, follows = seat.current, False, True
        try:
            if lane is None:
                lane = await seat.lane()
            if self.plan.pace is None and isinstance(lane, QuickLane):
                is_settled = True  # the callback sees to it
                return await Follower(self, seat, lane, chance).run(due)
            await lane.do(self.work.choose(chance))
            is_settled = True
            self.settle(seat, lane, due, None, trio.current_time())
        except CallboardError as error:
            is_settled = True
            follows = self.settle(seat, lane, due, error, trio.current_time())
        finally:
            if not is_settled:
                self.give_up(due)
        return follows

    async def wait_due(self, seat: Seat[Lane], due: float) -> None:
        if isinstance(seat.current, QuickLane):
            await seat.current.hub.sleep_until(due)
        else:
            await super().wait_due(seat, due)

    def launch(self, nursery: trio.Nursery, seat: Seat[Lane], chance: random.Random, due: float) -> None:
        if isinstance(seat.current, QuickLane):
            self._crowd.begin(seat, seat.current, self.work.choose(chance), due)
        else:
            super().launch(nursery, seat, chance, due)

    async def load(self, seats: Sequence[Seat[Lane]], begun: float) -> None:
        self._crowd = Crowd(self)
        try:
            await super().load(seats, begun)
            await self._crowd.wait_settled()
        finally:
            self._crowd.give_up()

    def settle(
        self, seat: Seat[Lane], lane: Lane | None, due: float, failure: CallboardError | None, now: float
    ) -> bool:
        """A request that was in flight is over. Says whether the next one may follow at once."""
        self.in_flight -= 1
        if failure is None:
            if due >= self.started:
                self.tally.succeeded(now - due, now - self.started, is_late=now > self.until)
            elif self.started <= now <= self.until and self.started:
                self.tally.early[int(now - self.started)] += 1
            if seat.on_answer is not None:
                seat.on_answer()
            return True
        self.failed(kind_of(failure), due, text=str(failure))
        if lane is not None and lane.is_lost:
            seat.lose(lane)
            return True  # the next one waits for a session
        return not isinstance(failure, ConnectionLost | CannotConnect)

    def give_up(self, due: float) -> None:
        """A request that was in flight is no longer waited for."""
        self.in_flight -= 1
        if not self.is_stopped:
            self.failed(UNANSWERED, due)


def kind_of(error: CallboardError) -> str:
    """The label under which an error is counted: its class, and the code of the server."""
    code = getattr(error, "error_code", None) or getattr(error, "status", None)
    return type(error).__name__ if code is None else f"{type(error).__name__} {code}"
