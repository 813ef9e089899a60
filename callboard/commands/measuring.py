"""What `bench` shows: a live view at a terminal, lines in a pipe, and at the end a table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from callboard.bench.result import Result
from callboard.bench.tally import PERCENTILES
from callboard.commands.screen import Screen
from callboard.commands.terminal import clean

MAX_KINDS: Final = 8
"""Kinds of errors that are told apart on a screen."""

Rows = Sequence[tuple[str, str]]


@attrs.frozen(kw_only=True)
class Moment:
    """How it goes just now: the rate since the moment before, the rest since the start."""

    elapsed: float
    duration: float
    rate: float
    in_flight: int
    result: Result


@attrs.define(eq=False)
class View:
    """Standard error while a run lasts. Nothing for whoever wants JSON."""

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
    of = now.result.tally.percentiles()
    return (
        f"{now.elapsed:.0f}/{now.duration:g} s: {now.rate:,.0f} requests/s, {now.in_flight} in flight, "
        f"p50 {time(of[50.0])}, p99 {time(of[99.0])}, max {time(now.result.longest)}, {now.result.error_count} errors"
    )


def live_rows(now: Moment) -> Rows:
    return [
        ("time", f"{now.elapsed:.0f} of {now.duration:g} s"),
        ("requests/s", f"{now.rate:,.0f}"),
        ("in flight", f"{now.in_flight:,}"),
        *_latencies(now.result),
        *_errors(now.result),
        *_machine(now.result),
    ]


def rows(result: Result) -> Rows:
    """A whole run."""
    made_by = str(result.settings.get("generator", "client"))
    return [
        ("target", result.target),
        ("server", f"{result.server} ({result.revision})"),
        ("work", result.work),
        ("load", str(result.settings.get("load", ""))),
        ("made by", {"client": "callboard's client"}.get(made_by, made_by)),
        ("measured", f"{result.seconds:.1f} s"),
        ("requests", f"{result.count:,}"),
        ("requests/s", f"{result.rate:,.1f}"),
        *_latencies(result),
        *_errors(result),
        *_machine(result),
    ]


def _latencies(result: Result) -> Rows:
    found = result.tally.percentiles()
    return [*((f"p{percent:g}", time(found[percent])) for percent in PERCENTILES), ("max", time(result.longest))]


def _errors(result: Result) -> Rows:
    kinds = result.tally.errors.most_common(MAX_KINDS)
    total = f"{result.error_count:,}" + (f" ({result.error_percent:.2g} %)" if result.error_count else "")
    return [("errors", total), *((f"  {kind}", f"{count:,}") for kind, count in kinds)]


def _machine(result: Result) -> Rows:
    found = [("generator CPU", f"{result.generator_cpu:.0%} of a core")]
    if result.server_cpu is not None:
        found.append(("server CPU", f"{result.server_cpu:.0%} of a core"))
    if result.server_rss is not None:
        found.append(("server memory", f"{result.server_rss / 2**20:,.1f} MiB"))
    return found


def time(seconds: float) -> str:
    """As people read it."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def notes(result: Result) -> Iterator[str]:
    """What must be known to believe the figures."""
    if result.is_bound_by_generator:
        yield (
            f"the generator used {result.generator_cpu:.0%} of its core: it may have been the limit, and not the server"
        )
    wanted = result.settings.get("rate")
    if wanted and not result.settings.get("ramp") and result.rate < 0.95 * wanted:
        yield f"{wanted:g} requests/s were due, and {result.rate:,.1f} were answered"
    if result.settings.get("is_in_process"):
        yield "the server ran in this very process, and took from the load what it used"


def print_rows(console: Console, found: Rows) -> None:
    """A table at a terminal, lines with tabs in a pipe."""
    if console.is_terminal:
        console.print(_table(found))
        return
    for row in found:
        console.file.write("\t".join(cell.replace("\t", " ").strip() for cell in row) + "\n")


def _table(found: Rows) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in found:
        style = "red" if name == "errors" and value != "0" else "bold" if name == "requests/s" else ""
        table.add_row(Text(clean(name), style="dim"), Text(clean(value), style=style))
    return table
