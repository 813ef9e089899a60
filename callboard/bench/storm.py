"""A cancellation storm: many calls are in flight and all are taken back at once, again and again.

What counts are bystanders: a session outside of the storm asks one small thing after the other, and how long that
waits is the latency of the run. And how long it takes until the sessions of the storm answer again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from callboard.bench.engine import Drive, kind_of
from callboard.bench.lanes import ClientLane
from callboard.bench.seats import PAUSE, Seat
from callboard.bench.work import Act, Work
from callboard.errors import CallboardError

IN_FLIGHT: Final = 0.1
"""Seconds for which calls are in flight before they are cancelled, by default."""

BYSTANDER: Final = 0.01
"""Seconds between two questions of the bystander's."""

CALM: Final = "settled"


@attrs.define(eq=False)
class Storm(Drive[Work, ClientLane]):
    """Calls that are cancelled, and a bystander that sends requests, in its own session if the server is shared."""

    every: float = IN_FLIGHT
    has_bystander: bool = True

    @property
    def sessions(self) -> int:
        return self.plan.sessions + self.has_bystander

    @property
    def figures(self) -> Mapping[str, float]:
        calm = self.tally.step(CALM)
        cancelled = self.tally.counts["cancelled"]
        return {
            **dict.fromkeys(("storms", "cancelled", "late_answers", "answered_before"), 0.0),
            **super().figures,
            "cancelled_per_second": cancelled / self.elapsed if self.elapsed else 0.0,
            "calm_p50": calm.percentile(50),
            "calm_max": calm.longest,
        }

    async def rehearse(self, seats: Sequence[Seat[ClientLane]]) -> None:
        lane = await seats[0].lane()
        for act in self.work.acts:
            with trio.move_on_after(self.every):  # that it takes long is what it is for
                await lane.do(act)
        await lane.client.ping()

    async def load(self, seats: Sequence[Seat[ClientLane]], begun: float) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stand_by, seats[-1])
            while trio.current_time() < self.until:
                await self._storm(seats[: self.plan.sessions])
            nursery.cancel_scope.cancel()

    async def _storm(self, seats: Sequence[Seat[ClientLane]]) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(self.plan.concurrency):
                act = self.work.acts[number % len(self.work.acts)]
                nursery.start_soon(self._call, seats[number % len(seats)], act, began)
            await trio.sleep_until(began + self.every)
            nursery.cancel_scope.cancel()
            cancelled = trio.current_time()
        self._note("storms", began)
        async with trio.open_nursery() as nursery:
            for seat in seats:
                nursery.start_soon(self._wait_calm, seat, began)
        now = trio.current_time()
        if self.is_counted(began):
            self.tally.step(CALM).succeeded(now - cancelled, now - self.started, is_late=now > self.until)

    async def _call(self, seat: Seat[ClientLane], act: Act, began: float) -> None:
        """Until it is cancelled, which is what shall happen to it."""
        is_over = False
        lane = await seat.lane()
        self.in_flight += 1
        try:
            await lane.do(act)
            is_over = True
            self._note("answered_before", began)
        except CallboardError as error:
            is_over = True
            self._failed(seat, lane, error, began, str(act))
        finally:
            self.in_flight -= 1
            if not is_over:
                self._note("cancelled", began)

    async def _wait_calm(self, seat: Seat[ClientLane], began: float) -> None:
        """Send a ping behind the cancellations: it is answered when the server has processed them."""
        lane = await seat.lane()
        before = lane.ignored
        try:
            await lane.client.ping()
        except CallboardError as error:
            self._failed(seat, lane, error, began, CALM)
            await trio.sleep(PAUSE)
        lane.ignored = lane.client.ignored
        if self.is_counted(began):
            self.tally.counts["late_answers"] += lane.ignored - before

    async def _stand_by(self, seat: Seat[ClientLane]) -> None:
        due = trio.current_time()
        while True:
            lane = await seat.lane()
            try:
                await lane.client.ping()
                now = trio.current_time()
                if self.is_counted(due):
                    self.tally.succeeded(now - due, now - self.started, is_late=now > self.until, step="bystander")
            except CallboardError as error:
                self._failed(seat, lane, error, due, "bystander")
                await trio.sleep(PAUSE)
                due = trio.current_time()
            due += BYSTANDER  # however long the last one took: the next does not wait for it
            await trio.sleep_until(due)

    def _failed(self, seat: Seat[ClientLane], lane: ClientLane, error: CallboardError, due: float, step: str) -> None:
        self.failed(kind_of(error), due, step, str(error))
        if lane.is_lost:
            seat.lose(lane)

    def _note(self, what: str, began: float) -> None:
        if self.is_counted(began):
            self.tally.counts[what] += 1
