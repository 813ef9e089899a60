"""`callboard bench compare`: what has changed from one run to another."""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callboard.bench.earlier import Compared, compared, usual
from callboard.bench.figures import FIGURES, percent, time, written
from callboard.bench.page import PageTable, page
from callboard.bench.result import MOST_ERRORS, BenchResult, NotAResult
from callboard.bench.tally import PERCENTILES
from callboard.cli.arguments import BadArgument
from callboard.cli.bench import BENCH_EXAMPLES, bench, write
from callboard.cli.bench_view import notes, one_line
from callboard.cli.codes import Exit
from callboard.cli.complaints import complain
from callboard.cli.screen import Screen
from callboard.cli.serve_flags import Json
from callboard.supervisor.printable import clean

MOST_RUNS: Final = 100
"""Runs that are compared at once. Each is read as a whole."""

COMPARE_EXAMPLES: Final = """\
Examples:

  callboard bench URL --json > before.json
  callboard bench URL --json > after.json
  callboard bench compare before.json after.json --html compared.html
  callboard bench compare mon.json tue.json wed.json today.json

Exit codes: 0 success; 2 not a file written by `callboard bench --json`.
"""


def compare(
    before: Annotated[Path, Parameter(name="A", help="Result of the first run, written by `callboard bench --json`.")],
    after: Annotated[Path, Parameter(name="B", help="Result of the second run.")],
    /,
    *more: Annotated[
        Path,
        Parameter(name="C", help="More runs: then the last one is compared with the median of all the others."),
    ],
    html: Annotated[Path | None, Parameter(help="Write an HTML report with plots of both runs to this file.")] = None,
    json: Json = False,
) -> int:
    """Compare results of `callboard bench --json`: two, or the last with the median of all earlier ones."""
    screen = Screen(is_quiet=json)
    try:
        if more:
            return _with_earlier([before, after, *more[:-1]], more[-1], screen, html, is_json=json)
        runs = BenchResult.read(before), BenchResult.read(after)
        names = _names(before, after)
        table = [("", *names, "change"), *_rows(*runs)]
        if json:
            _print_json(*runs)
        else:
            _print(Console(), table)
        said = [f"{name}: {note}" for name, run in zip(names, runs, strict=True) for note in _said(run)]
        said += _differences(*runs)
        for note in said:
            screen.say(f"callboard: {note}")
        if html is not None:
            tables = [PageTable("Steps", _steps(names, *runs))]
            write(html, page("callboard bench compare", dict(zip(names, runs, strict=True)), table, said, tables))
    except (NotAResult, BadArgument) as error:
        complain(screen, error)
        return Exit.USAGE
    return Exit.FINE


def _with_earlier(files: Sequence[Path], newest: Path, screen: Screen, html: Path | None, *, is_json: bool) -> int:
    """Raises `NotAResult` and `BadArgument`."""
    if len(files) >= MOST_RUNS:
        raise BadArgument(f"at most {MOST_RUNS} runs can be compared")
    earlier, new = [BenchResult.read(file) for file in files], BenchResult.read(newest)
    found = list(compared(earlier, new))
    table = [("", f"median of {len(earlier)}", "range", newest.stem, "change"), *map(_compared_row, found)]
    if is_json:
        shown = {one.name: {**attrs.asdict(one), "ratio": one.ratio, "is_outside": one.is_outside} for one in found}
        sys.stdout.write(json.dumps({"earlier": [str(file) for file in files], "figures": shown}, indent=2) + "\n")
    else:
        _print(Console(), table)
    left_out = sum(not run.is_comparable for run in earlier)
    said = [f"{newest.stem}: {note}" for note in _said(new)]
    said += [f"latencies of {left_out} earlier runs are left out: they had errors or stalls"] if left_out else []
    said += list(dict.fromkeys(note for run in earlier for note in _differences(run, new)))
    said += [f"{one.name} is outside of all earlier runs" for one in found if one.is_outside]
    for note in said:
        screen.say(f"callboard: {note}")
    if html is not None:
        write(html, page("callboard bench compare", {"usual": usual(earlier), newest.stem: new}, table, said, []))
    return Exit.FINE


def _compared_row(one: Compared) -> tuple[str, str, str, str, str]:
    def shown(value: float) -> str:
        return time(value) if one.is_time else percent(value) if one.name == "errors" else f"{value:,.1f}"

    edges = f"{shown(one.low)} to {shown(one.high)}"
    return one.name, shown(one.median), edges, shown(one.new), _change(one.median, one.new)


def _said(run: BenchResult) -> Iterator[str]:
    """Warnings about a run before it is compared."""
    if run.error_percent > MOST_ERRORS:
        yield f"{run.error_count:,} of {run.requests:,} requests failed: latencies are not compared"
    yield from notes(run)


def _names(before: Path, after: Path) -> tuple[str, str]:
    """Names that tell the two runs apart."""
    if before.stem != after.stem:
        return before.stem, after.stem
    return ("A", "B") if str(before) == str(after) else (str(before), str(after))


def _figures(run: BenchResult) -> dict[str, float]:
    found = run.tally.percentiles()
    return {f"p{percent:g}": found[percent] for percent in PERCENTILES} | {"max": run.longest}


def _rows(before: BenchResult, after: BenchResult) -> Sequence[tuple[str, str, str, str]]:
    told = [("target", before.target, after.target, ""), ("work", before.work, after.work, "")]
    load = [str(run.settings.get("load", "")) for run in (before, after)]
    latencies = zip(_figures(before).items(), _figures(after).values(), strict=True)
    change = _change if before.is_comparable and after.is_comparable else _no_change
    return [
        *_provenance(before, after),
        *told,
        ("load", load[0], load[1], ""),
        ("requests/s", f"{before.rate:,.1f}", f"{after.rate:,.1f}", _change(before.rate, after.rate)),
        *((name, time(old), time(new), change(old, new)) for (name, old), new in latencies),
        ("errors", f"{before.error_count:,}", f"{after.error_count:,}", _change(before.error_count, after.error_count)),
        *_further(before.figures, after.figures),
    ]


def _provenance(before: BenchResult, after: BenchResult) -> Sequence[tuple[str, str, str, str]]:
    """Labels, dates, machines and versions, as far as they are known of one of them."""
    old, new = dict(before.provenance.told()), dict(after.provenance.told())
    titles = [title for title in ("label", "date", "machine", "versions") if title in old or title in new]
    return [(title, old.get(title, "-"), new.get(title, "-"), "") for title in titles]


def _differences(before: BenchResult, after: BenchResult) -> Iterator[str]:
    """Why the two may differ although the server does not."""
    one, other = before.provenance, after.provenance
    if one.machine and other.machine and one.machine != other.machine:
        yield "the runs were made on different machines"
    if one.versions and other.versions and one.versions != other.versions:
        yield "the runs were made with different versions of the load generator"


def _steps(names: tuple[str, str], before: BenchResult, after: BenchResult) -> Sequence[Sequence[str]]:
    """Steps that both runs have, side by side, below their headings."""
    found = [tuple(f"{what}, {name}" for what in ("p50", "p99", "errors") for name in names)]
    both = [label for label in before.tally.steps if label in after.tally.steps]
    for label in both:
        old, new = before.tally.steps[label], after.tally.steps[label]
        times = (time(one.percentile(rank)) for rank in (50, 99) for one in (old, new))
        found.append((*times, f"{old.error_count:,}", f"{new.error_count:,}"))
    return [(first, *row) for first, row in zip(("step", *both), found, strict=True)]


def _further(before: Mapping[str, float], after: Mapping[str, float]) -> Sequence[tuple[str, str, str, str]]:
    """The other figures that both runs have."""
    found = []
    for name, figure in FIGURES.items():
        if name in before and name in after:
            old, new = before[name], after[name]
            shown = written(old, figure.unit), written(new, figure.unit)
            found.append((figure.title, *shown, _change(old, new)))
    return found


def _no_change(_: float, __: float) -> str:
    return "-"


def _change(old: float, new: float) -> str:
    if math.isnan(old) or math.isnan(new):
        return "-"
    if old == new:
        return "0 %"
    return f"{100 * (new - old) / old:+.1f} %" if old else "new"


def _print(console: Console, rows: Sequence[tuple[str, ...]]) -> None:
    """A table at a terminal, lines with tabs in a pipe."""
    if not console.is_terminal:
        for row in rows:
            console.file.write("\t".join(one_line(cell) for cell in row) + "\n")
        return
    table = Table()
    for heading in rows[0]:
        table.add_column(Text(clean(heading)), overflow="fold")
    for row in rows[1:]:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console.print(table)


def _print_json(before: BenchResult, after: BenchResult) -> None:
    ratios: dict[str, Any] = {"requests_per_second": _ratio(before.rate, after.rate)}
    is_comparable = before.is_comparable and after.is_comparable
    for (name, old), new in zip(_figures(before).items(), _figures(after).values(), strict=True):
        ratios[name] = _ratio(old, new) if is_comparable else None
    shown = [{key: value for key, value in run.as_json().items() if key != "histograms"} for run in (before, after)]
    sys.stdout.write(json.dumps({"before": shown[0], "after": shown[1], "ratios": ratios}, indent=2) + "\n")


def _ratio(old: float, new: float) -> float | None:
    return round(new / old, 4) if old else None


def print_schema() -> int:
    """Print the JSON Schema of scenario files, for editors."""
    from callboard.bench.scenario_schema import schema

    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
    return Exit.FINE


def generator() -> int:
    """Make load for `callboard bench --generator` of another machine, which starts this over ssh."""
    if sys.stdin.isatty():
        Screen().say("callboard: started by `callboard bench URL --generator 'ssh HOST callboard'`, not by hand")
        return Exit.USAGE
    from callboard.cli.bench_worker import main

    return main()


# All commands, because this module imports that of `bench`.
APP: Final = App(name="bench", help_format="plaintext", help_epilogue=BENCH_EXAMPLES)
APP.default(bench)
APP.command(compare, help_epilogue=COMPARE_EXAMPLES)
APP.command(generator)
APP.command(print_schema, name="schema")
