"""Several earlier runs as one to compare with: the median of each figure, and its range. One run may be an accident."""

import statistics
from collections.abc import Iterator, Sequence

import attrs

from callboard.bench.result import BenchResult
from callboard.bench.tally import PERCENTILES


@attrs.frozen
class Compared:
    """A figure of a new run beside those of earlier ones. Times are in seconds."""

    name: str
    median: float
    low: float
    high: float
    new: float
    is_time: bool

    @property
    def is_outside(self) -> bool:
        """Whether no earlier run was like that."""
        return not self.low <= self.new <= self.high

    @property
    def ratio(self) -> float | None:
        return round(self.new / self.median, 4) if self.median else None


def compared(earlier: Sequence[BenchResult], new: BenchResult) -> Iterator[Compared]:
    """Each figure that can be compared. Latencies are those of runs that measured what they should."""
    yield _compared("requests/s", [run.rate for run in earlier], new.rate, is_time=False)
    sound = [run for run in earlier if run.is_comparable]
    if sound and new.is_comparable:
        for rank in PERCENTILES:
            yield _compared(f"p{rank:g}", [run.percentile(rank) for run in sound], new.percentile(rank))
        yield _compared("max", [run.longest for run in sound], new.longest)
    yield _compared("errors", [run.error_percent for run in earlier], new.error_percent, is_time=False)


def usual(earlier: Sequence[BenchResult]) -> BenchResult:
    """The run with the median rate: one to look at."""
    return sorted(earlier, key=lambda run: run.rate)[(len(earlier) - 1) // 2]


def _compared(name: str, values: Sequence[float], new: float, *, is_time: bool = True) -> Compared:
    return Compared(name, statistics.median(values), min(values), max(values), new, is_time)
