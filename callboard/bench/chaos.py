"""Load on a server that is killed at random: time until a new process answers, and requests lost meanwhile."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
import trio

from callboard.bench.engine import Engine, Lane
from callboard.bench.seats import PAUSE, Seat

EVERY: Final = 2.0
"""Seconds between two kills, by default."""

JITTER: Final = 0.25
"""Share by which that time is longer or shorter, by chance."""

RECOVERY: Final = "recovery"


@attrs.define(eq=False)
class Chaos(Engine):
    """The same load as ever, while servers are killed."""

    kill: Callable[[Lane], None] = lambda _: None
    """Kills the process at the other end."""
    every: float = EVERY

    @property
    def figures(self) -> Mapping[str, float]:
        recovery = self.tally.step(RECOVERY)
        return {
            "kills": 0.0,
            **super().figures,
            "recovered": float(recovery.count),
            "recovery_p50": recovery.percentile(50),
            "recovery_max": recovery.longest,
            "requests_lost": float(self.tally.errors["ConnectionLost"]),
        }

    async def load(self, seats: Sequence[Seat[Lane]], begun: float) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kill_on, seats, nursery)
            await super().load(seats, begun)
            nursery.cancel_scope.cancel()

    async def _kill_on(self, seats: Sequence[Seat[Lane]], nursery: trio.Nursery) -> None:
        chance = random.Random(f"{self.plan.seed}/chaos")  # noqa: S311  # the same run twice, not a secret
        await trio.sleep_until(self.started)
        while True:
            await trio.sleep(self.every * chance.uniform(1 - JITTER, 1 + JITTER))
            alive = [seat for seat in seats if seat.current is not None and seat.on_answer is None]
            if alive and trio.current_time() < self.until:
                nursery.start_soon(self._kill, chance.choice(alive))

    async def _kill(self, seat: Seat[Lane]) -> None:
        lane, killed = await seat.lane(), trio.current_time()

        def answered() -> None:
            if seat.current is lane:
                return  # that was said before it died
            seat.on_answer = None
            now = trio.current_time()
            self.tally.step(RECOVERY).succeeded(now - killed, now - self.started, is_late=now > self.until)

        seat.on_answer = answered
        self.tally.counts["kills"] += 1
        self.kill(lane)
        await trio.sleep(PAUSE)
        seat.lose(lane)  # if nothing was asked meanwhile, the loss is not known yet
