"""How long things took: counts by duration, on plain lists. One thread uses them, so nothing locks."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, Self

BOUNDS: Final = (
    *(0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005),
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
"""Seconds up to which each count goes; one more is for what took longer. Those of OpenTelemetry are among them; the
first of those is a hundred times what a call takes here."""


class Durations:
    """Counts of durations, and their sum."""

    __slots__ = ("counts", "last", "most", "total")

    def __init__(self, counts: Iterable[int] = (), total: float = 0.0, last: float = 0.0, most: float = 0.0) -> None:
        self.counts = list(counts) or [0] * (len(BOUNDS) + 1)
        self.total = total
        self.last = last  # when the latest one ended, of `time.perf_counter`
        self.most = most  # none took longer, since the start; 0 if that is unknown

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds
        self.most = max(self.most, seconds)

    @property
    def count(self) -> int:
        return sum(self.counts)

    @classmethod
    def sum(cls, some: Iterable["Durations"]) -> Self:
        """All of *some* together."""
        known = list(some)
        counts = map(sum, zip(*(one.counts for one in known), strict=True))
        last, most = (max((getattr(one, name) for one in known), default=0.0) for name in ("last", "most"))
        return cls(counts, sum(one.total for one in known), last, most)

    def since(self, before: Sequence[int]) -> "Durations":
        """What came after the counts were as they were *before*."""
        return Durations((now - then for now, then in zip(self.counts, before, strict=True)), most=self.most)

    def quantile(self, share: float) -> float | None:
        """Seconds that *share* of them took at most: interpolated between two bounds, and never more than the longest.
        None if there are none."""
        found = self._interpolated(share)
        return found if found is None or not self.most else min(found, self.most)

    def _interpolated(self, share: float) -> float | None:
        count = self.count
        if not count:
            return None
        wanted, below = share * count, 0
        for index, here in enumerate(self.counts):
            if here and below + here >= wanted:
                low = BOUNDS[index - 1] if index else 0.0
                high = BOUNDS[index] if index < len(BOUNDS) else BOUNDS[-1]
                return low + (high - low) * (wanted - below) / here
            below += here
        return BOUNDS[-1]
