"""Load at one rate after the other, in the same sessions, to find the highest that a server bears."""

import statistics
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from callboard.bench.engine import MAX_WAITING, Engine, Lane
from callboard.bench.found import LimitFound, Probe
from callboard.bench.pace import Pace
from callboard.bench.result import BenchResult
from callboard.bench.search import Conditions, RateSearch, probe_of
from callboard.bench.seats import Seat
from callboard.bench.tally import Tally
from callboard.errors import CallboardError

RECOVERY: Final = 10.0
"""Seconds in which a server must have answered all of a probe: the next one starts with an empty queue."""

CHECK: Final = 0.05
"""Seconds between two looks at whether a probe can still hold."""

ALONE: Final = 5
"""Requests, one after the other, from which the first rate is guessed."""

SHORTEST: Final = 1e-4
"""Seconds that a request alone takes at least, for that guess."""


@attrs.define(eq=False)
class LimitSearch(Engine):
    """Probes, until the limit is known. Each begins when all requests of the one before were answered."""

    conditions: Conditions = attrs.field(kw_only=True)
    measured: Callable[[float], BenchResult] = attrs.field(kw_only=True)
    """The result of the probe that has ended, after so many seconds."""
    on_probe: Callable[[float, Sequence[Probe]], None] = attrs.field(kw_only=True)
    """Is told the rate of each probe that begins, and all that have ended."""
    probes: list[Probe] = attrs.field(factory=list, init=False)
    note: str = attrs.field(default="", init=False)
    _runs: dict[float, BenchResult] = attrs.field(factory=dict, init=False)
    """The last run at each rate."""
    _search: RateSearch | None = attrs.field(default=None, init=False)

    @property
    def last_wait(self) -> float:
        return RECOVERY

    @property
    def found(self) -> LimitFound:
        """What is known so far."""
        search = self._search
        low = 0.0 if search is None else search.low
        return LimitFound(
            conditions=str(self.conditions),
            rate=round(low, 3) if low else None,
            is_confirmed=search is not None and search.is_confirmed,
            probes=tuple(self.probes),
            note=self.note or self._doubt(low),
        )

    @property
    def best(self) -> BenchResult | None:
        """The run at the highest rate that held; if none did, the last one."""
        low = 0.0 if self._search is None else self._search.low
        last = self._runs.get(self.probes[-1].rate) if self.probes else None
        return self._runs.get(low, last)

    def _doubt(self, low: float) -> str:
        """Whether the generator, and not the server, was the limit."""
        failed = [probe for probe in self.probes if not probe.held and probe.rate > low]
        if any(probe.is_bound_by_generator for probe in failed) and all(probe.generator_cpu > 0.5 for probe in failed):
            return "the load generator was the limit, not the server: the server may take more"
        return ""

    async def rehearse(self, seats: Sequence[Seat[Lane]]) -> None:
        await super().rehearse(seats)
        if self.plan.pace is not None:
            self._search = RateSearch(self.plan.pace.rate)
            return
        lane, took = await seats[0].lane(), []
        for number in range(ALONE):
            began = trio.current_time()
            await lane.do(self.work.acts[number % len(self.work.acts)])
            took.append(trio.current_time() - began)
        # Half of what one request after the other comes to: most servers hold that, and a few probes lead from there.
        self._search = RateSearch(0.5 / max(statistics.median(took), SHORTEST))

    async def _load(self, seats: Sequence[Seat[Lane]]) -> None:
        search = self._search
        while search is not None and (rate := search.next()) is not None:
            self.on_probe(rate, self.probes)
            await self._probe(seats, rate)
            run = self.measured(self.elapsed)
            probe = probe_of(rate, run, self.conditions.broken_by(run, rate))
            self.probes.append(probe)
            search.note(rate, probe.held)
            self._runs[rate] = run
            if run.unanswered and not await self._is_back(seats):
                self.note = f"the server did not answer within {RECOVERY:g} s after {rate:,.1f} requests per second"
                return

    async def _probe(self, seats: Sequence[Seat[Lane]], rate: float) -> None:
        self.tally = Tally()
        self.plan = attrs.evolve(self.plan, pace=Pace(rate=rate))
        begun = trio.current_time()
        self.started = begun + self.plan.warmup
        self.until = self.started + self.plan.duration
        self.begun.set()
        with trio.CancelScope(deadline=self.until + self.last_wait) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_if_lost, rate, scope)
                await self.load(seats, begun)
                nursery.cancel_scope.cancel()
        await trio.sleep_until(self.until)

    async def _stop_if_lost(self, rate: float, scope: trio.CancelScope) -> None:
        """End a probe that cannot hold any more: what a server has to work off afterwards would take as long again."""
        await trio.sleep_until(self.started)
        # A look once in a while costs less than an event for each request.
        while not self._is_lost(rate, trio.current_time() - self.started):  # noqa: ASYNC110
            await trio.sleep(CHECK)
        self.until = min(self.until, trio.current_time())
        scope.deadline = self.until + self.last_wait

    def _is_lost(self, rate: float, elapsed: float) -> bool:
        """Whether more requests have waited too long than may. Requests come evenly: of those that wait, all but the
        last few have waited for longer than the limit."""
        if self.in_flight >= MAX_WAITING:
            return True
        waiting, total = min(float(self.in_flight), rate * elapsed), rate * self.plan.duration
        return any(waiting - rate * limit > share * total + 1 for limit, share in self.conditions.tightest)

    async def _is_back(self, seats: Sequence[Seat[Lane]]) -> bool:
        with trio.move_on_after(RECOVERY):
            while True:
                lane = await seats[0].lane()
                try:
                    await lane.do(self.work.acts[0])
                except CallboardError:
                    if lane.is_lost:
                        seats[0].lose(lane)
                    await trio.sleep(CHECK)
                else:
                    return True
        return False
