"""Figures and names of a view as people read them. What a view says is not trusted: any value may be of any kind."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from callboard.supervisor.printable import clean

LONGEST: Final = 400
"""Characters of a value that are looked at."""

HIGHEST: Final = 1e18
"""No figure of a server is as high. NaN and infinity are none either."""

NOTHING: Final = "-"
_BARS: Final = "▁▂▃▄▅▆▇█"


def word(value: object) -> str:
    """Any value on one line, which cannot command a terminal."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return " ".join(clean(str(value)[:LONGEST]).split())


def number(value: object) -> float | None:
    """*value* if it is a number of a size that can be shown."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < HIGHEST:
        return None
    return float(value)


def count(value: object) -> str:
    found = number(value)
    return NOTHING if found is None else f"{found:,.0f}"


def rate(value: object) -> str:
    """Per second."""
    found = number(value)
    return (
        f"{NOTHING}/s"
        if found is None
        else f"{found:,.0f}/s"
        if found >= 10 or found == int(found)
        else f"{found:.1f}/s"
    )


def tenths(value: object) -> str:
    found = number(value)
    return NOTHING if found is None else f"{found:,.0f}" if found >= 10 or found == int(found) else f"{found:.1f}"


def duration(value: object) -> str:
    """A short time: how long something took."""
    found = number(value)
    if found is None:
        return NOTHING
    if not found:
        return "0 s"
    if found < 0.9995e-3:
        return f"{found * 1e6:.0f} us"
    if found < 1:
        return f"{found * 1e3:.3g} ms" if found < 0.9995 else "1.00 s"
    return f"{found:.2f} s" if found < 60 else span(found)


def span(value: object) -> str:
    """A long time: how long ago, or for how long."""
    found = number(value)
    if found is None:
        return NOTHING
    seconds = max(0, int(found))
    for unit, below, size, rest in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if seconds >= size:
            return f"{seconds // size}{unit} {seconds % size // rest}{below}"
    return f"{seconds}s"


def size(value: object) -> str:
    """Bytes."""
    found = number(value)
    if found is None:
        return NOTHING
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(found) >= bytes_:
            return f"{found / bytes_:.3g} {unit}" if found < 1000 * bytes_ else f"{found / bytes_:,.0f} {unit}"
    return f"{found:.0f} B"


def share(value: object) -> str:
    found = number(value)
    return NOTHING if found is None else f"{found:.0%}"


def sparkline(values: Sequence[object], width: int) -> str:
    """The last *width* values as bars. A second without a value is a blank."""
    last = [number(value) for value in values[-width:]] if width > 0 else []
    highest = max((value for value in last if value is not None), default=0.0)
    return "".join(" " if value is None else _bar(value, highest) for value in last).rjust(max(width, 0))


def _bar(value: float, highest: float) -> str:
    if value <= 0 or highest <= 0:
        return _BARS[0]
    return _BARS[max(1, min(len(_BARS) - 1, round(value / highest * (len(_BARS) - 1))))]


def fitted(text: str, width: int, *, is_right: bool = False) -> str:
    """*text* in exactly *width* cells: cut with an ellipsis, or filled up."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    return " " * (width - length) + text if is_right else text + " " * (width - length)


def rows_of(view: Mapping[str, Any], table: str) -> list[Mapping[str, Any]]:
    """The rows of a table, without what is none."""
    found = view.get(table)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def part(view: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object inside a view; an empty one if there is none."""
    found = view.get(name)
    return found if isinstance(found, dict) else {}
