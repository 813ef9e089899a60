"""Results of a run: latencies in histograms, second by second, and errors by kind.

Latencies of any size are counted in microseconds with three significant digits: a histogram of a whole run
takes some kilobytes, and those of several processes can be added up.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import attrs
from hdrh.histogram import HdrHistogram

from callboard.supervisor.printable import clean

LONGEST: Final = 600_000_000
"""Longest latency that is told apart, in microseconds: as long as a request may take."""

DIGITS: Final = 3
DIGITS_OF_A_SECOND: Final = 2
"""Enough for a plot; and a run may have thousands of seconds."""

MAX_KINDS: Final = 200
"""Kinds of errors that are told apart. A server may have another code for each."""

MAX_KIND: Final = 100
"""Characters of one."""

MAX_EXAMPLE: Final = 300
"""Characters of the text that stands for all errors of a kind. It comes from a server."""

OTHERS: Final = "others"
UNANSWERED: Final = "no response before the end"
OVERDUE: Final = "not sent: too many requests in flight"
ANSWERS: Final = ("ToolFailed", "ServerRefused", "HttpRefused", "BadAnswer")
"""Errors that are answers of a server, by the beginning of their kind."""

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


def histogram(digits: int = DIGITS) -> Any:
    """An empty one. Typed as anything: the library has no types."""
    return HdrHistogram(1, LONGEST, digits)


def record(counted: Any, value: int) -> None:
    """The same as the library's `record_value` in half of its time: it runs twice for each request. *value* is
    within the limits of the histogram; its smallest unit is 1."""
    half = counted.sub_bucket_half_count_magnitude
    shift = value.bit_length() - half - 1
    counted.counts[value if shift <= 0 else (shift << half) + (value >> shift)] += 1
    counted.total_count += 1
    if value > counted.max_value:
        counted.max_value = value
    if value < counted.min_value:
        counted.min_value = value


@attrs.define(eq=False)
class Tally:
    """Counts what happens. Times are seconds on the caller's clock."""

    latencies: Any = attrs.field(factory=histogram)
    seconds: dict[int, Any] = attrs.field(factory=dict)
    """A histogram for each second since the start."""
    errors: Counter[str] = attrs.field(factory=Counter)
    examples: dict[str, str] = attrs.field(factory=dict)
    """The text of the first error of each kind, where it has one."""
    failed: dict[int, int] = attrs.field(factory=dict)
    """Errors in each second."""
    refused: Counter[int] = attrs.field(factory=Counter)
    """How many of these errors the server answered: they are signs of life."""
    late: int = 0
    """How many of the latencies are of requests that were answered after the end. They count, but for the rate."""
    early: Counter[int] = attrs.field(factory=Counter)
    """How many were begun before the start and answered after it, in each second: they count for the rate and as signs
    of life, and have no latency."""
    counts: Counter[str] = attrs.field(factory=Counter)
    """Other events, which are no errors by themselves."""
    steps: "dict[str, Tally]" = attrs.field(factory=dict)
    """The same for each step of a script, by its label."""

    def step(self, label: str) -> "Tally":
        """Counts of one step."""
        if label not in self.steps:
            self.steps[label] = Tally()
        return self.steps[label]

    def succeeded(self, latency: float, at: float, *, is_late: bool = False, step: str = "") -> None:
        """A request took *latency* seconds, and was over *at* so many after the start."""
        if step:
            self.step(step).record(latency, is_late=is_late)
        microseconds = self.record(latency, is_late=is_late)
        second = int(at)
        if second not in self.seconds:
            self.seconds[second] = histogram(DIGITS_OF_A_SECOND)
        record(self.seconds[second], microseconds)

    def record(self, latency: float, *, is_late: bool = False) -> int:
        """As `succeeded`, but for the second in which it was: steps have no such figure. Its microseconds."""
        self.late += is_late
        microseconds = min(max(int(latency * 1e6), 1), LONGEST)
        record(self.latencies, microseconds)
        return microseconds

    def broke(self, kind: str, at: float, *, step: str = "", text: str = "") -> None:
        """A request ended with an error; *text* is what it said."""
        if step:
            self.step(step).broke(kind, at)
        kind = kind[:MAX_KIND]
        kind = kind if kind in self.errors or len(self.errors) < MAX_KINDS else OTHERS
        if text and kind not in self.examples:
            self.examples[kind] = " ".join(clean(text[:MAX_EXAMPLE]).split())
        self.errors[kind] += 1
        self.failed[int(at)] = self.failed.get(int(at), 0) + 1
        self.refused[int(at)] += kind.startswith(ANSWERS)

    def add(self, other: "Tally") -> None:
        """Take in what another process counted in the same seconds."""
        self.latencies.add(other.latencies)
        self._add_errors(other)
        self.late += other.late
        self.early.update(other.early)
        self.refused.update(other.refused)
        self.counts.update(other.counts)
        for label, counted in other.steps.items():
            self.step(label).add(counted)
        for second, count in other.failed.items():
            self.failed[second] = self.failed.get(second, 0) + count
        for second, counted in other.seconds.items():
            if second not in self.seconds:
                self.seconds[second] = histogram(DIGITS_OF_A_SECOND)
            self.seconds[second].add(counted)

    def _add_errors(self, other: "Tally") -> None:
        for kind, count in other.errors.items():
            known = kind if kind in self.errors or len(self.errors) < MAX_KINDS else OTHERS
            self.errors[known] += count
            if kind in other.examples:
                self.examples.setdefault(known, other.examples[kind])

    def hide(self, secrets: Iterable[str]) -> None:
        """Take *secrets* out of the examples: a server may repeat what it was sent."""
        for secret in secrets:
            for kind, text in self.examples.items():
                self.examples[kind] = text.replace(secret, "***") if secret else text

    @property
    def count(self) -> int:
        total: int = self.latencies.get_total_count()
        return total

    @property
    def answers_so_far(self) -> int:
        """The same, with those that were begun before the start."""
        return self.count + self.early.total()

    @property
    def error_count(self) -> int:
        return sum(self.errors.values())

    @property
    def unanswered(self) -> int:
        """How many were still waiting when the run was over."""
        return self.errors[UNANSWERED] + self.errors[OVERDUE]

    def percentile(self, percent: float) -> float:
        """Seconds that so many percent of the requests took at most; not a number if there were none."""
        return float(self.latencies.get_value_at_percentile(percent)) / 1e6 if self.count else math.nan

    def percentiles(self) -> dict[float, float]:
        """The percentiles that are shown, in one pass."""
        found = self.latencies.get_percentile_to_value_dict(PERCENTILES) if self.count else {}
        return {percent: float(found.get(percent, math.nan)) / 1e6 for percent in PERCENTILES}

    @property
    def mean(self) -> float:
        return float(self.latencies.get_mean_value()) / 1e6 if self.count else math.nan

    @property
    def longest(self) -> float:
        return float(self.latencies.get_max_value()) / 1e6 if self.count else math.nan

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
            "examples": dict(self.examples),
            "late": self.late,
            "early": {str(second): count for second, count in sorted(self.early.items())},
            "failed": {str(second): count for second, count in sorted(self.failed.items())},
            "refused": {str(second): count for second, count in sorted(self.refused.items()) if count},
            "counts": dict(self.counts),
            "steps": {label: counted.as_json() for label, counted in self.steps.items()},
        }

    @classmethod
    def of_json(cls, written: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for what was not written by `as_json`."""
        return cls(
            latencies=_read(written["latencies"]),
            seconds={int(second): _read(counted) for second, counted in written["seconds"].items()},
            errors=Counter(written["errors"]),
            examples={str(kind): str(text) for kind, text in written.get("examples", {}).items()},
            late=int(written["late"]),
            early=Counter({int(second): int(count) for second, count in written.get("early", {}).items()}),
            failed={int(second): int(count) for second, count in written["failed"].items()},
            refused=Counter({int(second): int(count) for second, count in written.get("refused", {}).items()}),
            counts=Counter(written.get("counts", {})),
            steps={label: cls.of_json(counted) for label, counted in written.get("steps", {}).items()},
        )


def _written(counted: Any) -> str:
    text: str = counted.encode().decode("ascii")
    return text


def _read(text: str) -> Any:
    return HdrHistogram.decode(text.encode("ascii"))
