"""So many requests and no more; and bursts."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.bench.engine import LoadPlan
from callboard.bench.pace import Pace
from callboard.cli.arguments import BadArgument
from callboard.cli.bench_flags import Load
from callboard.errors import ConnectionLost
from tests.at_terminal import piped
from tests.bench.test_engine import Scripted, run, taking
from tests.served import served
from tests.shared import APPS


async def test_so_many_requests_are_made_and_no_more(autojump_clock: MockClock) -> None:
    server = Scripted(taking(0.1))
    engine, seconds = await run(server, LoadPlan(concurrency=4, duration=600, warmup=0, requests=41))
    assert (engine.tally.count, server.asked) == (41, 41)
    assert seconds == pytest.approx(1.1)


async def test_requests_of_the_warm_up_are_not_among_them(autojump_clock: MockClock) -> None:
    engine, seconds = await run(Scripted(taking(0.1)), LoadPlan(duration=600, warmup=1, requests=20))
    assert engine.tally.count == 20
    assert seconds == pytest.approx(2.05, abs=0.1)


async def test_at_a_rate_there_are_as_many(autojump_clock: MockClock) -> None:
    plan = LoadPlan(pace=Pace(rate=10), duration=600, warmup=1, requests=25)
    engine, seconds = await run(Scripted(taking(0.1)), plan)
    assert engine.tally.count == 25
    assert seconds == pytest.approx(2.5, abs=0.05)


async def test_requests_that_fail_are_among_them(autojump_clock: MockClock) -> None:
    async def dying(number: int) -> None:
        await trio.sleep(0.01)
        if number > 5:
            raise ConnectionLost("gone")

    engine, _ = await run(Scripted(dying), LoadPlan(duration=600, warmup=0, requests=20))
    assert (engine.tally.count, engine.tally.error_count) == (5, 15)


async def test_the_time_ends_it_too(autojump_clock: MockClock) -> None:
    engine, seconds = await run(Scripted(taking(0.1)), LoadPlan(duration=2, warmup=0, requests=1000))
    assert engine.tally.count == pytest.approx(20, abs=1)
    assert seconds == 2


async def test_a_burst_goes_at_once_and_then_nothing_until_the_next(autojump_clock: MockClock) -> None:
    times: list[float] = []

    async def noting(_: int) -> None:
        times.append(trio.current_time())
        await trio.sleep(0.2)

    begun = trio.current_time()
    pace = Pace(rate=5, burst=10)
    engine, _ = await run(Scripted(noting), LoadPlan(pace=pace, duration=6, warmup=0))
    counted = [round(time - begun, 2) for time in times[1:]]
    assert counted == [pytest.approx(moment + 0.2) for moment in [0.0] * 10 + [2.0] * 10 + [4.0] * 10]
    assert engine.tally.count == 30


def test_processes_share_a_burst_and_a_number() -> None:
    plan = LoadPlan(pace=Pace(rate=5, burst=10), requests=11)
    parts = [plan.share(part, 3) for part in range(3)]
    assert sum(part.requests or 0 for part in parts) == 11
    due = [part.pace.due(number) for part in parts if part.pace is not None for number in range(10)]
    assert sorted(due) == [0.0] * 10 + [2.0] * 10 + [4.0] * 10


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"burst": "50"}, "--burst '50': expected"),
        ({"burst": "0/1s"}, "--burst '0/1s': expected"),
        ({"burst": "5/0s"}, "--burst '5/0s': expected"),
        ({"burst": "x/1s"}, "--burst 'x/1s': expected"),
        ({"burst": "5/1s", "rate": 5.0}, "--burst excludes --rate"),
        ({"burst": "5/1s", "profile": "storm"}, "--profile storm"),
        ({"requests": 0}, "--requests must be"),
        ({"requests": 5, "profile": "idle"}, "--requests is only for"),
        ({"requests": 1, "processes": 2, "sessions": 2}, "--requests must be at least --processes"),
    ],
)
def test_what_does_not_go_together_is_told(flags: dict[str, Any], why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        Load(**flags).plan()


def test_a_burst_is_told_as_it_was_typed() -> None:
    load = Load(burst="50/500ms")
    plan = load.plan()
    assert plan.pace == Pace(rate=100, burst=50)
    assert load.described(plan)["load"] == "1 session, 50 at once every 0.5 s (open loop)"


@pytest.mark.parametrize("more", [(), ("--processes", "2", "--sessions", "2"), ("--profile", "churn")])
def test_a_real_server_gets_as_many_as_were_ordered(more: tuple[str, ...]) -> None:
    with served(f"{APPS / 'steady.py'}:server", ws=True) as house:
        done = piped("bench", house.http, "--tool", "now", "--requests", "101", "--json", *more)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["requests"], told["answered"], told["errors"]) == (101, 101, {})
    assert 0 < told["seconds"] < 10
    assert told["settings"]["load"].startswith("101 requests, ")
