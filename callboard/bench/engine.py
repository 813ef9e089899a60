"""How load is made: so many sessions, so many requests at once or so many a second, for so long."""

import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

import attrs
import trio

from callboard.bench.pace import Pace
from callboard.bench.tally import Tally
from callboard.bench.work import Act, Work
from callboard.errors import CallboardError, ConnectionLost

MAX_WAITING: Final = 10_000
"""Most requests that wait for an answer in an open loop. Beyond that none are sent, and each is counted as an error:
whoever would have come has been kept waiting too long."""

MAX_AT_ONCE: Final = 64
"""Requests that an open loop which is late begins before it lets others work."""

CONNECTING: Final = 32
"""Sessions that are opened at once."""

LAST_WAIT: Final = 2.0
"""Seconds after the end for which requests that have begun are waited for. So a stall at the end does not hide."""

PAUSE: Final = 0.1
"""Seconds that a worker waits after its connection was lost: nothing is gained by failing as fast as one can."""

TRIES: Final = 3
"""How often a request is tried before any load is made of it. What never works is a mistake, and not a measurement."""

OVERDUE: Final = "not sent: too many wait for an answer"
UNANSWERED: Final = "not answered by the end"


class Lane(Protocol):
    """One session of a server: a legacy one, or a modern connection."""

    async def do(self, act: Act) -> None:
        """Make a request and wait for its answer. Raises a `CallboardError` if that is none."""


OpenLane = Callable[[], AbstractAsyncContextManager[Lane]]


@attrs.frozen(kw_only=True)
class Plan:
    """How much load, and for how long. Without a *pace* a request follows on an answer (closed loop)."""

    sessions: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    concurrency: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    pace: Pace | None = None
    duration: float = attrs.field(default=10.0, validator=attrs.validators.gt(0))
    warmup: float = attrs.field(default=1.0, validator=attrs.validators.ge(0))
    ramp: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    """Seconds in which workers begin, one after the other. A *pace* has its own."""
    seed: int = 0


@attrs.define(eq=False)
class Engine:
    """One run. What it counts can be looked at while it runs, and it can be stopped."""

    plan: Plan
    work: Work
    open_lane: OpenLane
    tally: Tally = attrs.field(factory=Tally, init=False)
    in_flight: int = attrs.field(default=0, init=False)
    started: float = attrs.field(default=0.0, init=False)
    """When counting begins, on Trio's clock; 0 before `begun` is set."""
    until: float = attrs.field(default=0.0, init=False)
    begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    """All sessions are open, and requests are made."""
    _is_stopped: bool = attrs.field(default=False, init=False)
    _whole: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self) -> float:
        """Make the load, and return the seconds in which it was counted: fewer than planned if it was stopped.

        Raises the `CallboardError` that keeps a session from opening, or each of a few first requests from an answer.
        """
        failure: CallboardError | None = None
        with self._whole:
            try:
                async with self._lanes() as lanes:
                    await self._try(lanes[0])
                    await self._load(lanes)
            except* CallboardError as group:
                failure = _first(group)
        if failure is not None and not self._is_stopped:
            raise failure
        return self.elapsed

    def stop(self) -> None:
        """End it now. What was counted stays."""
        self._is_stopped = True
        self.until = min(self.until, trio.current_time())
        self._whole.cancel()

    @property
    def elapsed(self) -> float:
        """Seconds for which it has been counted."""
        return max(0.0, min(trio.current_time(), self.until) - self.started) if self.started else 0.0

    async def _try(self, lane: Lane) -> None:
        for act in self.work.acts:
            for left in reversed(range(TRIES)):
                try:
                    await lane.do(act)
                    break
                except CallboardError:
                    if not left:
                        raise

    async def _load(self, lanes: Sequence[Lane]) -> None:
        begun = trio.current_time()
        self.started = begun + self.plan.warmup
        self.until = self.started + self.plan.duration
        self.begun.set()
        with trio.CancelScope(deadline=self.until + LAST_WAIT):
            if self.plan.pace is None:
                await self._closed(lanes, begun)
            else:
                await self._open(lanes, self.plan.pace, begun)
        await trio.sleep_until(self.until)  # the last one is due, and answered, a little earlier

    @asynccontextmanager
    async def _lanes(self) -> AsyncIterator[Sequence[Lane]]:
        """All sessions, opened a few at a time before anything is counted. Each is held by a task of its own."""
        lanes: dict[int, Lane] = {}
        turns = trio.CapacityLimiter(CONNECTING)
        over = trio.Event()

        async def hold(number: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            await turns.acquire_on_behalf_of(number)
            async with self.open_lane() as lane:
                turns.release_on_behalf_of(number)
                lanes[number] = lane
                task_status.started()
                await over.wait()

        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as opening:
                for number in range(self.plan.sessions):
                    opening.start_soon(nursery.start, hold, number)
            yield [lanes[number] for number in range(self.plan.sessions)]
            over.set()

    async def _closed(self, lanes: Sequence[Lane], begun: float) -> None:
        async def work(number: int) -> None:
            chance = random.Random(f"{self.plan.seed}/{number}")  # noqa: S311  # the same run twice, not a secret
            await trio.sleep_until(begun + self.plan.ramp * number / self.plan.concurrency)
            lane = lanes[number % len(lanes)]
            while (now := trio.current_time()) < self.until:
                self.in_flight += 1
                if not await self._one(lane, self.work.choose(chance), now):
                    await trio.sleep(PAUSE)

        async with trio.open_nursery() as nursery:
            for number in range(self.plan.concurrency):
                nursery.start_soon(work, number)

    async def _open(self, lanes: Sequence[Lane], pace: Pace, begun: float) -> None:
        chance = random.Random(self.plan.seed)  # noqa: S311
        async with trio.open_nursery() as nursery:
            for number in itertools.count():
                due = begun + pace.due(number)
                if due >= self.until:
                    break
                if number % MAX_AT_ONCE == 0 or due > trio.current_time():
                    await trio.sleep_until(due)
                if self.in_flight >= MAX_WAITING:
                    self._failed(OVERDUE, due)
                    continue
                self.in_flight += 1  # from now on: its task runs later
                nursery.start_soon(self._one, lanes[number % len(lanes)], self.work.choose(chance), due)

    async def _one(self, lane: Lane, act: Act, due: float) -> bool:
        """One request, in flight already, whose latency counts from when it was *due*. Says whether there is a
        connection still."""
        is_settled = False
        try:
            await lane.do(act)
            is_settled = True
            if due >= self.started:
                now = trio.current_time()
                self.tally.succeeded(now - due, now - self.started, is_late=now > self.until)
        except CallboardError as error:
            is_settled = True
            self._failed(kind_of(error), due)
            return not isinstance(error, ConnectionLost)
        finally:
            self.in_flight -= 1
            if not is_settled and not self._is_stopped:
                self._failed(UNANSWERED, due)
        return True

    def _failed(self, kind: str, due: float) -> None:
        if due >= self.started:
            self.tally.broke(kind, trio.current_time() - self.started)


def kind_of(error: CallboardError) -> str:
    """What an error is counted as: its name, and the code that a server gave it."""
    code = getattr(error, "error_code", None) or getattr(error, "status", None)
    return type(error).__name__ if code is None else f"{type(error).__name__} {code}"


def _first(group: BaseExceptionGroup[CallboardError]) -> CallboardError:
    """Several sessions may fail at once, mostly for the same reason."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
