"""Output of `bench`: a live view at a terminal, lines in a pipe, and a table at the end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from callboard.bench.figures import FIGURES, percent, time, written
from callboard.bench.result import BenchResult
from callboard.bench.tally import PERCENTILES, Tally
from callboard.cli.screen import Screen
from callboard.supervisor.printable import clean

MAX_KINDS: Final = 8
"""Kinds of errors that are told apart on a screen."""

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


def line(now: Moment) -> str:
    """A moment on one line."""
    of, what = now.result.tally.percentiles(), now.result.settings.get("counted", "requests")
    if now.result.settings.get("profile") == "idle":
        lost = now.result.figures.get("sessions_lost", 0)
        return f"{now.elapsed:.0f}/{now.duration:g} s: {now.result.count:,} {what}, {lost:.0f} lost"
    return (
        f"{now.elapsed:.0f}/{now.duration:g} s: {now.rate:,.0f} {what}/s, {now.in_flight} in flight, "
        f"p50 {time(of[50.0])}, p99 {time(of[99.0])}, max {time(now.result.longest)}, {now.result.error_count} errors"
    )


def live_rows(now: Moment) -> Rows:
    return [
        ("time", f"{now.elapsed:.0f} of {now.duration:g} s"),
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
        ("target", result.target),
        ("server", f"{result.server} ({result.revision})"),
        ("work", result.work),
        ("load", str(result.settings.get("load", ""))),
        ("generator", {"client": "callboard's client"}.get(made_by, made_by)),
        ("measured", f"{result.seconds:.1f} s"),
        *_counted(result),
        *_latencies(result),
        *_errors(result),
        *_figures(result),
        *_machine(result),
    ]


def _counted(result: BenchResult) -> Rows:
    what = str(result.settings.get("counted", "requests"))
    rate = [] if result.settings.get("profile") == "idle" else [(f"{what}/s", f"{result.rate:,.1f}")]
    return [(what, f"{result.requests:,}"), *rate]


def _figures(result: BenchResult) -> Rows:
    shown = [(name, figure) for name, figure in FIGURES.items() if name in result.figures]
    return [(figure.title, written(result.figures[name], figure.unit)) for name, figure in shown]


def as_text(result: BenchResult) -> Rows:
    """A whole run with its steps, in two columns."""
    steps = [
        (f"step: {label}", f"{count}, p50 {half}, p99 {most}, max {longest}, {errors} errors")
        for label, count, half, most, longest, errors in step_rows(result)
    ]
    return [*rows(result), *steps]


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


def _errors(result: BenchResult) -> Rows:
    kinds = result.tally.errors.most_common(MAX_KINDS)
    total = f"{result.error_count:,}" + (f" ({percent(result.error_percent)})" if result.error_count else "")
    return [("errors", total), *((f"  {kind}", f"{count:,}") for kind, count in kinds)]


def _machine(result: BenchResult) -> Rows:
    found = [("generator CPU", f"{result.generator_cpu:.0%} of a core")]
    if result.server_cpu is not None:
        found.append(("server CPU", f"{result.server_cpu:.0%} of a core"))
    if result.server_rss is not None:
        found.append(("server memory", f"{result.server_rss / 2**20:,.1f} MiB"))
    return found


def notes(result: BenchResult) -> Iterator[str]:
    """Warnings about the validity of the figures."""
    if result.is_bound_by_generator:
        yield (f"the generator used {result.generator_cpu:.0%} of its core: it may have been the bottleneck")
    wanted = result.settings.get("rate")
    # A script, or what is published, is many requests, or many deliveries.
    unit = {"fanout": "published"}.get(str(result.settings.get("profile")), "scripts")
    done = result.figures[unit] / result.seconds if unit in result.figures and result.seconds else result.rate
    tried = done + (result.error_count / result.seconds if unit not in result.figures and result.seconds else 0.0)
    if wanted and not result.settings.get("ramp") and tried < 0.95 * wanted:
        yield f"{wanted:g} per second were due, {tried:,.1f} were sent"
    for start, end in result.silences:
        yield f"no answer from second {start} to {end}"
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
    if found.get("extra_updates"):
        yield "more updates arrived than expected: several per change, or changes by other clients"


def print_rows(console: Console, found: Rows) -> None:
    """A table at a terminal, lines with tabs in a pipe."""
    if console.is_terminal:
        console.print(_table(found))
        return
    for row in found:
        console.file.write("\t".join(one_line(cell) for cell in row) + "\n")


def print_steps(console: Console, found: Sequence[Step]) -> None:
    """The same, for what each step took."""
    if not found:
        return
    if not console.is_terminal:
        for row in (STEP_HEADINGS, *found):
            console.file.write("\t".join(one_line(cell) for cell in row) + "\n")
        return
    table = Table()
    for heading in STEP_HEADINGS:
        table.add_column(heading, justify="left" if heading == "step" else "right", overflow="fold")
    for row in found:
        table.add_row(*(Text(clean(cell)) for cell in row))
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
