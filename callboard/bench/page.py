"""A run, or two of them, as one page that needs nothing else: no network, no script."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Final

from callboard.bench import plots
from callboard.bench.plots import Axis, Series, log
from callboard.bench.result import Result

BARS: Final = 60
"""Bars of a histogram."""

STEPS: Final = 20
"""Points of the percentile curve for each further nine."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2733; --dim: #6b7885; --rule: #dfe4e8; --paper: #fff;
  --a: #0b6bcb; --b: #d1600a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --dim: #93a0ad; --rule: #2d3844; --paper: #141a21; --a: #5aa9f7; --b: #f79a52; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 900px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; } figure { margin: 2em 0; } figcaption { font-weight: 600; margin-bottom: .4em; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--dim); }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15em 1.5em .15em 0; vertical-align: top; }
th { font-weight: normal; color: var(--dim); } thead th { font-weight: 600; color: var(--ink); }
.grid { stroke: var(--rule); fill: none; } .line { fill: none; stroke-width: 2; stroke: currentColor; }
.area { fill: currentColor; fill-opacity: .3; stroke: currentColor; } .dot { fill: currentColor; }
.a { color: var(--a); } .b { color: var(--b); } .faint { opacity: .55; stroke-dasharray: 5 3; } .thin { opacity: .4; }
.key { font-weight: normal; font-size: .85em; margin-left: 1em; } .key::before { content: "\\25A0  "; }
.note { border-left: 4px solid var(--b); padding-left: 1em; }
"""

_COLOURS: Final = ("a", "b")


_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, runs: Mapping[str, Result], table: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
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
        _table(table, has_heading=len(runs) > 1),
        _over_time(runs),
        _histogram(runs),
        _percentiles(runs),
    ]
    lines = ["<!doctype html>", '<html lang="en"><head>', *head, "</head><body>", *body, "</body></html>"]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Sequence[str]], *, has_heading: bool) -> str:
    found = []
    for number, (name, *values) in enumerate(rows):
        tag = "th" if has_heading and number == 0 else "td"
        cells = "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values)
        found.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return f"<table>{''.join(found)}</table>"


def _named(run: str, what: str, runs: Mapping[str, Result]) -> str:
    return what if len(runs) == 1 else f"{run} {what}".strip()


def _over_time(runs: Mapping[str, Result]) -> str:
    series, latencies, longest = [], [1e-3], 1.0
    for (name, run), colour in zip(runs.items(), _COLOURS, strict=False):
        seconds = [one for one in run.by_second() if one[1]]
        longest = max([longest, *(one[0] + 1.0 for one in seconds)])
        for what, column, style in (("p50", 2, ""), ("p99", 3, "faint"), ("max", 4, "thin")):
            points = [(one[0] + 0.5, float(one[column])) for one in seconds]
            latencies += [latency for _, latency in points]
            logs = [(at, log(latency)) for at, latency in points]
            series.append(Series(name=_named(name, what, runs), points=logs, style=f"{colour} {style}".strip()))
    return plots.plot("Latency over time", plots.seconds_axis(longest), plots.latency_axis(latencies[1:]), series)


def _histogram(runs: Mapping[str, Result]) -> str:
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


def _shares(run: Result, axis: Axis) -> list[float]:
    """Percent of the requests in each bar."""
    counts = [0] * BARS
    for latency, count in run.tally.recorded():
        at = (log(latency) - axis.low) / (axis.high - axis.low)
        counts[min(max(int(at * BARS), 0), BARS - 1)] += count
    return [100.0 * count / max(run.count, 1) for count in counts]


def _percentiles(runs: Mapping[str, Result]) -> str:
    series, latencies, most = [], [], 1.0
    for (name, run), colour in zip(runs.items(), _COLOURS, strict=False):
        curve = _curve(run)
        latencies += [latency for _, latency in curve]
        most = max([most, *(at for at, _ in curve)])
        points = [(at, log(latency)) for at, latency in curve]
        series.append(Series(name=_named(name, "latency", runs), points=points, style=colour))
    axis = plots.percent_axis(most)
    return plots.plot("Latency by percentile", axis, plots.latency_axis(latencies), series)


def _curve(run: Result) -> list[tuple[float, float]]:
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
