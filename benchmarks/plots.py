"""Plots for the page of benchmarks, as SVG files that need nothing else. Numbers in, text out."""

from collections.abc import Sequence
from html import escape
from typing import Final

import attrs

from callboard.bench.plots import Axis, log

WIDTH: Final = 860
BAR: Final = 26
"""Height of a bar with the space below it."""
NAMES: Final = 300
"""Width that is left for the names of bars."""
HEIGHT: Final = 360
LEFT: Final = 80
RIGHT: Final = 24
TOP: Final = 44
BOTTOM: Final = 80

COLOURS: Final = ("a", "b", "c", "d")

_STYLE: Final = """
svg { font: 13px system-ui, sans-serif; --ink: #1c2733; --dim: #5d6a77; --rule: #dfe4e8;
  --a: #0b6bcb; --b: #d1600a; --c: #2b8a3e; --d: #8a3ffc; --others: #b6c0c9; background: #fff; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6ebf0; --dim: #93a0ad; --rule: #2d3844;
  --a: #5aa9f7; --b: #f79a52; --c: #69db7c; --d: #be95ff; --others: #55626e; background: #141a21; } }
text { fill: var(--ink); } .dim { fill: var(--dim); } .title { font-weight: 600; font-size: 15px; }
.grid { stroke: var(--rule); fill: none; } .line { fill: none; stroke-width: 2; } .mark { stroke: var(--b);
  stroke-dasharray: 5 4; stroke-width: 1.5; } .others { fill: var(--others); } .ours { fill: var(--a); }
"""


@attrs.frozen
class Bar:
    """One bar, and what is written beside it."""

    name: str
    value: float
    text: str
    is_ours: bool = False


@attrs.frozen
class Line:
    """One line: sizes, and what was seen at each."""

    name: str
    points: Sequence[tuple[float, float]]


def bars(title: str, rows: Sequence[Bar], *, mark: float | None = None) -> str:
    """Bars below each other, from nothing to the longest; a dashed line where the *mark* is."""
    longest = max([row.value for row in rows] + [mark or 0.0]) or 1.0
    axis, end = Axis(0.0, longest, ()), WIDTH - 130
    parts, at = [], TOP
    for row in rows:
        long = axis.place(row.value, NAMES, end) - NAMES
        kind = "ours" if row.is_ours else "others"
        parts.append(f'<text x="{NAMES - 10}" y="{at + 15}" text-anchor="end">{escape(row.name)}</text>')
        parts.append(f'<rect class="{kind}" x="{NAMES}" y="{at + 2}" width="{long:.1f}" height="{BAR - 8}"/>')
        parts.append(f'<text class="dim" x="{NAMES + long + 6:.1f}" y="{at + 15}">{escape(row.text)}</text>')
        at += BAR
    if mark is not None:
        place = axis.place(mark, NAMES, end)
        parts.append(f'<path class="mark" d="M{place:.1f} {TOP - 6}V{at}"/>')
        parts.append(f'<text class="dim" x="{place:.1f}" y="{TOP - 10}" text-anchor="middle">wanted: {mark:g}</text>')
    return _drawing(title, at + 12, "".join(parts))


def lines(title: str, series: Sequence[Line], *, unit: str) -> str:
    """Lines over sizes, by powers of ten both ways: what does not grow is level, what is linear is a slope of one."""
    across = _powers([x for one in series for x, _ in one.points])
    up = _powers([y for one in series for _, y in one.points])
    floor, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for at, name in across.marks:
        place = across.place(at, LEFT, end)
        parts.append(f'<path class="grid" d="M{place:.1f} {TOP}V{floor}"/>')
        parts.append(f'<text class="dim" x="{place:.1f}" y="{floor + 18}" text-anchor="middle">{name}</text>')
    for at, name in up.marks:
        place = up.place(at, floor, TOP)
        parts.append(f'<path class="grid" d="M{LEFT} {place:.1f}H{end}"/>')
        parts.append(f'<text class="dim" x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{name}</text>')
    for colour, one in zip(COLOURS, series, strict=False):
        dots = [(across.place(log(x), LEFT, end), up.place(log(y), floor, TOP)) for x, y in one.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        parts.append(f'<polyline class="line" stroke="var(--{colour})" points="{path}"/>')
        parts += [f'<circle fill="var(--{colour})" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in dots]
    parts.append(f'<text class="dim" x="{end}" y="{TOP - 10}" text-anchor="end">{escape(unit)}</text>')
    parts.append(_names([one.name for one in series]))
    return _drawing(title, HEIGHT, "".join(parts))


def _names(names: Sequence[str]) -> str:
    """What each line is, below the drawing: two beside each other."""
    parts, width = [], (WIDTH - LEFT) / 2
    for number, (colour, name) in enumerate(zip(COLOURS, names, strict=False)):
        x, y = LEFT + number % 2 * width, HEIGHT - 34 + number // 2 * 22
        parts.append(f'<path class="line" stroke="var(--{colour})" d="M{x:.1f} {y - 4}h22"/>')
        parts.append(f'<text x="{x + 28:.1f}" y="{y}">{escape(name)}</text>')
    return "".join(parts)


def _powers(values: Sequence[float]) -> Axis:
    found = [log(value) for value in values] or [0.0]
    low, high = int(min(found) // 1), int(-(-max(found) // 1))
    high = max(high, low + 1)
    return Axis(low, high, [(float(power), _power(power)) for power in range(low, high + 1)])


def _power(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _drawing(title: str, height: float, inside: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    head = f'<text class="title" x="12" y="22">{escape(title)}</text>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(title)}</title>'
    return f"{svg}<style>{_STYLE}</style>{head}{inside}</svg>\n"
