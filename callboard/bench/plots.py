"""Plots as SVG, which every browser draws without a script. Numbers in, text out."""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final

import attrs

WIDTH: Final = 860
HEIGHT: Final = 320
LEFT: Final = 88
RIGHT: Final = 56
TOP: Final = 14
BOTTOM: Final = 44
SPOT_LINE: Final = 24
"""Between two lines of text that is shown for a place under the mouse."""

Point = tuple[float, float]


@attrs.frozen(kw_only=True)
class Series:
    """One line. Its *style* is a class of the page's style sheet."""

    name: str
    points: Sequence[Point]
    style: str
    is_area: bool = False


@attrs.frozen
class Spot:
    """What is shown while the mouse is between two places of the horizontal axis: a line of text for each run."""

    low: float
    high: float
    lines: Sequence[str]


@attrs.frozen
class Axis:
    """From one end to the other, evenly, with marks in between."""

    low: float
    high: float
    marks: Sequence[tuple[float, str]]

    def place(self, value: float, begin: float, end: float) -> float:
        span = self.high - self.low or 1.0
        share = min(max((value - self.low) / span, 0.0), 1.0)
        return begin + share * (end - begin)


def seconds_axis(longest: float) -> Axis:
    step = _round_step(max(longest, 1.0) / 8)
    count = math.ceil(max(longest, 1.0) / step)
    return Axis(0, max(longest, 1.0), [(step * n, f"{step * n:g} s") for n in range(count + 1) if step * n <= longest])


def share_axis(highest: float) -> Axis:
    highest = max(highest, 1.0)
    step = _round_step(highest / 5)
    top = step * math.ceil(highest / step)
    return Axis(0, top, [(step * n, f"{step * n:g} %") for n in range(round(top / step) + 1)])


def rate_axis(highest: float) -> Axis:
    """Requests each second, from none on."""
    highest = max(highest, 1.0)
    step = _round_step(highest / 5)
    top = step * math.ceil(highest / step * (1 - 1e-9))
    return Axis(0, top, [(step * n, f"{step * n:,g}/s") for n in range(round(top / step) + 1)])


def latency_axis(latencies: Iterable[float]) -> Axis:
    """Powers of ten, for logarithms of seconds: microseconds and seconds stand on one page."""
    found = [one for one in latencies if one > 0] or [1e-3]
    low, high = math.floor(log(min(found))), math.ceil(log(max(found)))
    high = max(high, low + 1)
    marks = [(float(power), _power(power)) for power in range(low, high + 1)]
    if high - low <= 2:  # else there is no room
        marks += [(power + log(part), "") for power in range(low, high) for part in (2, 5)]
    return Axis(low, high, marks)


def percent_axis(most: float) -> Axis:
    """As many nines as there are: place *p* stands for all but one of ten to the *p*."""
    marks = [(0.0, "0 %"), (log(2), "50 %"), *((float(n), f"{100 - 10 ** (2 - n):.10g} %") for n in range(1, 7))]
    high = max(most, 1.0)
    return Axis(0, high, [(at, text) for at, text in marks if at <= high])


def log(value: float) -> float:
    return math.log10(max(value, 1e-6))


def plot(title: str, x: Axis, y: Axis, series: Sequence[Series], spots: Sequence[Spot] = ()) -> str:
    """A figure with its caption and, for several lines, what each is. The text of a spot is shown by the style sheet
    alone, without a script."""

    def place(point: Point) -> str:
        return f"{x.place(point[0], LEFT, WIDTH - RIGHT):.1f},{y.place(point[1], HEIGHT - BOTTOM, TOP):.1f}"

    lines = "".join(_line(one, place, y.low) for one in series if one.points)
    names = " ".join(f'<span class="key {one.style}"><span>{escape(one.name)}</span></span>' for one in series)
    content = _grid(x, y) + lines + "".join(_spot(x, one) for one in spots)
    drawing = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{content}</svg>'
    return f"<figure><figcaption><b>{escape(title)}</b> {names}</figcaption>{drawing}</figure>"


def _spot(x: Axis, spot: Spot) -> str:
    left, right = (x.place(at, LEFT, WIDTH - RIGHT) for at in (spot.low, spot.high))
    texts = "".join(
        f'<text class="tip" x="{LEFT + 8}" y="{TOP + 20 + SPOT_LINE * number}">{escape(line)}</text>'
        for number, line in enumerate(spot.lines)
    )
    width, height = max(right - left, 0.5), HEIGHT - BOTTOM - TOP
    area = f'<rect x="{left:.1f}" y="{TOP}" width="{width:.1f}" height="{height}"/>'
    return f'<g class="spot">{area}{texts}</g>'


def _grid(x: Axis, y: Axis) -> str:
    floor, parts = HEIGHT - BOTTOM, []
    for at, text in x.marks:
        place = x.place(at, LEFT, WIDTH - RIGHT)
        parts.append(f'<path class="grid" d="M{place:.1f} {TOP}V{floor}"/>')
        parts.append(f'<text x="{place:.1f}" y="{floor + 28}" text-anchor="middle">{escape(text)}</text>')
    for at, text in y.marks:
        place = y.place(at, floor, TOP)
        parts.append(f'<path class="grid" d="M{LEFT} {place:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    return "".join(parts)


def _line(one: Series, place: Callable[[Point], str], floor: float) -> str:
    points = " ".join(map(place, one.points))
    if one.is_area:
        first, last = place((one.points[0][0], floor)), place((one.points[-1][0], floor))
        return f'<polygon class="area {one.style}" points="{first} {points} {last}"/>'
    if len(one.points) == 1:
        across, up = points.split(",")
        return f'<circle class="dot {one.style}" cx="{across}" cy="{up}" r="4"/>'
    return f'<polyline class="line {one.style}" points="{points}"/>'


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, and not less than *rough*."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(part * power for part in (1, 2, 5, 10) if part * power >= rough * (1 - 1e-9))


def _power(power: int) -> str:
    """Ten to the *power* seconds, as people read it."""
    for unit, least in (("s", 0), ("ms", -3), ("\N{MICRO SIGN}s", -6)):
        if power >= least:
            return f"{10 ** (power - least)} {unit}"
    return "0"
