"""A run, or two of them, as one page that needs nothing else: no network, no script."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Final

from callboard.bench import plots
from callboard.bench.plots import Axis, Series, log
from callboard.bench.result import BenchResult

BARS: Final = 60
"""Bars of a histogram."""

STEPS: Final = 20
"""Points of the percentile curve for each further nine."""

STRAGGLERS: Final = 0.1
"""Share of a usual second's answers below which those after the end are no second of their own."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2733; --dim: #5d6a77; --rule: #dfe4e8; --paper: #fff;
  --a: #0b6bcb; --b: #d1600a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --dim: #93a0ad; --rule: #2d3844; --paper: #141a21; --a: #5aa9f7; --b: #f79a52; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 900px;
  margin: 2em auto; padding: 0 1em; overflow-wrap: break-word; }
h1 { font-size: 1.4em; line-height: 1.3; } figure { margin: 2em 0; } figcaption { margin-bottom: .4em; }
dl { columns: 24em 2; column-gap: 2em; margin: 1.5em 0; } dl div { display: flex; break-inside: avoid; }
dt { flex: 0 0 8.5em; color: var(--dim); white-space: pre-wrap; } dd { margin: 0; min-width: 0; }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--dim); }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15em 1.5em .15em 0; vertical-align: top; }
td { overflow-wrap: anywhere; } th, td:last-child { white-space: nowrap; }
th { font-weight: normal; color: var(--dim); } thead th { font-weight: 600; color: var(--ink); }
td, dd { font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); fill: none; } .line { fill: none; stroke-width: 2; stroke: currentColor; }
.area { fill: currentColor; fill-opacity: .3; stroke: currentColor; } .dot { fill: currentColor; }
.a { color: var(--a); } .b { color: var(--b); } .faint { stroke-dasharray: 6 3; stroke-opacity: .8; }
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


_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, runs: Mapping[str, BenchResult], table: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """The page: *runs* by name, one or two; the *table* begins with its headings, if there are two."""
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
        *_plots(runs),
    ]
    lines = ["<!doctype html>", '<html lang="en"><head>', *head, "</head><body>", *body, "</body></html>"]
    return "\n".join(lines) + "\n"


def _plots(runs: Mapping[str, BenchResult]) -> Sequence[str]:
    if not any(run.count for run in runs.values()):
        return ["<p>No request was answered: there is nothing to plot.</p>"]
    return [_over_time(runs), _histogram(runs), _percentiles(runs)]


def _pairs(rows: Sequence[Sequence[str]]) -> str:
    found = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in rows)
    return f"<dl>{''.join(found)}</dl>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    heading, *others = (
        f"<th>{escape(name)}</th>" + "".join(f"<td>{escape(value)}</td>" for value in values) for name, *values in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in others)
    return f"<table><thead><tr>{heading.replace('td>', 'th>')}</tr></thead><tbody>{body}</tbody></table>"


def _named(run: str, what: str, runs: Mapping[str, BenchResult]) -> str:
    return what if len(runs) == 1 else f"{run} {what}".strip()


def _over_time(runs: Mapping[str, BenchResult]) -> str:
    series, latencies, longest = [], [1e-3], 1.0
    for (name, run), colour in zip(runs.items(), _COLOURS, strict=False):
        seconds = _seconds(run)
        longest = max([longest, *(one[0] + 1.0 for one in seconds)])
        for what, column, style in (("p50", 1, ""), ("p99", 2, "faint"), ("max", 3, "thin")):
            points = [(one[0] + 0.5, float(one[column])) for one in seconds]
            latencies += [latency for _, latency in points]
            logs = [(at, log(latency)) for at, latency in points]
            series.append(Series(name=_named(name, what, runs), points=logs, style=f"{colour} {style}".strip()))
    return plots.plot("Latency over time", plots.seconds_axis(longest), plots.latency_axis(latencies[1:]), series)


def _seconds(run: BenchResult) -> Sequence[tuple[int, float, float, float]]:
    """Each second with its p50, p99 and longest. What came after the end is a second of its own only if there is enough
    of it: of the last few answers there is no p50 to speak of, and their longest counts as the last second's."""
    least, found = STRAGGLERS * run.rate, list[tuple[int, float, float, float]]()
    for second, count, half, most, longest, _ in run.by_second():
        if found and second >= run.seconds and count < least:
            number, p50, p99, before = found.pop()
            found.append((number, p50, p99, max(before, longest)))
        elif count:
            found.append((second, half, most, longest))
    return found


def _histogram(runs: Mapping[str, BenchResult]) -> str:
    axis = plots.latency_axis([latency for run in runs.values() for latency, _ in run.tally.recorded()])
    series, highest = [], 0.0
    for (name, run), colour in zip(runs.items(), _COLOURS, strict=False):
        shares = _shares(run, axis)
        highest = max([highest, *shares])
        width = (axis.high - axis.low) / BARS
        points = [
            point
            for number, share in enumerate(shares)
            for point in ((axis.low + number * width, share), (axis.low + (number + 1) * width, share))
        ]
        label = _named(name, "share of the requests", runs)
        series.append(Series(name=label, points=points, style=colour, is_area=True))
    return plots.plot("Histogram of latencies", axis, plots.share_axis(highest), series)


def _shares(run: BenchResult, axis: Axis) -> list[float]:
    """Percent of the requests in each bar."""
    counts = [0] * BARS
    for latency, count in run.tally.recorded():
        at = (log(latency) - axis.low) / (axis.high - axis.low)
        counts[min(max(int(at * BARS), 0), BARS - 1)] += count
    return [100.0 * count / max(run.count, 1) for count in counts]


def _percentiles(runs: Mapping[str, BenchResult]) -> str:
    series, latencies, most = [], [], 1.0
    for (name, run), colour in zip(runs.items(), _COLOURS, strict=False):
        curve = _curve(run)
        latencies += [latency for _, latency in curve]
        most = max([most, *(at for at, _ in curve)])
        points = [(at, log(latency)) for at, latency in curve]
        series.append(Series(name=_named(name, "latency", runs), points=points, style=colour))
    axis = plots.percent_axis(most)
    return plots.plot("Latency by percentile", axis, plots.latency_axis(latencies), series)


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
