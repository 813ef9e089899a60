"""Sessions that are lost in the middle of a run: another is opened, and the load goes on. In virtual time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard.bench.engine import Engine, Lane, LoadPlan, OpenLane
from callboard.bench.pace import Pace
from callboard.bench.result import BenchResult
from callboard.bench.seats import LOST, PAUSE, RENEWED, REOPENED, Seat, seated
from callboard.bench.work import Act, Work
from callboard.errors import CallboardError, CannotConnect, ConnectionLost

WORK = Work((Act(kind="call", name="anything"),))


@attrs.define(eq=False)
class Mortal:
    """A session that dies after so many requests."""

    left: int
    is_lost: bool = False

    async def do(self, act: Act) -> None:
        await trio.sleep(0.1)
        self.left -= 1
        if self.left < 0 or self.is_lost:
            self.is_lost = True
            raise ConnectionLost("gone")


def mortals(requests: int, opened: list[float], is_refused: Callable[[float], bool] = lambda _: False) -> OpenLane:
    """Each lives for so many requests; while it *is_refused*, none can be opened."""

    @asynccontextmanager
    async def open_lane() -> AsyncIterator[Lane]:
        await trio.lowlevel.checkpoint()
        if is_refused(trio.current_time()):
            raise CannotConnect("nobody is there")
        opened.append(trio.current_time())
        yield Mortal(requests)

    return open_lane


async def test_a_session_that_is_lost_is_opened_anew_and_the_load_goes_on(autojump_clock: MockClock) -> None:
    opened: list[float] = []
    engine = Engine(LoadPlan(duration=12, warmup=0), WORK, mortals(9, opened))
    await engine.run()
    # Nine requests of 0.1 s, one that fails, and a pause before the next session: 1.1 s for each.
    assert engine.tally.counts[LOST] == pytest.approx(11, abs=1)
    assert engine.tally.counts[REOPENED] == engine.tally.counts[LOST]
    assert engine.tally.errors == {"ConnectionLost": engine.tally.counts[LOST]}
    assert engine.tally.count == pytest.approx(99, abs=9)
    assert opened[2] - opened[1] == pytest.approx(1.0 + PAUSE)


async def test_several_who_lose_the_same_session_lose_one(autojump_clock: MockClock) -> None:
    opened: list[float] = []
    engine = Engine(LoadPlan(concurrency=4, duration=2.05, warmup=0), WORK, mortals(41, opened))
    await engine.run()
    assert (engine.tally.counts[LOST], engine.tally.counts[REOPENED], len(opened)) == (1, 1, 2)
    assert engine.tally.errors == {"ConnectionLost": 4}


async def test_whoever_is_due_while_there_is_no_session_waits_and_that_is_counted(autojump_clock: MockClock) -> None:
    opened: list[float] = []
    begun = trio.current_time()
    dead = mortals(20, opened, lambda now: begun + 1 < now < begun + 5)
    engine = Engine(LoadPlan(pace=Pace(rate=10), duration=8, warmup=0), WORK, dead)
    await engine.run()
    assert engine.tally.errors["CannotConnect"] == pytest.approx(3 / PAUSE, rel=0.2), "it is tried, and not given up"
    assert engine.tally.longest == pytest.approx(3, abs=0.3)
    assert engine.tally.counts == {LOST: 3, REOPENED: 3}, "the twentieth request of each session is its last"


async def test_a_session_can_be_ended_for_another_and_all_end_with_the_block(autojump_clock: MockClock) -> None:
    now_open: list[int] = []
    events: list[str] = []
    failures: list[CallboardError] = []

    @asynccontextmanager
    async def counted() -> AsyncIterator[int]:
        now_open.append(len(now_open))
        await trio.lowlevel.checkpoint()
        yield now_open[-1]
        now_open.remove(now_open[-1])
        await trio.lowlevel.checkpoint()

    seats = [Seat(number, counted, events.append, failures.append) for number in range(3)]
    begun = trio.current_time()
    async with seated(seats):
        assert len(now_open) == 3
        await seats[1].renew()
        assert trio.current_time() == begun, "nobody waits where nothing was lost"
    assert (now_open, events, failures) == ([], [RENEWED], [])


async def test_what_was_lost_is_told_with_the_result(autojump_clock: MockClock) -> None:
    engine = Engine(LoadPlan(duration=12, warmup=0), WORK, mortals(9, []))
    seconds = await engine.run()
    result = BenchResult(
        target="t", work="w", revision="r", server="s", seconds=seconds, tally=engine.tally, figures=engine.figures
    )
    told = result.as_json()
    assert told["figures"]["sessions_lost"] == told["figures"]["sessions_reopened"] > 5
