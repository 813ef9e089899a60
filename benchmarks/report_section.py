"""What a section of the page of benchmarks consists of: text, plots, and the targets that are judged by it."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs


@attrs.frozen(kw_only=True)
class Target:
    """What was wanted, and what was found in each round."""

    what: str
    wanted: float
    found: Sequence[float]
    unit: str = ""
    at_most: bool = False

    @property
    def figure(self) -> float:
        return statistics.median(self.found)

    @property
    def is_reached(self) -> bool:
        return bool(self.found) and (self.figure <= self.wanted if self.at_most else self.figure >= self.wanted)

    def row(self) -> list[str]:
        wanted = f"{'at most' if self.at_most else 'at least'} {number(self.wanted)}{self.unit}"
        if not self.found:
            return [self.what, wanted, "", "**not measured**"]
        return [self.what, wanted, f"{spread(self.found)}{self.unit}", self._verdict()]

    def line(self) -> str:
        """For a terminal."""
        what, wanted, found, verdict = (cell.replace("**", "").replace("`", "") for cell in self.row())
        return f"{what}: {found + ' ' if found else ''}({wanted}): {verdict}"

    def _verdict(self) -> str:
        share = abs(self.figure / self.wanted - 1) if self.wanted else 0.0
        if self.is_reached:
            return f"yes, by {share:.0%}"
        return f"**no**: {share:.0%} {'more' if self.at_most else 'less'} than wanted"


@attrs.frozen
class Section:
    """One heading of the page."""

    blocks: Sequence[str] = ()
    plots: Mapping[str, str] = attrs.field(factory=dict)
    """SVG by the name of its file, without the ending."""
    targets: Sequence[Target] = ()


Maker: TypeAlias = Callable[[Any], Section]


def number(value: float) -> str:
    """As many digits as are worth something."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def spread(values: Sequence[float]) -> str:
    """The median, and the lowest and highest if there are several."""
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def ratios(mine: Sequence[Any], theirs: Sequence[Any], field: str) -> list[float]:
    """Round by round: how many times *theirs*."""
    return [one[field] / other[field] for one, other in zip(mine, theirs, strict=True)]


def middle(samples: Sequence[Any], field: str) -> float:
    return float(statistics.median(sample[field] for sample in samples))
