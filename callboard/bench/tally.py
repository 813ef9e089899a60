"""What a run showed: latencies in histograms, second by second, and errors by kind.

Latencies are counted in microseconds with three significant digits, whatever their size: a histogram of a whole run
takes some kilobytes, and those of several processes can be added up.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
from hdrh.histogram import HdrHistogram

LONGEST: Final = 600_000_000
"""Longest latency that is told apart, in microseconds: as long as a request may take."""

DIGITS: Final = 3
DIGITS_OF_A_SECOND: Final = 2
"""Enough for a plot; and a run may have thousands of seconds."""

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


def histogram(digits: int = DIGITS) -> Any:
    """An empty one. Typed as anything: the library has no types."""
    return HdrHistogram(1, LONGEST, digits)


@attrs.define(eq=False)
class Tally:
    """Counts what happens. Times are seconds on whatever clock its caller has."""

    latencies: Any = attrs.field(factory=histogram)
    seconds: dict[int, Any] = attrs.field(factory=dict)
    """A histogram for each second since the start."""
    errors: Counter[str] = attrs.field(factory=Counter)
    failed: dict[int, int] = attrs.field(factory=dict)
    """Errors in each second."""
    late: int = 0
    """How many of the latencies are of requests that were answered after the end. They count, but for the rate."""

    def succeeded(self, latency: float, at: float, *, is_late: bool = False) -> None:
        """A request took *latency* seconds, and was over *at* so many after the start."""
        self.late += is_late
        microseconds = min(max(int(latency * 1e6), 1), LONGEST)
        self.latencies.record_value(microseconds)
        second = int(at)
        if second not in self.seconds:
            self.seconds[second] = histogram(DIGITS_OF_A_SECOND)
        self.seconds[second].record_value(microseconds)

    def broke(self, kind: str, at: float) -> None:
        """A request ended with an error."""
        self.errors[kind[:100]] += 1
        self.failed[int(at)] = self.failed.get(int(at), 0) + 1

    def add(self, other: Self) -> None:
        """Take in what another process counted in the same seconds."""
        self.latencies.add(other.latencies)
        self.errors.update(other.errors)
        self.late += other.late
        for second, count in other.failed.items():
            self.failed[second] = self.failed.get(second, 0) + count
        for second, counted in other.seconds.items():
            if second not in self.seconds:
                self.seconds[second] = histogram(DIGITS_OF_A_SECOND)
            self.seconds[second].add(counted)

    @property
    def count(self) -> int:
        total: int = self.latencies.get_total_count()
        return total

    @property
    def error_count(self) -> int:
        return sum(self.errors.values())

    def percentile(self, percent: float) -> float:
        """Seconds that so many percent of the requests took at most; 0 if there were none."""
        return float(self.latencies.get_value_at_percentile(percent)) / 1e6 if self.count else 0.0

    def percentiles(self) -> dict[float, float]:
        """All that are shown, in one go."""
        found = self.latencies.get_percentile_to_value_dict(PERCENTILES) if self.count else {}
        return {percent: float(found.get(percent, 0)) / 1e6 for percent in PERCENTILES}

    @property
    def longest(self) -> float:
        return float(self.latencies.get_max_value()) / 1e6 if self.count else 0.0

    def recorded(self) -> list[tuple[float, int]]:
        """Every latency that is told apart, in seconds and from the shortest on, and how many took so long."""
        steps = self.latencies.get_recorded_iterator()
        return [(step.value_iterated_to / 1e6, int(step.count_added_in_this_iter_step)) for step in steps]

    # How it travels.

    def as_json(self) -> dict[str, Any]:
        return {
            "latencies": _written(self.latencies),
            "seconds": {str(second): _written(counted) for second, counted in sorted(self.seconds.items())},
            "errors": dict(self.errors),
            "late": self.late,
            "failed": {str(second): count for second, count in sorted(self.failed.items())},
        }

    @classmethod
    def of_json(cls, written: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for what was not written by `as_json`."""
        return cls(
            latencies=_read(written["latencies"]),
            seconds={int(second): _read(counted) for second, counted in written["seconds"].items()},
            errors=Counter(written["errors"]),
            late=int(written["late"]),
            failed={int(second): int(count) for second, count in written["failed"].items()},
        )


def _written(counted: Any) -> str:
    text: str = counted.encode().decode("ascii")
    return text


def _read(text: str) -> Any:
    return HdrHistogram.decode(text.encode("ascii"))
