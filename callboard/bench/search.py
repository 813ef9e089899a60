"""`--find-limit "p99<50ms"`: the highest rate at which conditions hold. Arithmetic: no clock, no I/O."""

import math
from collections.abc import Sequence
from typing import Final, Self

import attrs

from callboard.bench.found import Probe
from callboard.bench.limits import BadLimit, Limit
from callboard.bench.result import MOST_ERRORS, BenchResult

PRECISION: Final = 0.02
"""Share by which the lowest rate that failed is above the highest that held, at the end. Less would be noise."""

CLOSE: Final = 1.1
"""Factor of a rise that goes on after a rate that had failed held at the second try."""

TWICE: Final = 2
"""How often the highest rate must hold, and the next one fail: once may be chance."""

MAX_PROBES: Final = 40
"""Probes of one search. It takes a dozen; a server that is never the same twice would have it go on for ever."""

LEAST_RATE: Final = 0.1
"""Requests per second below which no limit is searched for: a probe would have none."""

KEPT_UP: Final = 0.98
"""Share of the rate that must be answered while it lasts. With less the queue grows, even if it is not felt yet."""

FEW: Final = 2.0
"""Answers that may be missing in any case: at a low rate one of them is more than two percent."""


def probe_of(rate: float, run: BenchResult, why: str) -> Probe:
    """The probe of a *run* at this rate; *why* it did not hold."""
    times = run.as_json()["latency_ms"]
    return Probe(
        rate=rate,
        held=not why,
        why=why,
        seconds=round(run.seconds, 3),
        answered=round(run.rate, 1),
        p50_ms=times["p50"],
        p99_ms=times["p99"],
        max_ms=times["max"],
        errors=run.error_count,
        generator_cpu=round(run.generator_cpu, 3),
        is_bound_by_generator=run.is_bound_by_generator,
    )


@attrs.frozen(kw_only=True)
class Conditions:
    """What must hold, in all."""

    limits: tuple[Limit, ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        """Of `p99<50ms`, once or several times, also with commas. Raises `BadLimit`."""
        found = []
        for text in (part for given in texts for part in given.split(",")):
            limit = Limit.parse(text.strip())
            is_known = limit.is_latency or limit.what.startswith("errors")
            if not is_known or limit.sign not in ("<", "<="):
                raise BadLimit(
                    f"{text[:100]!r} is not a condition to search by: expected p99<50ms, max<1s or errors<1%"
                )
            found.append(limit)
        return cls(limits=tuple(found))

    def __str__(self) -> str:
        return ", ".join(limit.text for limit in self.limits)

    @property
    def tightest(self) -> Sequence[tuple[float, float]]:
        """Of each limit on latencies its seconds, and the share of the requests that may take longer."""
        return [(limit.value, 1.0 - limit.rank) for limit in self.limits if limit.is_latency]

    def broken_by(self, run: BenchResult, rate: float) -> str:
        """What does not hold; nothing if all does."""
        has_own = any(limit.what.startswith("errors") for limit in self.limits)
        if not has_own and run.error_percent > MOST_ERRORS:
            return f"{run.error_percent:.3g}% errors"
        for limit in self.limits:
            if not limit.holds(run):
                return f"{limit.what.removesuffix('%')} {limit.told(run)}"
        missing = (rate - run.rate) * run.seconds
        if missing > max(FEW, (1 - KEPT_UP) * rate * run.seconds):
            return f"only {run.rate:,.1f}/s answered"
        return ""


@attrs.define(eq=False)
class RateSearch:
    """From a first rate on: doubled until it does not hold, then halved between, then each side tried once more."""

    first: float = attrs.field(validator=attrs.validators.gt(0))
    tried: list[tuple[float, bool]] = attrs.field(factory=list, init=False)

    def note(self, rate: float, held: bool) -> None:
        """How it went at the rate that was to be tried next."""
        self.tried.append((rate, held))

    @property
    def verdicts(self) -> dict[float, bool]:
        """Of each rate, whether it held the last time."""
        return dict(self.tried)

    @property
    def low(self) -> float:
        """The highest rate that held, below all that did not; 0 if there is none."""
        return max((rate for rate, held in self.verdicts.items() if held and rate < self.high), default=0.0)

    @property
    def high(self) -> float:
        """The lowest rate that did not hold."""
        return min((rate for rate, held in self.verdicts.items() if not held), default=math.inf)

    @property
    def is_confirmed(self) -> bool:
        """Whether the highest rate held twice, and the next one is near and failed twice."""
        low, high = self.low, self.high
        is_near = low > 0 and high <= low * (1 + PRECISION)
        return is_near and self._count(low, True) >= TWICE and self._count(high, False) >= TWICE

    def next(self) -> float | None:
        """The rate to try; None if there is nothing more to learn."""
        if not self.tried:
            return self.first
        low, high = self.low, self.high
        if self.is_confirmed or len(self.tried) >= MAX_PROBES:
            return None
        if not low:
            return high / 2 if high / 2 >= LEAST_RATE else None
        if math.isinf(high):
            has_failed = any(not held for _, held in self.tried)
            return low * (CLOSE if has_failed else 2.0)
        if high > low * (1 + PRECISION):
            return math.sqrt(low * high)
        return low if self._count(low, True) < TWICE else high

    def _count(self, rate: float, held: bool) -> int:
        return self.tried.count((rate, held))
