"""The highest rate that a server bears, found in virtual time on servers of known capacity."""

import json
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from callboard.bench.engine import LoadPlan
from callboard.bench.found import LimitFound, Probe
from callboard.bench.limits import BadLimit
from callboard.bench.pace import Pace
from callboard.bench.probes import LimitSearch
from callboard.bench.result import BenchResult
from callboard.bench.search import MAX_PROBES, PRECISION, Conditions, RateSearch
from callboard.cli.arguments import BadArgument
from callboard.cli.bench_flags import Load
from callboard.errors import ServerRefused
from tests.at_terminal import CTRL_C, at_terminal, piped
from tests.bench.figures import result
from tests.bench.test_command import needs_terminal
from tests.bench.test_engine import WORK, Scripted
from tests.process import CALLBOARD, started
from tests.shared import APPS

P99 = "p99<50ms"
APP = str(APPS / "steady.py")

# Which rate is next.


def walk(search: RateSearch, bears: Callable[[float], bool]) -> Sequence[float]:
    """All rates that are tried on a server that bears them or not."""
    tried = []
    while (rate := search.next()) is not None:
        tried.append(rate)
        search.note(rate, bears(rate))
    return tried


@given(st.floats(1, 1e5), st.floats(0.5, 1e5))
def test_a_limit_is_found_to_two_percent_wherever_the_search_begins(capacity: float, first: float) -> None:
    search = RateSearch(first)
    tried = walk(search, lambda rate: rate <= capacity)
    assert capacity / (1 + PRECISION) <= search.low <= capacity
    assert search.is_confirmed
    assert tried.count(search.low) == tried.count(search.high) == 2, "each side is tried a second time"
    assert len(tried) <= MAX_PROBES


def test_the_rate_is_doubled_and_then_halved_between() -> None:
    tried = walk(RateSearch(100.0), lambda rate: rate <= 500)
    assert tried[:5] == [100, 200, 400, 800, pytest.approx(565.7, abs=0.1)]
    assert len(tried) < 14


def test_a_failure_by_chance_does_not_make_the_limit_too_low() -> None:
    flukes = iter([False, False, True])  # the third probe fails

    def bears(rate: float) -> bool:
        return rate <= 500 and not next(flukes, False)

    search = RateSearch(100.0)
    walk(search, bears)
    assert search.low == pytest.approx(500, rel=0.03)


@given(st.randoms())
def test_a_server_that_is_never_the_same_twice_is_given_up(chance: random.Random) -> None:
    search = RateSearch(100.0)
    assert len(walk(search, lambda _: chance.random() < 0.5)) <= MAX_PROBES


def test_a_server_that_bears_nothing_is_given_up() -> None:
    search = RateSearch(100.0)
    assert len(walk(search, lambda _: False)) < 15
    assert (search.low, search.is_confirmed) == (0, False)


# Conditions.


@pytest.mark.parametrize("text", ["", "p99", "p99>50ms", "rate<5", "p99<50", "speed<1ms", "kills<1", "p99<1ms,,max<1s"])
def test_what_cannot_be_searched_by_is_told(text: str) -> None:
    with pytest.raises(BadLimit):
        Conditions.parse([text])


def test_several_conditions_must_hold_and_errors_count_unless_they_are_allowed() -> None:
    run = result(*[0.01] * 98, errors=2, seconds=10)
    assert Conditions.parse(["p99<50ms,max<1s", "errors<5%"]).broken_by(run, 9.8) == ""
    assert Conditions.parse(["p99<50ms"]).broken_by(run, 9.8) == "2% errors"
    assert Conditions.parse(["p50<50ms", "max<5ms", "errors<5%"]).broken_by(run, 9.8).startswith("max 10")
    fine = result(*[0.01] * 100, seconds=10)
    assert Conditions.parse(["p99<50ms"]).broken_by(fine, 10) == ""
    assert Conditions.parse(["p99<50ms"]).broken_by(fine, 12) == "only 10.0/s answered"


# Servers.


def serving(seconds: Callable[[], float], at_once: int = 1) -> Callable[[int], Awaitable[None]]:
    """A server that does so many requests at once, each in so many seconds, in the order in which they came."""
    turns = trio.CapacityLimiter(at_once)

    async def script(number: int) -> None:
        async with turns:
            await trio.sleep(seconds())

    return script


def searching(server: Scripted, *conditions: str, pace: Pace | None = None, duration: float = 5.0) -> LimitSearch:
    heard: list[float] = []
    search: LimitSearch

    def measured(seconds: float) -> BenchResult:
        return attrs.evolve(result(), tally=search.tally, seconds=seconds)

    search = LimitSearch(
        LoadPlan(sessions=2, duration=duration, warmup=0.5, pace=pace),
        WORK,
        server.lanes(),
        conditions=Conditions.parse(conditions),
        measured=measured,
        on_probe=lambda rate, _: heard.append(rate),
    )
    return search


@pytest.mark.parametrize(
    ("seconds", "at_once", "capacity"), [(0.01, 1, 100.0), (0.0025, 1, 400.0), (0.02, 8, 400.0), (0.04, 1, 25.0)]
)
async def test_the_limit_of_a_server_of_known_capacity_is_found_within_five_percent(
    autojump_clock: MockClock, seconds: float, at_once: int, capacity: float
) -> None:
    search = searching(Scripted(serving(lambda: seconds, at_once)), P99)
    await search.run()
    assert search.found.rate == pytest.approx(capacity, rel=0.05)
    assert search.found.is_confirmed
    assert search.best is not None
    assert search.best.percentile(99) < 0.05, "the figures are those at the limit"
    assert search.found.note == ""


async def test_a_loose_limit_is_not_taken_for_more_capacity(autojump_clock: MockClock) -> None:
    """In five seconds a queue of ten percent too many grows to half a second, and would be within a limit of one."""
    search = searching(Scripted(serving(lambda: 0.01)), "p99<2s")
    await search.run()
    assert search.found.rate == pytest.approx(100, rel=0.05)


async def test_where_the_latency_rises_with_the_load_the_limit_is_below_the_capacity(autojump_clock: MockClock) -> None:
    chance = random.Random(1)
    search = searching(Scripted(serving(lambda: chance.expovariate(1 / 0.01))), "p90<50ms", duration=30)
    await search.run()
    assert search.found.rate is not None
    assert 50 < search.found.rate < 90, "with random times there is a queue long before all time is used"


async def test_a_server_that_refuses_what_is_too_much_has_its_limit_there(autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    asked: list[float] = []

    async def refusing(_: int) -> None:
        now = trio.current_time() - begun
        asked.append(now)
        del asked[:-51]
        await trio.sleep(0.001)
        if len(asked) == 51 and now - asked[0] < 1:
            raise ServerRefused(-32000, "too many requests", None)

    search = searching(Scripted(refusing), P99, pace=Pace(rate=10))
    await search.run()
    assert search.found.rate == pytest.approx(50, rel=0.05)
    assert "% errors" in search.probes[3].why


async def test_a_probe_that_cannot_hold_any_more_ends_early_and_leaves_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    server = Scripted(serving(lambda: 0.01))
    search = searching(server, P99, pace=Pace(rate=400))
    begun = trio.current_time()
    await search.run()
    failed = [probe for probe in search.probes if not probe.held]
    assert failed[0].rate == 400
    assert failed[0].seconds < 1, "of five"
    assert search.found.rate == pytest.approx(100, rel=0.05)
    assert trio.current_time() - begun < 5.6 * len(search.probes)


async def test_a_server_that_dies_ends_the_search_with_what_was_found(autojump_clock: MockClock) -> None:
    async def dying(number: int) -> None:
        await trio.sleep(0.001 if number < 2000 else 10_000)

    search = searching(Scripted(dying), P99, pace=Pace(rate=100))
    with trio.fail_after(600):
        await search.run()
    assert search.found.rate in (100, 200)
    assert not search.found.is_confirmed
    assert search.found.note.startswith("the server did not answer within 10 s after ")


async def test_a_limit_that_holds_at_no_rate_is_none(autojump_clock: MockClock) -> None:
    search = searching(Scripted(serving(lambda: 0.1)), P99, pace=Pace(rate=10), duration=20)
    await search.run()
    assert (search.found.rate, search.found.is_confirmed) == (None, False)
    assert str(search.found) == "none: p99<50ms did not hold at any rate"
    assert search.best is not None


async def test_a_search_that_is_stopped_keeps_what_it_found(autojump_clock: MockClock) -> None:
    search = searching(Scripted(serving(lambda: 0.01)), P99, pace=Pace(rate=10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(search.run)
        await search.begun.wait()
        await trio.sleep(14)
        search.stop()
    assert [probe.rate for probe in search.probes] == [10, 20]
    assert search.found.rate == 20
    assert str(search.found) == "20.0 per second (p99<50ms, not confirmed)"


def probe(rate: float, held: bool, cpu: float) -> Probe:
    return Probe(rate=rate, held=held, generator_cpu=cpu, is_bound_by_generator=cpu > 0.9)


@pytest.mark.parametrize(("cpu", "is_said"), [(0.97, True), (0.3, False)])
async def test_a_generator_that_is_the_limit_is_said_to_be(cpu: float, is_said: bool) -> None:
    search = searching(Scripted(serving(lambda: 0.01)), P99)
    search.probes = [probe(10, True, 0.2), probe(20, False, cpu)]
    assert ("the load generator was the limit" in search.found.note) is is_said


def test_what_was_found_is_written_and_read(tmp_path: Path) -> None:
    found = LimitFound(conditions=P99, rate=10.0, is_confirmed=True, probes=(probe(10, True, 0.1),), note="n")
    run = attrs.evolve(result(0.1), find_limit=found)
    file = tmp_path / "a.json"
    file.write_text(json.dumps(run.as_json()))
    assert BenchResult.read(file).find_limit == found


# The command.


@pytest.mark.parametrize(
    "flags",
    [
        {"concurrency": 4},
        {"burst": "5/1s"},
        {"requests": 5},
        {"profile": "churn"},
        {"processes": 2, "sessions": 2},
        {"ramp": "1s"},
        {"scenario": Path("a.toml")},
    ],
)
def test_what_has_a_rate_of_its_own_cannot_be_searched(flags: dict[str, Any]) -> None:
    with pytest.raises(BadArgument, match="--find-limit excludes"):
        Load(find_limit=[P99], **flags).plan()


def test_a_condition_that_cannot_be_is_told_in_one_line() -> None:
    done = piped("bench", APP, "--list", "--find-limit", "p99>50ms")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("callboard: --find-limit 'p99>50ms' is not a condition")


def test_the_limit_of_a_real_server_is_shown_with_its_probes(tmp_path: Path) -> None:
    html, short = tmp_path / "limit.html", ("--duration", "500ms", "--warmup", "100ms", "--rate", "150")
    done = piped("bench", APP, "--tool", "turn", "--find-limit", "p99<200ms,max<1s", *short, "--html", str(html))
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert "per second (p99<200ms, max<1s" in rows["limit"]
    limit = float(rows["limit"].split()[0])
    assert 50 < limit < 220, "it takes 5 ms, one at a time: 200 at the most, and some on a busy machine"
    probes = [line.split("\t") for line in done.stdout.splitlines() if "/s\t" in line]
    assert any(probe[-1] == "held" for probe in probes)
    assert any(probe[-1] != "held" for probe in probes[1:])
    assert done.stderr.startswith("probe 1: 150.0/s: p50 ")
    assert 'aria-label="Latency by rate"' in html.read_text()
    assert "<h2>Probes</h2>" in html.read_text()


async def test_ctrl_c_shows_what_was_found_so_far() -> None:
    flags = ("--tool", "turn", "--find-limit", "p99<1s", "--rate", "20", "--duration", "300ms", "--warmup", "0")
    async with started(*CALLBOARD, "bench", APP, *flags) as process:
        await process.wait_said(b"probe 2: ")
        process.signal(signal.SIGINT)
        shown = []
        while (line := await process.line()) is not None:
            shown.append(line.decode())
    assert process.process.returncode == 130
    assert any(line.startswith("limit\t") and "not confirmed" in line for line in shown), shown


@needs_terminal
async def test_at_a_terminal_the_probes_are_seen_while_the_search_goes_on() -> None:
    flags = ("--tool", "turn", "--find-limit", "p99<1s", "--rate", "20", "--duration", "300ms", "--warmup", "0")
    async with at_terminal("bench", APP, *flags) as terminal:
        await terminal.wait_shown("0 errors: held")
        await terminal.wait_shown("40.0/s")
        await terminal.press(CTRL_C)
        await terminal.wait_shown("not confirmed")
        assert await terminal.wait_ended() == 130
