"""A run, or two of them, as one page that needs nothing else: no network, no script. What is shown under the mouse is
a matter of the style sheet."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Final

import attrs

from callboard.bench import plots
from callboard.bench.figures import time
from callboard.bench.plots import Axis, Series, Spot, log
from callboard.bench.result import BenchResult

BARS: Final = 60
"""Bars of a histogram."""

STEPS: Final = 20
"""Points of the percentile curve for each further nine."""

MAX_SPOTS: Final = 300
"""Places of a plot that have a text under the mouse: more are narrower than what a hand can point at."""

STRAGGLERS: Final = 0.1
"""Share of a usual second's answers below which those after the end are no second of their own."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2733; --dim: #5d6a77; --rule: #dfe4e8; --paper: #fff;
  --a: #0b6bcb; --b: #d1600a; --bad: #c2182b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --dim: #93a0ad; --rule: #2d3844; --paper: #141a21; --a: #5aa9f7; --b: #f79a52;
    --bad: #ff6b78; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 900px;
  margin: 2em auto; padding: 0 1em; overflow-wrap: break-word; }
h1 { font-size: 1.4em; line-height: 1.3; } figure { margin: 2em 0; } figcaption { margin-bottom: .4em; }
dl { columns: 24em 2; column-gap: 2em; margin: 1.5em 0; } dl div { display: flex; break-inside: avoid; }
dt { flex: 0 0 8.5em; color: var(--dim); white-space: pre-wrap; } dd { margin: 0; min-width: 0; }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--dim); }
h2 { font-size: 1.1em; margin: 1.6em 0 .4em; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15em 1.5em .15em 0; vertical-align: top; }
td { overflow-wrap: anywhere; } th, td:last-child { white-space: nowrap; }
th { font-weight: normal; color: var(--dim); } thead th { font-weight: 600; color: var(--ink); }
td, dd { font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); fill: none; } .line { fill: none; stroke-width: 2; stroke: currentColor; }
.area { fill: currentColor; fill-opacity: .3; stroke: currentColor; } .dot { fill: currentColor; }
.a { color: var(--a); } .b { color: var(--b); } .bad { color: var(--bad); }
.spot rect { fill: transparent; } .spot:hover rect { fill: var(--dim); fill-opacity: .15; }
.spot .tip { visibility: hidden; fill: var(--ink); stroke: var(--paper); stroke-width: 5px; paint-order: stroke;
  font-variant-numeric: tabular-nums; pointer-events: none; } .spot:hover .tip { visibility: visible; }
.numbers td { text-align: right; } .numbers thead th + th { text-align: right; } .wide { overflow-x: auto; }
.faint { stroke-dasharray: 6 3; stroke-opacity: .8; }
.thin { stroke-width: 1.5; stroke-dasharray: 2 3; } .line, .area, .grid { vector-effect: non-scaling-stroke; }
.key { white-space: nowrap; font-size: .85em; margin-left: 1em; }
.key::before { content: ""; display: inline-block; width: 1.6em; margin-right: .4em; vertical-align: .3em;
  border-top: 2px solid; }
.key span { color: var(--ink); } .key.faint::before { border-top-style: dashed; }
.key.thin::before { border-top: 2px dotted; }
.note { border-left: 4px solid var(--b); padding-left: 1em; }
@media (max-width: 600px) { svg text { font-size: 20px; } table { font-size: .85em; }
  td, th { padding-right: .7em; } td:last-child { padding-right: 0; } }
"""

_COLOURS: Final = ("a", "b")


_MICRO: Final = re.compile(r"(\d) us\b")

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


@attrs.frozen
class PageTable:
    """Rows below a title; the first row has the headings. The cells after the first are numbers, or are text."""

    title: str
    rows: Sequence[Sequence[str]]
    has_numbers: bool = True


def page(
    title: str,
    runs: Mapping[str, BenchResult],
    table: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    tables: Sequence[PageTable] = (),
    more_plots: Sequence[str] = (),
) -> str:
    """The page: *runs* by name, one or two; the *table* begins with its headings, if there are two. Further *tables*
    and plots follow it."""
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
    ]
    body = [
        f"<h1>{escape(title)}</h1>",
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        _table(table) if len(runs) > 1 else _pairs(table),
        *(_titled(one) for one in tables if len(one.rows) > 1),
        *more_plots,
        *_plots(runs),
    ]
    lines = ["<!doctype html>", '<html lang="en"><head>', *head, "</head><body>", *body, "</body></html>"]
    return "\n".join(lines) + "\n"


def _plots(runs: Mapping[str, BenchResult]) -> Sequence[str]:
    if not any(run.count for run in runs.values()):
        return ["<p>No request was answered: there is nothing to plot.</p>"]
    return [_rates(runs), _over_time(runs), _histogram(runs), _percentiles(runs)]


def search_plots(run: BenchResult) -> Sequence[str]:
    """Latencies at each rate of a search for the highest, if there was one."""
    probes = sorted(run.find_limit.probes, key=lambda one: one.rate) if run.find_limit is not None else []
    told = [one for one in probes if one.p50_ms is not None and one.p99_ms is not None]
    if not told:
        return []
    low, high = math.floor(log(told[0].rate)), math.ceil(log(told[-1].rate * 1.001))
    axis = Axis(low, high, [(float(power), f"{10.0**power:,g}/s") for power in range(low, high + 1)])
    both = {"p50": [(one.p50_ms or 0) / 1e3 for one in told], "p99": [(one.p99_ms or 0) / 1e3 for one in told]}
    series = [
        Series(name=name, points=[(log(one.rate), log(at)) for one, at in zip(told, times, strict=True)], style=style)
        for (name, times), style in zip(both.items(), ("a", "a faint"), strict=True)
    ]
    edges = [log(one.rate) for one in told]
    spots = [
        Spot(
            edge, after, [f"{one.rate:,.1f}/s: p50 {_time(half)}, p99 {_time(most)}, {'held' if one.held else one.why}"]
        )
        for one, edge, after, half, most in zip(told, edges, [*edges[1:], high], *both.values(), strict=True)
    ]
    return [plots.plot("Latency by rate", axis, plots.latency_axis([*both["p50"], *both["p99"]]), series, spots)]


def _pairs(rows: Sequence[Sequence[str]]) -> str:
    found = (f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in rows)
    return f"<dl>{''.join(found)}</dl>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    heading, *others = (
        f"<th>{_text(name)}</th>" + "".join(f"<td>{_text(value)}</td>" for value in values) for name, *values in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in others)
    return f"<table><thead><tr>{heading.replace('td>', 'th>')}</tr></thead><tbody>{body}</tbody></table>"


def _titled(table: PageTable) -> str:
    kind = "numbers" if table.has_numbers else "texts"
    return f'<h2>{escape(table.title)}</h2><div class="wide {kind}">{_table(table.rows)}</div>'


def _text(value: str) -> str:
    """As HTML. A terminal may have no sign for micro; a page has."""
    return _MICRO.sub("\\1 \N{MICRO SIGN}s", escape(value))


def _time(seconds: float) -> str:
    return _MICRO.sub("\\1 \N{MICRO SIGN}s", time(seconds))


def _named(run: str, what: str, runs: Mapping[str, BenchResult]) -> str:
    return what if len(runs) == 1 else f"{run} {what}".strip()


def _rates(runs: Mapping[str, BenchResult]) -> str:
    """Answers and errors, second by second; also of seconds in which there were none."""
    series, highest, longest = [], 1.0, 1.0
    by_run = [(name, _counts(run)) for name, run in runs.items()]
    for (name, counts), colour in zip(by_run, _COLOURS, strict=False):
        longest = max(longest, float(len(counts)))
        for what, column, style in (("answered", 0, colour), ("errors", 1, "bad" if colour == "a" else "bad faint")):
            points = [(at + 0.5, pair[column]) for at, pair in enumerate(counts)]
            highest = max([highest, *(rate for _, rate in points)])
            series.append(Series(name=_named(name, what, runs), points=points, style=style))
    texts = [
        [
            f"{at} s: {_named(name, f'{good:,.0f} answered, {bad:,.0f} errors', runs)}"
            for at, (good, bad) in enumerate(one)
        ]
        for name, one in by_run
    ]
    axes = plots.seconds_axis(longest), plots.rate_axis(highest)
    return plots.plot("Requests per second", *axes, series, _by_second(texts, longest))


def _counts(run: BenchResult) -> Sequence[tuple[float, float]]:
    """Of each second, how many were answered and how many failed, as a rate: the last one may be shorter."""
    known = {second: (count, failed) for second, count, *_, failed in run.by_second()}
    found = []
    for second in range(max(math.ceil(run.seconds), 1)):
        count, failed = known.get(second, (0, 0))
        length = min(1.0, run.seconds - second) or 1.0
        found.append((count / length, failed / length))
    return found


def _by_second(texts: Sequence[Sequence[str]], longest: float) -> Sequence[Spot]:
    """The texts of each run for each second; of a long run, for each of a few hundred."""
    step = math.ceil(longest / MAX_SPOTS)
    return [
        Spot(at, at + step, [one[at] for one in texts if at < len(one) and one[at]])
        for at in range(0, math.ceil(longest), step)
    ]


def _over_time(runs: Mapping[str, BenchResult]) -> str:
    series, latencies, longest, texts = [], [1e-3], 1.0, list[list[str]]()
    for (name, run), colour in zip(runs.items(), _COLOURS, strict=False):
        seconds = _seconds(run)
        longest = max([longest, *(one[0] + 1.0 for one in seconds)])
        told = {one[0]: "p50 {}, p99 {}, max {}".format(*map(_time, one[1:])) for one in seconds}
        last = max(told, default=-1)
        texts.append([f"{at} s: {_named(name, told.get(at, 'no answer'), runs)}" for at in range(last + 1)])
        for what, column, style in (("p50", 1, ""), ("p99", 2, "faint"), ("max", 3, "thin")):
            points = [(one[0] + 0.5, float(one[column])) for one in seconds]
            latencies += [latency for _, latency in points]
            logs = [(at, log(latency)) for at, latency in points]
            series.append(Series(name=_named(name, what, runs), points=logs, style=f"{colour} {style}".strip()))
    axes = plots.seconds_axis(longest), plots.latency_axis(latencies[1:])
    return plots.plot("Latency over time", *axes, series, _by_second(texts, longest))


def _seconds(run: BenchResult) -> Sequence[tuple[int, float, float, float]]:
    """Each second with its p50, p99 and longest. What came after the end is a second of its own only if there is enough
    of it: of the last few answers there is no p50 to speak of, and their longest counts as the last second's."""
    least, found = STRAGGLERS * run.rate, list[tuple[int, float, float, float]]()
    for second, count, half, most, longest, _ in run.by_second():
        if found and second >= run.seconds and count < least:
            number, p50, p99, before = found.pop()
            found.append((number, p50, p99, max(before, longest)))
        elif not math.isnan(half):
            found.append((second, half, most, longest))
    return found


def _histogram(runs: Mapping[str, BenchResult]) -> str:
    axis = plots.latency_axis([latency for run in runs.values() for latency, _ in run.tally.recorded()])
    series, highest, width = [], 0.0, (axis.high - axis.low) / BARS
    texts = list[list[str]]()
    for (name, run), colour in zip(runs.items(), _COLOURS, strict=False):
        shares = _shares(run, axis)
        texts.append([_named(name, f"{share:.2f} %", runs) for share in shares])
        highest = max([highest, *shares])
        points = [
            point
            for number, share in enumerate(shares)
            for point in ((axis.low + number * width, share), (axis.low + (number + 1) * width, share))
        ]
        label = _named(name, "share of the requests", runs)
        series.append(Series(name=label, points=points, style=colour, is_area=True))
    edges = [axis.low + number * width for number in range(BARS + 1)]
    spots = [
        Spot(low, high, [f"{_time(10**low)} to {_time(10**high)}: {text}" for text in column])
        for low, high, column in zip(edges, edges[1:], zip(*texts, strict=True), strict=False)
    ]
    return plots.plot("Histogram of latencies", axis, plots.share_axis(highest), series, spots)


def _shares(run: BenchResult, axis: Axis) -> list[float]:
    """Percent of the requests in each bar."""
    counts = [0] * BARS
    for latency, count in run.tally.recorded():
        at = (log(latency) - axis.low) / (axis.high - axis.low)
        counts[min(max(int(at * BARS), 0), BARS - 1)] += count
    return [100.0 * count / max(run.count, 1) for count in counts]


def _percentiles(runs: Mapping[str, BenchResult]) -> str:
    series, latencies, most, curves = [], [], 1.0, list[tuple[str, dict[float, float]]]()
    for (name, run), colour in zip(runs.items(), _COLOURS, strict=False):
        curve = _curve(run)
        curves.append((name, dict(curve)))
        latencies += [latency for _, latency in curve]
        most = max([most, *(at for at, _ in curve)])
        points = [(at, log(latency)) for at, latency in curve]
        series.append(Series(name=_named(name, "latency", runs), points=points, style=colour))
    axis = plots.percent_axis(most)
    places = [number / STEPS for number in range(math.ceil(most * STEPS))]
    spots = [
        Spot(
            at,
            at + 1 / STEPS,
            [
                f"{100 - 10 ** (2 - at):.6g} %: {_named(name, _time(curve[at]), runs)}"
                for name, curve in curves
                if at in curve
            ],
        )
        for at in places
    ]
    return plots.plot("Latency by percentile", axis, plots.latency_axis(latencies), series, spots)


def _curve(run: BenchResult) -> list[tuple[float, float]]:
    """How many nines, and the latency within which so many were answered; up to the longest of all."""
    recorded = run.tally.recorded()
    if not recorded:
        return []
    sums = list(accumulate(count for _, count in recorded))
    points, at = [], 0
    for step in range(int(log(run.count) * STEPS) + 1):
        wanted = run.count * (1 - 10 ** (-step / STEPS))
        while sums[at] < wanted:
            at += 1
        points.append((step / STEPS, recorded[at][0]))
    return [*points, (log(run.count), recorded[-1][0])]
