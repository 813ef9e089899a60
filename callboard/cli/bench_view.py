"""Output of `bench`: a live view at a terminal, lines in a pipe, and a table at the end."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from callboard.bench.figures import FIGURES, percent, time, written
from callboard.bench.found import Probe
from callboard.bench.page import PageTable
from callboard.bench.result import MOST_ERRORS, BenchResult
from callboard.bench.tally import PERCENTILES, Tally
from callboard.cli.screen import Screen
from callboard.supervisor.printable import clean

MAX_KINDS: Final = 8
"""Kinds of errors that are told apart on a screen."""

MAX_PROBES_SHOWN: Final = 15
"""Probes of a search that are seen while it goes on: a terminal has 24 lines."""

BARS: Final = 10
BAR_WIDTH: Final = 40
"""Bars of a histogram at a terminal, and the characters of the longest."""

Rows = Sequence[tuple[str, str]]
Step = tuple[str, str, str, str, str, str]


@attrs.frozen(kw_only=True)
class Moment:
    """How it goes just now: the rate since the moment before, the rest since the start."""

    elapsed: float
    duration: float
    rate: float
    in_flight: int
    result: BenchResult

    @property
    def progress(self) -> str:
        """How much of the run is over: of its time, or of its requests."""
        of = self.result.settings.get("requests")
        if of is None:
            return f"{self.elapsed:.0f}/{self.duration:g} s"
        return f"{self.elapsed:.0f} s, {self.result.requests:,}/{of:,} requests"


@attrs.define(eq=False)
class BenchView:
    """Standard error while a run lasts. Nothing with `--json`."""

    screen: Screen
    _live: Live | None = attrs.field(default=None, init=False)

    @contextmanager
    def shown(self) -> Iterator[None]:
        if self.screen.is_quiet or not self.screen.console.is_terminal:
            yield
            return
        # It refreshes only when it is told to: a thread of its own would be felt in the latencies.
        with Live(console=self.screen.console, auto_refresh=False, transient=True) as self._live:
            yield
        self._live = None

    def waits(self, text: str) -> None:
        if self._live is not None:
            self._live.update(Text(text, style="dim"), refresh=True)

    def show(self, now: Moment) -> None:
        if self._live is not None:
            self._live.update(_table(live_rows(now)), refresh=True)
        elif not self.screen.is_quiet:
            self.screen.say(line(now))

    def probe(self, rate: float | None, probes: Sequence[Probe]) -> None:
        """A search goes on with this *rate*, or has ended; *probes* are over."""
        if self._live is not None:
            going = [] if rate is None else [(f"{rate:,.1f}/s", "...")]
            self._live.update(_table([*map(probe_row, probes[-MAX_PROBES_SHOWN:]), *going]), refresh=True)
        elif not self.screen.is_quiet and probes:
            self.screen.say(f"probe {len(probes)}: {': '.join(probe_row(probes[-1]))}")


def probe_row(probe: Probe) -> tuple[str, str]:
    """A probe on one line."""
    outcome = "held" if probe.held else f"did not hold: {probe.why}"
    return f"{probe.rate:,.1f}/s", f"p50 {_ms(probe.p50_ms)}, p99 {_ms(probe.p99_ms)}, {probe.errors} errors: {outcome}"


def _ms(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else time(milliseconds / 1e3)


PROBE_HEADINGS: Final = ("rate", "answered", "p50", "p99", "max", "errors", "generator CPU", "outcome")


def probe_rows(result: BenchResult) -> Sequence[Sequence[str]]:
    """The probes of a search, below their headings."""
    found = [] if result.find_limit is None else result.find_limit.probes
    return [
        PROBE_HEADINGS,
        *(
            (
                f"{probe.rate:,.1f}/s",
                f"{probe.answered:,.1f}/s",
                *map(_ms, (probe.p50_ms, probe.p99_ms, probe.max_ms)),
                f"{probe.errors:,}",
                f"{probe.generator_cpu:.0%}",
                "held" if probe.held else probe.why,
            )
            for probe in found
        ),
    ]


def line(now: Moment) -> str:
    """A moment on one line."""
    of, what = now.result.tally.percentiles(), now.result.settings.get("counted", "requests")
    if now.result.settings.get("profile") == "idle":
        lost = now.result.figures.get("sessions_lost", 0)
        return f"{now.progress}: {now.result.count:,} {what}, {lost:.0f} lost"
    return (
        f"{now.progress}: {now.rate:,.0f} {what}/s, {now.in_flight} in flight, "
        f"p50 {time(of[50.0])}, p99 {time(of[99.0])}, max {time(now.result.longest)}, {now.result.error_count} errors"
    )


def live_rows(now: Moment) -> Rows:
    return [
        ("time", now.progress.replace("/", " of ")),
        (f"{now.result.settings.get('counted', 'requests')}/s", f"{now.rate:,.0f}"),
        ("in flight", f"{now.in_flight:,}"),
        *_latencies(now.result),
        *_errors(now.result),
        *_figures(now.result),
        *_machine(now.result),
    ]


def rows(result: BenchResult) -> Rows:
    """A whole run."""
    made_by = str(result.settings.get("generator", "client"))
    return [
        *([] if result.find_limit is None else [("limit", str(result.find_limit))]),
        ("target", result.target),
        ("server", f"{result.server} ({result.revision})"),
        ("work", result.work),
        ("load", str(result.settings.get("load", ""))),
        ("generator", {"client": "callboard's client"}.get(made_by, made_by)),
        ("measured", f"{result.seconds:.1f} s"),
        *_counted(result),
        *_latencies(result),
        ("mean", time(result.tally.mean)),
        *_errors(result, has_examples=True),
        *_figures(result),
        *_machine(result),
        *result.provenance.told(),
    ]


def _counted(result: BenchResult) -> Rows:
    what = str(result.settings.get("counted", "requests"))
    which = _without_errors(result)
    rate = [] if result.settings.get("profile") == "idle" else [(f"{what}/s", f"{result.rate:,.1f}{which}")]
    return [(what, f"{result.requests:,}"), *rate]


def _without_errors(result: BenchResult) -> str:
    """Which requests were answered: of all, there may be many more."""
    return " without an error" if result.error_count else ""


def _figures(result: BenchResult) -> Rows:
    shown = [(name, figure) for name, figure in FIGURES.items() if name in result.figures]
    return [(figure.title, written(result.figures[name], figure.unit)) for name, figure in shown]


def page_tables(result: BenchResult) -> Sequence[PageTable]:
    """Tables of a report: the steps of a scenario, and the errors with an example each."""
    tally = result.tally
    kinds = [(kind, f"{count:,}", tally.examples.get(kind, "")) for kind, count in tally.errors.most_common()]
    return [
        PageTable("Probes", probe_rows(result)),
        PageTable("Steps", [STEP_HEADINGS, *step_rows(result)]),
        PageTable("Errors", [("kind", "count", "for example"), *kinds], has_numbers=False),
    ]


def page_rows(result: BenchResult) -> Rows:
    """The figures of a report. Kinds of errors have a table of their own."""
    return [(name, value) for name, value in rows(result) if not name.startswith("  ")]


STEP_HEADINGS: Final = ("step", "count", "p50", "p99", "max", "errors")


def step_rows(result: BenchResult) -> Sequence[Step]:
    """Latencies of each step, if the scenario has labels."""
    return [_step(label, counted) for label, counted in result.tally.steps.items()]


def _step(label: str, counted: Tally) -> Step:
    cancelled = counted.counts["cancelled"]
    count = f"{counted.count:,}" + (f" (and {cancelled:,} cancelled)" if cancelled else "")
    half, most, longest = map(time, (counted.percentile(50), counted.percentile(99), counted.longest))
    return label, count, half, most, longest, f"{counted.error_count:,}"


def _latencies(result: BenchResult) -> Rows:
    found = result.tally.percentiles()
    return [*((f"p{rank:g}", time(found[rank])) for rank in PERCENTILES), ("max", time(result.longest))]


def _errors(result: BenchResult, *, has_examples: bool = False) -> Rows:
    examples = result.tally.examples if has_examples else {}
    kinds = result.tally.errors.most_common(MAX_KINDS)
    total = f"{result.error_count:,}" + (f" ({percent(result.error_percent)})" if result.error_count else "")
    return [("errors", total), *((f"  {kind}", _example(count, examples.get(kind))) for kind, count in kinds)]


def _example(count: int, text: str | None) -> str:
    """How many there were of a kind, and what one of them said."""
    return f"{count:,}" if not text else f"{count:,}, for example: {text}"


def _machine(result: BenchResult) -> Rows:
    found = [("generator CPU", f"{result.generator_cpu:.0%} of a core")]
    if result.server_cpu is not None:
        found.append(("server CPU", f"{result.server_cpu:.0%} of a core"))
    if result.server_rss is not None:
        found.append(("server memory", f"{result.server_rss / 2**20:,.1f} MiB"))
    return found


def notes(result: BenchResult) -> Iterator[str]:
    """Warnings about the validity of the figures."""
    if result.find_limit is not None and result.find_limit.note:
        yield result.find_limit.note
    if result.is_bound_by_generator:
        yield (f"the generator used {result.generator_cpu:.0%} of its core: it may have been the bottleneck")
    for lost in result.lost_generators:
        yield f"a part of the load is missing, from {lost}"
    wanted = result.settings.get("rate")
    # A script, or what is published, is many requests, or many deliveries.
    unit = {"fanout": "published"}.get(str(result.settings.get("profile")), "scripts")
    done = result.figures[unit] / result.seconds if unit in result.figures and result.seconds else result.rate
    if unit not in result.figures and result.seconds:
        done += (result.error_count - result.unanswered) / result.seconds  # an error is an answer, too
    if wanted and not result.settings.get("ramp") and done < 0.95 * wanted:
        yield f"{wanted:g} per second were due, {done:,.1f} were answered"
    for start, end in result.silences:
        yield f"no answer from second {start} to {end}"
    if result.count and result.error_percent > MOST_ERRORS:
        answered = percent(100.0 - result.error_percent)
        yield f"{percent(result.error_percent)} of the requests failed: the latencies are those of the other {answered}"
    if result.unanswered:
        yield f"{result.unanswered:,} requests had no response at the end: they are not part of the percentiles"
    if result.settings.get("is_in_process"):
        yield "the server ran in the same process as the load generator: both share one core"
    yield from _profile_notes(result)


def _profile_notes(result: BenchResult) -> Iterator[str]:
    found = result.figures
    if found.get("answered_before", 0) > found.get("cancelled", 0):
        yield "most calls were answered before they were cancelled: use a --tool that takes longer than --every"
    if found.get("late_answers"):
        yield "cancelled calls were answered: a few can race with the cancellation, more are a bug of the server"
    if result.settings.get("profile") == "idle" and "memory_each" not in found:
        yield "the memory of the server is unknown: give its process id with --pid"
    if found.get("kills", 0) > found.get("recovered", 0):
        yield f"{found['kills'] - found['recovered']:.0f} kills were not recovered from before the end"
    if found.get("leaks"):
        yield f"{found['leaks']:.0f} answers contained the canary of another session: sessions are not kept apart"
    if found.get("mixed_up") or found.get("missing_canaries") or found.get("different_answers"):
        yield "answers were mixed up, or differed under load: see the errors"
    if found.get("extra_updates"):
        yield "more updates arrived than expected: several per change, or changes by other clients"


def print_rows(console: Console, found: Rows) -> None:
    """A table at a terminal, lines with tabs in a pipe."""
    if console.is_terminal:
        console.print(_table(found))
        return
    for row in found:
        console.file.write("\t".join(one_line(cell) for cell in row) + "\n")


def print_table(console: Console, found: Sequence[Sequence[str]]) -> None:
    """The same for rows below headings; nothing, if there are none."""
    if len(found) < 2:
        return
    if not console.is_terminal:
        for row in found:
            console.file.write("\t".join(one_line(cell) for cell in row) + "\n")
        return
    table = Table()
    for number, heading in enumerate(found[0]):
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in found[1:]:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console.print(table)


def histogram(result: BenchResult) -> Sequence[tuple[str, int]]:
    """How many requests took how long, in a few ranges that are evenly wide on a logarithmic scale."""
    recorded = result.tally.recorded()
    if len(recorded) < 2:
        return []
    low, high = math.log(recorded[0][0]), math.log(recorded[-1][0])
    width = (high - low) / BARS
    counts = [0] * BARS
    for latency, count in recorded:
        counts[min(int((math.log(latency) - low) / width), BARS - 1)] += count
    return [(f"up to {time(math.exp(low + width * (at + 1)))}", count) for at, count in enumerate(counts)]


def print_histogram(console: Console, found: Sequence[tuple[str, int]]) -> None:
    """Bars, at a terminal only: a pipe has the percentiles."""
    if not found or not console.is_terminal:
        return
    sign = "\N{FULL BLOCK}" if console.encoding.lower().startswith("utf") else "#"
    most = max(count for _, count in found)
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column(justify="right")
    for name, count in found:
        bar = sign * (math.ceil(BAR_WIDTH * count / most) if count else 0)
        table.add_row(Text(name, style="dim"), f"{count:,}", Text(bar, style="blue"))
    console.print(table)


def one_line(cell: str) -> str:
    """The text of a cell. It may come from a server, so separators and control characters are removed."""
    return " ".join(clean(cell).split())


def _table(found: Rows) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in found:
        style = "red" if name == "errors" and value != "0" else "bold" if name.endswith("/s") else ""
        table.add_row(Text(clean(name), style="dim"), Text(one_line(value), style=style))
    return table
