"""Load on servers that are written for it, in virtual time: what is counted, and from when."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ClassVar
from unittest.mock import ANY

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard.bench.engine import LAST_WAIT, Engine, Lane, LoadPlan, OpenLane
from callboard.bench.pace import Pace
from callboard.bench.tally import OVERDUE, UNANSWERED
from callboard.bench.work import Act, ToolFailed, Work
from callboard.errors import CannotConnect, ConnectionLost, RequestTimedOut, ServerRefused
from tests.bench.figures import result

WORK = Work((Act(kind="call", name="anything"),))


@attrs.define(eq=False)
class Scripted:
    """A server that does to each request whatever its script says, given the number of the request."""

    script: Callable[[int], Awaitable[None]]
    asked: int = -1  # the first one is the engine's own try
    opened: int = 0
    open: int = 0
    is_lost: bool = False

    async def do(self, act: Act) -> None:
        self.asked += 1
        await self.script(self.asked)

    def lanes(self) -> OpenLane:
        @asynccontextmanager
        async def open_lane() -> AsyncIterator[Lane]:
            self.opened += 1
            self.open += 1
            try:
                yield self
            finally:
                self.open -= 1

        return open_lane


def taking(seconds: float) -> Callable[[int], Awaitable[None]]:
    async def script(_: int) -> None:
        await trio.sleep(seconds)

    return script


async def run(server: Scripted, plan: LoadPlan, work: Work = WORK) -> tuple[Engine, float]:
    engine = Engine(plan, work, server.lanes())
    seconds = await engine.run()
    assert server.open == 0
    assert engine.in_flight == 0
    return engine, seconds


async def test_a_closed_loop_asks_as_often_as_it_is_answered(autojump_clock: MockClock) -> None:
    server = Scripted(taking(0.1))
    engine, seconds = await run(server, LoadPlan(sessions=2, concurrency=4, duration=10, warmup=0))
    assert seconds == 10
    assert engine.tally.count == pytest.approx(400, abs=4)
    assert engine.tally.percentile(50) == pytest.approx(0.1, rel=0.01)
    assert (server.opened, engine.tally.errors) == (2, {})


async def test_what_happens_while_it_warms_up_is_not_counted(autojump_clock: MockClock) -> None:
    async def slow_at_first(number: int) -> None:
        await trio.sleep(1 if number < 5 else 0.1)

    server = Scripted(slow_at_first)
    engine, seconds = await run(server, LoadPlan(duration=10, warmup=5))
    assert seconds == 10
    assert engine.tally.count == pytest.approx(100, abs=2)
    assert engine.tally.longest == pytest.approx(0.1, rel=0.01)


async def test_an_overloaded_server_that_answers_the_backlog_of_the_warm_up_has_not_stalled(
    autojump_clock: MockClock,
) -> None:
    one_at_a_time = trio.Lock()

    async def script(_: int) -> None:
        async with one_at_a_time:
            await trio.sleep(0.005)

    engine, seconds = await run(Scripted(script), LoadPlan(pace=Pace(rate=1000), duration=3, warmup=1))
    told = attrs.evolve(result(seconds=seconds), tally=engine.tally)
    assert engine.tally.seconds == {4: ANY}, "the first request that counts is answered after the end"
    assert not told.silences
    assert told.rate == pytest.approx(200, rel=0.02)
    assert [count for _, count, *_ in told.by_second()][:3] == [pytest.approx(200, abs=2)] * 3


def stalling(at: float, seconds: float) -> Callable[[int], Awaitable[None]]:
    """Answers in a millisecond, but nobody from *at* until so many *seconds* later."""
    begin = trio.current_time() + at

    async def script(_: int) -> None:
        await trio.sleep(0.001)
        if begin <= trio.current_time() < begin + seconds:
            await trio.sleep_until(begin + seconds)

    return script


async def test_a_stall_of_a_second_is_in_the_p99_of_an_open_loop(autojump_clock: MockClock) -> None:
    script = stalling(at=5, seconds=1)
    engine, _ = await run(Scripted(script), LoadPlan(pace=Pace(rate=100), duration=10, warmup=0))
    assert engine.tally.count == 1000
    assert engine.tally.percentile(50) < 0.01
    assert engine.tally.percentile(99) > 0.85, "a tenth of all came while it stalled; the first of them waited longest"
    assert engine.tally.longest == pytest.approx(1, abs=0.02)


async def test_a_closed_loop_does_not_see_it(autojump_clock: MockClock) -> None:
    script = stalling(at=5, seconds=1)
    engine, _ = await run(Scripted(script), LoadPlan(duration=10, warmup=0))
    assert engine.tally.percentile(99) < 0.01, "one request waited, and nobody came behind it: why there is --rate"


async def test_a_stall_at_the_end_does_not_hide(autojump_clock: MockClock) -> None:
    script = stalling(at=9, seconds=2)
    engine, seconds = await run(Scripted(script), LoadPlan(pace=Pace(rate=100), duration=10, warmup=0))
    assert seconds == 10
    assert engine.tally.count == 1000
    assert engine.tally.late == pytest.approx(100, abs=2)
    assert engine.tally.percentile(99) > 1.8


async def test_a_server_that_answers_no_more_is_not_waited_for_for_ever(autojump_clock: MockClock) -> None:
    script = stalling(at=9, seconds=1000)
    begun = trio.current_time()
    engine, _ = await run(Scripted(script), LoadPlan(pace=Pace(rate=100), duration=10, warmup=0))
    assert trio.current_time() - begun == pytest.approx(10 + LAST_WAIT, abs=0.1)
    assert engine.tally.errors == {UNANSWERED: pytest.approx(100, abs=2)}


async def test_more_than_so_many_do_not_wait(autojump_clock: MockClock) -> None:
    script = stalling(at=1, seconds=1000)
    engine, _ = await run(Scripted(script), LoadPlan(pace=Pace(rate=6000), duration=3, warmup=0))
    assert engine.tally.errors[UNANSWERED] == 10_000
    assert engine.tally.errors[OVERDUE] > 1000
    assert engine.tally.count + engine.tally.error_count == pytest.approx(18_000, abs=2)


async def test_workers_of_a_ramp_begin_one_after_the_other(autojump_clock: MockClock) -> None:
    server = Scripted(taking(0.1))
    engine, _ = await run(server, LoadPlan(concurrency=10, ramp=10, duration=10, warmup=0))
    by_second = [engine.tally.seconds[second].get_total_count() for second in range(10)]
    assert by_second[0] == pytest.approx(10, abs=2)
    assert by_second[9] == pytest.approx(100, abs=10)
    assert by_second == sorted(by_second)


async def test_errors_are_counted_by_kind_and_do_not_end_the_run(autojump_clock: MockClock) -> None:
    failures = [ServerRefused(-32603, "broken", None), ToolFailed("no"), RequestTimedOut(after=1.0)]

    async def failing(number: int) -> None:
        await trio.sleep(0.01)
        if number > 0 and number % 4:
            raise failures[number % 4 - 1]

    engine, _ = await run(Scripted(failing), LoadPlan(duration=4, warmup=0))
    assert set(engine.tally.errors) == {"ServerRefused -32603", "ToolFailed", "RequestTimedOut"}
    assert engine.tally.errors["ToolFailed"] == pytest.approx(100, abs=2)
    assert engine.tally.count == pytest.approx(100, abs=2)


async def test_a_lost_connection_does_not_fail_as_fast_as_it_can(autojump_clock: MockClock) -> None:
    async def dying(number: int) -> None:
        await trio.lowlevel.checkpoint()
        if number > 0:
            raise ConnectionLost("gone")

    engine, _ = await run(Scripted(dying), LoadPlan(duration=10, warmup=0))
    assert engine.tally.errors == {"ConnectionLost": pytest.approx(100, abs=2)}


async def test_what_never_works_is_told_before_there_is_any_load(autojump_clock: MockClock) -> None:
    async def refusing(_: int) -> None:
        await trio.lowlevel.checkpoint()
        raise ServerRefused(-32602, "Unknown tool", None)

    server = Scripted(refusing)
    with pytest.raises(ServerRefused, match="Unknown tool"):
        await run(server, LoadPlan())
    assert server.asked == 2


async def test_a_session_that_does_not_open_is_one_error() -> None:
    async def nobody() -> Lane:
        await trio.lowlevel.checkpoint()
        raise CannotConnect("nobody is there")

    @asynccontextmanager
    async def closed() -> AsyncIterator[Lane]:
        yield await nobody()

    with pytest.raises(CannotConnect, match="nobody is there"):
        await Engine(LoadPlan(sessions=10), WORK, closed).run()


async def test_a_run_that_is_stopped_keeps_what_it_counted(autojump_clock: MockClock) -> None:
    server = Scripted(taking(0.1))
    engine = Engine(LoadPlan(duration=100, warmup=1), WORK, server.lanes())
    found: list[float] = []

    async def run() -> None:
        found.append(await engine.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await engine.begun.wait()
        await trio.sleep(6.05)
        engine.stop()
    assert found == [pytest.approx(5.05)]
    assert engine.tally.count == pytest.approx(50, abs=1)
    assert (engine.tally.errors, server.open) == ({}, 0)


async def test_acts_come_as_often_as_their_weights_say(autojump_clock: MockClock) -> None:
    done: list[str] = []

    @attrs.frozen
    class Noting:
        is_lost: ClassVar[bool] = False

        async def do(self, act: Act) -> None:
            await trio.sleep(0.01)
            done.append(act.name)

    @asynccontextmanager
    async def noting() -> AsyncIterator[Lane]:
        yield Noting()

    work = Work((Act(kind="call", name="a", weight=3), Act(kind="read", name="b", weight=1)))
    await Engine(LoadPlan(duration=20, warmup=0), work, noting).run()
    assert done.count("a") / done.count("b") == pytest.approx(3, rel=0.2)
