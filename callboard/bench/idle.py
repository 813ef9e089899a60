"""Sessions that are opened and left alone: what each of them costs the server, and whether they last."""

import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from callboard.bench.engine import Drive, kind_of
from callboard.bench.lanes import ClientLane
from callboard.bench.seats import CONNECTING, LOST, REOPENED, Seat
from callboard.errors import CallboardError

LOOK: Final = 0.5
"""Seconds between two looks at whether the sessions are still there."""

ASKED_WITHIN: Final = 60.0
"""Seconds in which all of them must answer at the end."""

PING: Final = "ping at the end"


@attrs.frozen
class Rest:
    """No work."""

    def __str__(self) -> str:
        return "nothing: sessions are opened and left idle"


@attrs.define(eq=False)
class Idle(Drive[Rest, ClientLane]):
    """The latencies are the times that it took to open each session."""

    memory: Callable[[], int | None] = lambda: None
    """Bytes that the server has in memory; None if unknown."""
    cpu: Callable[[], float | None] = lambda: None
    """Seconds of a core that it has used; None if unknown."""
    _openings: list[float] = attrs.field(factory=list, init=False)
    _found: dict[str, float] = attrs.field(factory=dict, init=False)
    _begun: float = attrs.field(default=0.0, init=False)
    _before: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        inner = self.open_lane

        @asynccontextmanager
        async def timed() -> AsyncIterator[ClientLane]:
            began = trio.current_time()
            async with inner() as lane:
                self._openings.append(trio.current_time() - began)
                yield lane

        self.open_lane = timed

    async def run(self) -> float:
        self._begun, self._before = trio.current_time(), self.memory()
        return await super().run()

    @property
    def last_wait(self) -> float:
        return ASKED_WITHIN

    @property
    def figures(self) -> Mapping[str, float]:
        return {LOST: 0.0, **super().figures, **self._found}

    async def rehearse(self, seats: Sequence[Seat[ClientLane]]) -> None:
        self._found["opened_in"] = trio.current_time() - self._begun
        self._weigh(len(seats))  # once more at the end, if it is waited for
        await trio.lowlevel.checkpoint()

    async def load(self, seats: Sequence[Seat[ClientLane]], begun: float) -> None:
        for took in self._openings:
            self.tally.succeeded(took, 0)
        await trio.sleep_until(self.started)
        used, began = self.cpu(), trio.current_time()
        for number in itertools.count(1):
            at = min(self.started + number * LOOK, self.until)
            await trio.sleep_until(at)
            for seat in seats:
                self._look(seat)
            if at >= self.until:
                break
        self._weigh(len(seats))
        now = self.cpu()
        if used is not None and now is not None:
            self._found["cpu_at_rest"] = max(0.0, now - used) / (trio.current_time() - began)
        await self._ask(seats)

    def _look(self, seat: Seat[ClientLane]) -> None:
        lane = seat.current
        if lane is None:
            return
        renewals, lane.renewals = lane.client.renewals - lane.renewals, lane.client.renewals
        if renewals:
            self.tally.counts[LOST] += renewals
            self.tally.counts[REOPENED] += renewals
        if lane.is_lost:
            seat.lose(lane)

    def _weigh(self, sessions: int) -> None:
        after = self.memory()
        if after is None:
            return
        before = self._before or 0
        self._found["memory_before"], self._found["memory_after"] = float(before), float(after)
        self._found["memory_each"] = (after - before) / sessions

    async def _ask(self, seats: Sequence[Seat[ClientLane]]) -> None:
        """Whether they are all still there."""
        turns = trio.CapacityLimiter(CONNECTING)

        async def ask(seat: Seat[ClientLane]) -> None:
            async with turns:
                lane, began = await seat.lane(), trio.current_time()
                try:
                    await lane.client.ping()
                    now = trio.current_time()
                    self.tally.step(PING).succeeded(now - began, now - self.started)
                except CallboardError as error:
                    self.failed(kind_of(error), began, PING, str(error))
                    self.tally.counts[LOST] += 1

        async with trio.open_nursery() as nursery:
            for seat in seats:
                nursery.start_soon(ask, seat)
