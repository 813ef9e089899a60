"""How every figure here is taken: contenders in turn, several rounds, medians, and ratios within a round.

A noisy machine slows all contenders of a round alike, so a ratio is worth more than a time, and the spread of the
ratios says what it is worth.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

Timer: TypeAlias = Callable[[float], float]
"""Do the job over and over for about so many seconds; return the seconds that one took."""


@attrs.frozen
class Figure:
    """What one contender took, and how many times as long as the first contender in the same round."""

    name: str
    seconds: float
    ratio: float
    ratio_low: float
    ratio_high: float

    def row(self) -> str:
        spread = f"{self.ratio_low:.2f} to {self.ratio_high:.2f}"
        return f"  {self.name:34} {self.seconds * 1e6:10.2f} us   {self.ratio:6.2f}x  ({spread})"


def timer(job: Callable[[], object]) -> Timer:
    """Time a plain function in this process."""

    def run(budget: float) -> float:
        started = time.perf_counter()
        job()
        count = max(1, int(budget / max(time.perf_counter() - started, 1e-7)))
        gc.collect()
        started = time.perf_counter()
        for _ in range(count):
            job()
        return (time.perf_counter() - started) / count

    return run


def alternate(timers: Mapping[str, Timer], *, rounds: int, budget: float = 0.2) -> list[Figure]:
    """Time all contenders, in turn, *rounds* times. Ratios are to the first of them, round by round."""
    taken: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, run in timers.items():
            taken[name].append(run(budget))
    first = next(iter(taken.values()))
    figures = []
    for name, seconds in taken.items():
        ratios = [mine / reference for mine, reference in zip(seconds, first, strict=True)]
        median = statistics.median
        figures.append(Figure(name, median(seconds), median(ratios), min(ratios), max(ratios)))
    return figures


def as_json(figures: list[Figure]) -> list[dict[str, Any]]:
    return [attrs.asdict(figure) for figure in figures]


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option by which `report.py` has what it makes the page from."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file, too")


def write_json(file: Path | None, found: object) -> None:
    """Keep all that was *found*, if somebody asked for it."""
    if file is not None:
        file.write_text(json.dumps(found, indent=2) + "\n")


def verdict(what: str, figure: float, target: float, *, at_most: bool = False) -> str:
    """One line that says whether a target holds."""
    reached = figure <= target if at_most else figure >= target
    bound = "at most" if at_most else "at least"
    return f"{what}: {figure:.2f} (target: {bound} {target:g}) {'reached' if reached else 'NOT reached'}"
