"""The figures of a run while it lasts, as metrics.

Nothing is counted for them: they are read from the tally when they are asked for, so a run that is not looked at costs
the same. A label is never free for a server to choose, except the kinds of its errors, of which there is a most.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs
import trio

from callboard.bench.engine import LoadPlan
from callboard.bench.machine import Watch
from callboard.bench.tally import MAX_KIND, OTHERS, Tally
from callboard.observe.durations import BOUNDS, Durations
from callboard.observe.metrics import Families, Family, Labels, Sample, histogram
from callboard.supervisor.printable import clean

MOST_STEPS: Final = 50
"""Steps of a scenario that have series of their own, some 30 each; the others share one."""

Phase: TypeAlias = Literal["connecting", "warmup", "measuring", "ending"]
PHASES: Final[tuple[Phase, ...]] = ("connecting", "warmup", "measuring", "ending")


class Driver(Protocol):
    """What is read of a load, wherever it is made."""

    @property
    def plan(self) -> LoadPlan: ...
    @property
    def tally(self) -> Tally: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def started(self) -> float: ...
    @property
    def until(self) -> float: ...
    @property
    def begun(self) -> trio.Event: ...
    @property
    def others_cpu(self) -> float: ...


@attrs.frozen(kw_only=True, eq=False)
class LiveRun:
    """What is read of a run."""

    about: Mapping[str, str]
    """What it is, for the labels of one series."""
    engine: Callable[[], Driver | None]
    """None until there is one."""
    watch: Watch

    @property
    def phase(self) -> Phase:
        engine, now = self.engine(), trio.current_time()
        if engine is None or not engine.begun.is_set():
            return "connecting"
        if now < engine.started:
            return "warmup"
        return "measuring" if now < engine.until else "ending"

    async def families(self) -> Families:
        """Everything that is known now. Made in steps, between which the load goes on."""
        engine = self.engine()
        tally = Tally() if engine is None else engine.tally
        steps = list(tally.steps.items())
        found = [*self._present(engine), *_counts(tally, steps)]
        bounds = list(BOUNDS)
        whole: list[tuple[Labels, Durations]] = [({}, durations(tally.latencies))]
        help_ = "How long answered requests took; at a rate, from when each was due."
        found.append(await histogram("callboard_bench_request_duration_seconds", help_, bounds, whole))
        help_ = "The same for each step of a scenario."
        named = [({"step": name}, took) async for name, took in _by_step(steps)]
        found.append(await histogram("callboard_bench_step_duration_seconds", help_, bounds, named))
        return found

    def _present(self, engine: Driver | None) -> Iterator[Family]:
        about = {name: _label(value) for name, value in self.about.items() if value}
        yield Family("callboard_bench_info", "info", "What is measured, and how.", [Sample(about, 1.0)])
        phases = [Sample({"phase": one}, float(one == self.phase)) for one in PHASES]
        yield Family("callboard_bench_phase", "gauge", "1 for the phase that the run is in.", phases)
        plan = None if engine is None else engine.plan
        seconds = 0.0
        if engine is not None and engine.begun.is_set():
            seconds = max(0.0, min(trio.current_time(), engine.until) - engine.started)
        yield _gauge("callboard_bench_elapsed_seconds", "How long has been measured.", seconds)
        yield _gauge("callboard_bench_sessions", "Sessions that the load uses.", 0 if plan is None else plan.sessions)
        in_flight = 0 if engine is None else engine.in_flight
        yield _gauge("callboard_bench_in_flight", "Requests that are not answered yet.", in_flight)
        if engine is not None and plan is not None and plan.pace is not None:
            yield _gauge("callboard_bench_target_rate", "Requests per second that are due.", _due(engine))
        cpu = max(self.watch.own_cpu, 0.0 if engine is None else engine.others_cpu)
        yield _gauge("callboard_bench_generator_cpu", "Share of one core that the busiest generator used.", cpu)
        if self.watch.rss is not None:
            yield _gauge("callboard_bench_server_memory_bytes", "Memory of the server, at its most.", self.watch.rss)


def _due(engine: Driver) -> float:
    pace = engine.plan.pace
    if pace is None or not engine.begun.is_set():
        return 0.0
    since = trio.current_time() - (engine.started - engine.plan.warmup)
    return pace.rate * min(1.0, max(0.0, since / pace.ramp)) if pace.ramp else pace.rate


def _counts(tally: Tally, steps: list[tuple[str, Tally]]) -> Iterator[Family]:
    kinds = [Sample({"error": _label(kind)}, count) for kind, count in tally.errors.items()]
    name, help_ = "callboard_bench_errors_total", "Requests that failed, by kind."
    yield Family(name, "counter", help_, kinds or [Sample({})])
    events = [Sample({"event": event}, count) for event, count in tally.counts.items()]
    yield Family("callboard_bench_events_total", "counter", "What else has happened, as --json names it.", events)
    failed: dict[str, float] = {}
    for label, counted in _shown(steps):
        failed[label] = failed.get(label, 0) + counted.error_count
    samples = [Sample({"step": label}, count) for label, count in failed.items()]
    yield Family("callboard_bench_step_errors_total", "counter", "Requests of each step that failed.", samples)


async def _by_step(steps: list[tuple[str, Tally]]) -> AsyncIterator[tuple[str, Durations]]:
    found: dict[str, Durations] = {}
    for label, counted in _shown(steps):
        took = durations(counted.latencies)
        found[label] = Durations.sum([found[label], took]) if label in found else took
        await trio.lowlevel.checkpoint()
    for label, took in found.items():
        yield label, took


def _shown(steps: list[tuple[str, Tally]]) -> Iterator[tuple[str, Tally]]:
    """Each step by its label, which may be that of several: they were shortened, or there are too many."""
    for number, (label, counted) in enumerate(steps):
        yield _label(label) if number < MOST_STEPS else OTHERS, counted


def durations(counted: Any) -> Durations:
    """A histogram of a tally, up to the bounds of metrics. A count goes where its shortest latency belongs."""
    half = counted.sub_bucket_half_count_magnitude
    counts = counted.counts[: _index(half, counted.max_value) + 1] if counted.total_count else []
    found, at = [], 0
    for bound in BOUNDS:
        end = _index(half, round(bound * 1e6)) + 1
        found.append(sum(counts[at:end]))
        at = end
    found.append(sum(counts[at:]))
    total = sum(count * _value(half, index) for index, count in enumerate(counts) if count)
    return Durations(found, total / 1e6)


def _index(half: int, value: int) -> int:
    """Where a histogram counts a value: see `callboard.bench.tally.record`."""
    shift = value.bit_length() - half - 1
    return value if shift <= 0 else (shift << half) + (value >> shift)


def _value(half: int, index: int) -> int:
    """The shortest that is counted there."""
    shift = max((index >> half) - 1, 0)
    return (index - (shift << half)) << shift


def _gauge(name: str, help_: str, value: float) -> Family:
    return Family(name, "gauge", help_, [Sample({}, value)])


def _label(text: str) -> str:
    return clean(" ".join(text.split()))[:MAX_KIND]
