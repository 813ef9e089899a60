"""What `hosting.py` prints: a table for each cell of the matrix, the weights, and whether the targets hold."""

from statistics import median
from typing import Final, Literal, TypeAlias

import attrs

from benchmarks.hosting_load import Sample
from benchmarks.hosting_servers import AS_IT_COMES, FLOOR, OURS, REFERENCE, SDK, SERVER
from benchmarks.measure import verdict

Field: TypeAlias = Literal["rate", "p50", "p99", "cpu"]
TOOLS: Final = {"noop": "no-op", "echo": "10 kB echo"}

TARGETS: Final = (
    ("modern JSON", OURS, REFERENCE, 6),
    ("modern JSON", OURS, AS_IT_COMES, 6),
    ("modern JSON", OURS, REFERENCE, 10),
    ("modern JSON", OURS, SERVER, 3),
    ("legacy JSON", OURS, REFERENCE, 5),
    ("legacy JSON", OURS, SDK, 3),
)
"""How many times the calls of another one per second are wanted: the no-op at 32 connections."""
JUDGED: Final = ("noop", 32)
TAIL: Final = 0.33
"""Which part of the reference's p99 ours may be, in the modern era."""
WEIGHT: Final = 0.5
"""Which part of the reference's idle session ours may weigh."""


@attrs.frozen
class Cell:
    """One tool in one mode at one number of connections: the rounds of every contender."""

    mode: str
    tool: str
    connections: int
    samples: dict[str, list[Sample]]

    def typical(self, name: str, field: Field) -> float:
        return float(median(getattr(sample, field) for sample in self.samples[name]))

    def ratios(self, one: str, other: str, field: Field = "rate") -> list[float]:
        """How many times *other*'s figure *one*'s was, round by round, from the lowest to the highest."""
        pairs = zip(self.samples[one], self.samples[other], strict=True)
        return sorted(getattr(mine, field) / getattr(theirs, field) for mine, theirs in pairs)

    def lines(self) -> list[str]:
        title = f"{self.mode}, {TOOLS[self.tool]}, {self.connections} connections"
        columns = f"{'calls/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'CPU us':>8}"
        return [f"{title:44} {columns}   x {REFERENCE} {'(the spread)':15} by CPU", *map(self._line, self.samples)]

    def _line(self, name: str) -> str:
        figures = [self.typical(name, "rate"), self.typical(name, "cpu")]
        p50, p99 = (self.typical(name, field) / 1000 for field in ("p50", "p99"))
        times = self.ratios(name, REFERENCE)
        spread = f"{median(times):11.2f} {f'({times[0]:.2f} to {times[-1]:.2f})':15}"
        by_cpu = median(self.ratios(REFERENCE, name, "cpu"))
        return f"  {name:42} {figures[0]:9.0f} {p50:8.2f} {p99:8.2f} {figures[1]:8.0f}   {spread} {by_cpu:6.2f}"


def weights(grown: dict[str, list[float]], count: int) -> list[str]:
    """KiB that a process grew by for each of *count* idle sessions."""
    head = f"{count} idle legacy sessions: KiB for each, as the process grew (lowest to highest)"
    rows = (f"  {name:42} {median(kib):9.1f} ({min(kib):.1f} to {max(kib):.1f})" for name, kib in grown.items())
    return [head, *rows]


def verdicts(cells: list[Cell], grown: dict[str, list[float]]) -> list[str]:
    """Whether the targets hold, for all that was measured."""
    judged = {cell.mode: cell for cell in cells if (cell.tool, cell.connections) == JUDGED}
    lines = []
    for mode, one, other, target in TARGETS:
        cell = judged.get(mode)
        if cell is not None and other in cell.samples:
            by_cpu = median(cell.ratios(other, one, "cpu"))
            what = f"{one} / {other}, {mode}, calls/s (by CPU: {by_cpu:.2f})"
            lines.append(verdict(what, median(cell.ratios(one, other)), target))
    if (modern := judged.get("modern JSON")) is not None:
        p99 = median(modern.ratios(OURS, REFERENCE, "p99"))
        lines.append(verdict(f"{OURS} / {REFERENCE}, modern JSON, p99", p99, TAIL, at_most=True))
        share, cpu = median(modern.ratios(OURS, FLOOR)), median(modern.ratios(OURS, FLOOR, "cpu"))
        lines.append(f"{OURS} / {FLOOR}: {share:.2f}, with {cpu:.1f} times its CPU for a call")
    if grown:
        share = median(grown[OURS]) / median(grown[REFERENCE])
        lines.append(verdict(f"{OURS} / {REFERENCE}, memory of an idle session", share, WEIGHT, at_most=True))
    return lines
