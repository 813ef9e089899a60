"""The metrics of a run while it lasts: what they say, and that nothing that is asked here can harm the load."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from callboard.bench import live_metrics
from callboard.bench.engine import LoadPlan
from callboard.bench.exporter import MetricsRoom, serving_metrics
from callboard.bench.live_metrics import MOST_STEPS, LiveRun, durations
from callboard.bench.machine import Watch
from callboard.bench.pace import Pace
from callboard.bench.tally import Tally
from callboard.observe.durations import BOUNDS, Durations
from callboard.observe.metrics import OPEN_METRICS, TEXT
from callboard.transports.bind import BindAddress
from tests.observe.test_show_room import Place


@attrs.define(eq=False)
class Load:
    """A load that stands still."""

    plan: LoadPlan = attrs.field(factory=lambda: LoadPlan(pace=Pace(rate=100, ramp=10), duration=60, warmup=5))
    tally: Tally = attrs.field(factory=Tally)
    in_flight: int = 3
    started: float = 0.0
    until: float = 0.0
    begun: trio.Event = attrs.field(factory=trio.Event)
    others_cpu: float = 0.5

    def begin(self) -> None:
        self.started = trio.current_time() + self.plan.warmup
        self.until = self.started + self.plan.duration
        self.begun.set()


def live(load: Load | None, **about: str) -> LiveRun:
    return LiveRun(about=about, engine=lambda: load, watch=Watch(set()))


async def text_of(run: LiveRun, form: bytes = TEXT) -> str:
    return b"".join(await MetricsRoom(run).make(form)).decode()


async def samples(run: LiveRun) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(await text_of(run)):
        for one in family.samples:
            found.setdefault(one.name, []).append(one)
    return found


def value(found: dict[str, list[Any]], name: str, **labels: str) -> float:
    [one] = [one for one in found[name] if labels.items() <= one.labels.items()]
    return float(one.value)


def test_latencies_are_counted_up_to_each_bound() -> None:
    chance, tally = random.Random(7), Tally()
    taken = [10 ** chance.uniform(-5.5, 2.7) for _ in range(2000)] + list(BOUNDS)
    for seconds in taken:
        tally.record(seconds)
    found = durations(tally.latencies)
    assert found.count == len(taken)
    assert found.total == pytest.approx(sum(taken), rel=0.002)
    whole = [int(seconds * 1e6) for seconds in taken]  # as the histogram has them
    for number, bound in enumerate(BOUNDS):
        below, most = sum(found.counts[: number + 1]), round(bound * 1e6)
        assert sum(one <= most for one in whole) <= below <= sum(one <= most * 1.001 for one in whole)
    assert durations(Tally().latencies).count == 0


async def test_they_say_how_far_the_run_is(autojump_clock: MockClock) -> None:
    assert value(await samples(live(None)), "callboard_bench_phase", phase="connecting") == 1
    load = Load()
    run = live(load, target="http://x/mcp")
    seen = []
    load.begin()
    for _ in range(3):
        found = await samples(run)
        phase = next(one.labels["phase"] for one in found["callboard_bench_phase"] if one.value)
        elapsed = value(found, "callboard_bench_elapsed_seconds")
        seen.append((phase, value(found, "callboard_bench_target_rate"), elapsed, MetricsRoom(run).is_ready()))
        await trio.sleep(5 if phase == "warmup" else 100)
    assert seen == [("warmup", 0, 0, False), ("measuring", 50, 0, True), ("ending", 100, 60, False)]
    assert value(found, "callboard_bench_info", target="http://x/mcp") == 1
    assert value(found, "callboard_bench_in_flight") == 3
    assert value(found, "callboard_bench_generator_cpu") == 0.5


async def test_what_a_server_says_breaks_no_line_and_steps_are_bounded(autojump_clock: MockClock) -> None:
    load = Load()
    hostile = 'a "b"\\\nx{y="1"} 5\n# EOF\x1b[31m\u2028'
    for number in range(3 * MOST_STEPS):
        load.tally.succeeded(0.1, 1, step=f"{hostile} {number}" if number else "z" * 500)
    load.tally.succeeded(0.1, 1, step="z" * 501)  # the same as the first, as far as it is shown
    load.tally.broke(hostile, 1, step=f"{hostile} 1", text="secret")
    load.tally.counts["cancelled"] = 4
    run = live(load, label=hostile)
    found = await samples(run)
    opened = list(open_parser.text_string_to_metric_families(await text_of(run, OPEN_METRICS)))  # type: ignore[no-untyped-call]
    assert len(opened) > 8
    counts = found["callboard_bench_step_duration_seconds_count"]
    assert len(counts) == len({one.labels["step"] for one in counts}) == MOST_STEPS + 1
    assert sum(one.value for one in counts) == 3 * MOST_STEPS + 1
    assert value(found, "callboard_bench_request_duration_seconds_count") == 3 * MOST_STEPS + 1
    [error] = found["callboard_bench_errors_total"]
    assert error.labels["error"].startswith('a "b"\\ x{y="1"} 5 # EOF')
    assert not {"\n", "\x1b", "\u2028"} & set(error.labels["error"])
    assert value(found, "callboard_bench_events_total", event="cancelled") == 4
    assert "secret" not in await text_of(run)


async def test_many_that_ask_at_once_cost_as_much_as_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def noted(counted: Any) -> Durations:
        made.append(counted)
        return durations(counted)

    monkeypatch.setattr(live_metrics, "durations", noted)
    load = Load()
    load.begin()
    room = MetricsRoom(live(load))
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(room.make, TEXT)
    assert len(made) == 1
    await trio.sleep(1)
    await room.make(TEXT)
    assert len(made) == 2


@asynccontextmanager
async def exported() -> AsyncIterator[Place]:
    async with serving_metrics(BindAddress.parse(0), live(Load())) as url:
        assert url.endswith("/metrics")
        yield Place({"admin": url})


async def test_a_client_that_never_reads_or_never_asks_holds_up_nothing() -> None:
    with trio.fail_after(10):
        async with exported() as place:
            silent, deaf = await place.client(), await place.client()
            await deaf.send(f"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:{place.port}\r\n\r\n".encode() * 500)
            answer = await place.ask("/metrics")
            assert answer.status == 200
            assert b"callboard_bench_in_flight 3" in answer.body
            assert (await place.ask("/readyz")).status == 503
            assert [(await place.ask(path)).status for path in ("/", "/events", "/api/snapshot")] == [404, 404, 404]
            assert (await place.ask("/metrics", "origin: http://evil.example")).status == 403
        await silent.aclose()
        await deaf.aclose()
