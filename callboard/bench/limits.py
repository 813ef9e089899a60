"""`--fail-if "p99>20ms"`: what a run must hold for a pipeline to go on."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs

from callboard.bench.figures import FIGURES, Figure, written
from callboard.errors import CallboardError

_FORM: Final = re.compile(
    r"\s*(?P<what>[a-z_]+(?:\d+(?:\.\d+)?)?)\s*(?P<sign>>=|<=|>|<)\s*"
    r"(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|%|/s|[KM]iB|[kM]B)?\s*"
)
_UNITS: Final[Mapping[str, float]] = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZES: Final[Mapping[str, float]] = {"kB": 1e3, "MB": 1e6, "KiB": 2**10, "MiB": 2**20}
_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}


class BadLimit(CallboardError):
    """A limit that says nothing. One line says how it could."""


class ShownLimit(Protocol):
    """The results that a limit is compared with."""

    @property
    def count(self) -> int: ...

    @property
    def unanswered(self) -> int: ...

    @property
    def rate(self) -> float: ...

    @property
    def error_percent(self) -> float: ...

    @property
    def error_count(self) -> int: ...

    @property
    def longest(self) -> float: ...

    @property
    def figures(self) -> Mapping[str, float]: ...

    def percentile(self, percent: float) -> float: ...


@attrs.frozen
class Limit:
    """One limit. `broken_by` a run, the run fails."""

    text: str
    what: str
    sign: str
    value: float

    @classmethod
    def parse(cls, text: str, profile: str = "steady") -> "Limit":
        """Raises `BadLimit`, also for a figure that a run of this *profile* does not have."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise BadLimit(
                f"{text[:100]!r} is not a limit: expected p99>20ms, max>1s, errors>0, errors>1% or rate<1000"
            )
        what, unit, value = found["what"], found["unit"], float(found["value"])
        if what == "max" or re.fullmatch(r"p\d{1,2}(\.\d+)?", what):
            if unit not in _UNITS:
                raise BadLimit(f"{text[:100]!r}: time without a unit: expected us, ms or s")
            return cls(text, what, found["sign"], value * _UNITS[unit])
        if what == "errors" and unit in (None, "%"):
            return cls(text, "errors%" if unit else "errors", found["sign"], value)
        if what == "rate" and unit in (None, "/s"):
            return cls(text, what, found["sign"], value)
        if what in FIGURES:
            return cls(text, what, found["sign"], value * _scale(text, FIGURES[what], unit, profile))
        raise BadLimit(
            f"{text[:100]!r}: unknown figure: expected p50, p99.9, max, errors, rate, or a figure of a profile"
        )

    @property
    def is_latency(self) -> bool:
        return self.what == "max" or (self.what not in FIGURES and self.what[:1] == "p")

    @property
    def rank(self) -> float:
        """The share of the requests that a limit on latency is about."""
        return 1.0 if self.what == "max" else float(self.what[1:]) / 100

    def holds(self, shown: ShownLimit) -> bool:
        """Whether it is true of a run. Of an unknown figure nothing is."""
        found = self.found_in(shown)
        return not math.isnan(found) and _SIGNS[self.sign](found, self.value)

    def broken_by(self, shown: ShownLimit) -> bool:
        """Whether the limit is exceeded. An unknown figure exceeds its limit."""
        found = self.found_in(shown)
        return math.isnan(found) or _SIGNS[self.sign](found, self.value)

    def found_in(self, shown: ShownLimit) -> float:
        """The figure that the limit is about. Where nothing was answered, it takes for ever."""
        if self.what in FIGURES:
            return shown.figures.get(self.what, 0.0 if FIGURES[self.what].unit == "" else math.nan)
        plain = {"errors": shown.error_count, "errors%": shown.error_percent, "rate": shown.rate}
        if self.what in ("errors", "errors%", "rate"):
            return plain[self.what]
        # A request that still waits at the end has waited longest: a stall for good must not hide, either.
        rank = self.rank
        if shown.count == 0 or rank * (shown.count + shown.unanswered) > shown.count:
            return math.inf
        if self.what == "max":
            return shown.longest
        return shown.percentile(100 * rank * (shown.count + shown.unanswered) / shown.count)

    def told(self, shown: ShownLimit) -> str:
        """The figure as text."""
        found = self.found_in(shown)
        if math.isnan(found):
            return "not known"
        if self.what in FIGURES:
            return written(found, FIGURES[self.what].unit)
        if self.what in ("errors", "errors%", "rate"):
            return f"{found:.4g}{'%' if self.what == 'errors%' else '/s' if self.what == 'rate' else ''}"
        return "infinite: too many requests were not answered" if found == math.inf else f"{found * 1e3:.4g}ms"


def _scale(text: str, figure: Figure, unit: str | None, profile: str) -> float:
    """The factor of a limit's unit."""
    if figure.profile not in ("", profile):
        raise BadLimit(f"{text[:100]!r}: only measured by --profile {figure.profile}")
    if figure.unit == "s":
        if unit is None or unit not in _UNITS:
            raise BadLimit(f"{text[:100]!r}: time without a unit: expected us, ms or s")
        return _UNITS[unit]
    if figure.unit == "bytes":
        if unit is None or unit not in _SIZES:
            raise BadLimit(f"{text[:100]!r}: memory without a unit: expected kB, MB, KiB or MiB")
        return _SIZES[unit]
    if unit not in (None, "/s" if figure.unit == "/s" else None):
        raise BadLimit(f"{text[:100]!r}: expected a number without a unit")
    return 1.0
