"""A run as a value: what was done, how it went, and the same as a file that another run can be compared with."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs

from callboard.bench.found import LimitFound
from callboard.bench.provenance import Provenance
from callboard.bench.tally import PERCENTILES, Tally
from callboard.errors import CallboardError

FORMAT: Final = "callboard-bench/1"


class NotAResult(CallboardError):
    """A file that no run has written."""


@attrs.frozen(kw_only=True)
class BenchResult:
    """One run. Latencies are in seconds."""

    target: str
    work: str
    revision: str
    server: str
    seconds: float
    tally: Tally
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    generator_cpu: float = 0.0
    """How much of one core, at the most, a process that made the load used: near 1 the generator was the limit."""
    server_rss: int | None = None
    server_cpu: float | None = None
    figures: Mapping[str, float] = attrs.field(factory=dict)
    """Other figures; `callboard.bench.figures` explains their names."""
    provenance: Provenance = attrs.field(factory=Provenance)
    find_limit: LimitFound | None = None
    """What a search for the highest rate has found: the other figures are those at this rate."""

    @property
    def rate(self) -> float:
        """Answered requests for each second."""
        if not self.seconds or not self.tally.count:
            return 0.0
        return (self.tally.answers_so_far - self.tally.late) / self.seconds

    @property
    def count(self) -> int:
        """How many requests were answered: those that the latencies are of."""
        return self.tally.count

    @property
    def requests(self) -> int:
        """How many requests there were, answered or not."""
        return self.tally.count + self.error_count

    @property
    def unanswered(self) -> int:
        return self.tally.unanswered

    @property
    def error_count(self) -> int:
        return self.tally.error_count

    @property
    def error_percent(self) -> float:
        return 100.0 * self.error_count / self.requests if self.requests else 0.0

    @property
    def silences(self) -> Sequence[tuple[int, int]]:
        """The seconds, from and to, in which nothing was answered although much should have been.

        Only of a load that never rests: the steps of a script may wait, and a profile has figures of its own.
        """
        if self.settings.get("profile", "steady") not in ("steady", "churn") or self.tally.steps or not self.count:
            return ()
        first = math.ceil(float(self.settings.get("ramp") or 0))  # until then there is little to answer
        answered = {second for second, counted in self.tally.seconds.items() if counted.get_total_count()}
        answered |= self.tally.early.keys()  # an overloaded server still answers those of the warm-up
        answered |= {second for second, count in self.tally.refused.items() if count}
        usual = (self.tally.answers_so_far + self.tally.refused.total()) / max(len(answered), 1)
        silent = [second for second in range(first, int(self.seconds)) if second not in answered]
        spans: list[tuple[int, int]] = []
        for second in silent:
            if spans and spans[-1][1] == second:
                spans[-1] = spans[-1][0], second + 1
            else:
                spans.append((second, second + 1))
        return [(start, end) for start, end in spans if usual * (end - start) >= EXPECTED]

    @property
    def has_stalled(self) -> bool:
        """Whether the server was silent for so long that the run has not measured what it should, or died at its end:
        then what was asked last has failed."""
        last = max(self.tally.failed, default=-1)
        return any(end - start >= STALL or (end >= int(self.seconds) and last >= start) for start, end in self.silences)

    @property
    def lost_generators(self) -> Sequence[str]:
        """Generators on other machines that were lost, when and why: their part of the load is missing from then on."""
        return [str(one) for one in self.settings.get("lost_generators", ())]

    @property
    def is_comparable(self) -> bool:
        """Whether its latencies can be compared with another run's, and are not those of the few that came through."""
        is_whole = not self.has_stalled and not self.lost_generators
        return bool(self.count) and self.error_percent <= MOST_ERRORS and is_whole

    @property
    def longest(self) -> float:
        return self.tally.longest

    def percentile(self, percent: float) -> float:
        return self.tally.percentile(percent)

    @property
    def is_bound_by_generator(self) -> bool:
        return self.generator_cpu > GENERATOR_LIMIT

    def as_json(self) -> dict[str, Any]:
        """For scripts: the figures first, and at the end what they were made of."""
        return {
            "format": FORMAT,
            "run": self.provenance.as_json(),
            "target": self.target,
            "work": self.work,
            "revision": self.revision,
            "server": self.server,
            "settings": dict(self.settings),
            "seconds": round(self.seconds, 3),
            "requests": self.requests,
            "answered": self.tally.count,
            "requests_per_second": round(self.rate, 1),
            "latency_ms": {
                **{f"p{percent:g}": _milliseconds(self.percentile(percent)) for percent in PERCENTILES},
                "max": _milliseconds(self.longest),
                "mean": _milliseconds(self.tally.mean),
            },
            "errors": dict(self.tally.errors),
            "error_examples": dict(self.tally.examples),
            "error_percent": round(self.error_percent, 3),
            "find_limit": None if self.find_limit is None else self.find_limit.as_json(),
            "silences": [list(span) for span in self.silences],
            "generator_cpu": round(self.generator_cpu, 3),
            "generator_was_the_limit": self.is_bound_by_generator,
            "server_rss": self.server_rss,
            "server_cpu": self.server_cpu,
            "figures": {name: round(value, 6) for name, value in self.figures.items()},
            "steps": {label: _step(counted) for label, counted in self.tally.steps.items()},
            "histograms": self.tally.as_json(),
        }

    def by_second(self) -> Sequence[tuple[int, int, float, float, float, int]]:
        """For each second: its number, how many were answered, their p50, p99 and longest, and how many failed."""
        found = []
        for second in sorted({*self.tally.seconds, *self.tally.failed, *self.tally.early}):
            counted = self.tally.seconds.get(second)
            failed, early = self.tally.failed.get(second, 0), self.tally.early[second]
            if counted is None:
                found.append((second, early, math.nan, math.nan, math.nan, failed))
                continue
            half, most = (float(counted.get_value_at_percentile(percent)) / 1e6 for percent in (50, 99))
            longest = float(counted.get_max_value()) / 1e6
            found.append((second, int(counted.get_total_count()) + early, half, most, longest, failed))
        return found

    def as_csv(self) -> str:
        """Counts of each second as CSV. The first columns are figures; the last two say of which run they are."""
        lines = ["second,requests,p50_ms,p99_ms,max_ms,errors,started,label"]
        run = f"{self.provenance.started},{_quoted(self.provenance.label)}"
        for second, count, half, most, longest, failed in self.by_second():
            times = ",".join("" if math.isnan(one) else f"{one * 1e3:.3f}" for one in (half, most, longest))
            lines.append(f"{second},{count},{times},{failed},{run}")
        return "\n".join(lines) + "\n"

    @classmethod
    def read(cls, file: Path) -> Self:
        """Raises `NotAResult`."""
        try:
            written = json.loads(file.read_text(encoding="utf-8"))
            _check_format(file, written["format"])
            return cls(
                target=written["target"],
                work=written["work"],
                revision=written["revision"],
                server=written["server"],
                seconds=written["seconds"],
                tally=Tally.of_json(written["histograms"]),
                settings=written["settings"],
                generator_cpu=written["generator_cpu"],
                server_rss=written["server_rss"],
                server_cpu=written["server_cpu"],
                figures=written.get("figures", {}),
                provenance=Provenance.of_json(written.get("run")),
                find_limit=None if written.get("find_limit") is None else LimitFound.of_json(written["find_limit"]),
            )
        except OSError as error:
            raise NotAResult(f"{file}: {error.strerror or error}") from None
        except NotAResult:
            raise
        except Exception:  # any exception of json, zlib or the histograms for a damaged file
            raise NotAResult(f"{file} is not a result of `callboard bench --json`") from None


def _check_format(file: Path, found: object) -> None:
    if found != FORMAT:
        raise NotAResult(f"{file} was written by another version of callboard: {str(found)[:100]}")


def _step(counted: Tally) -> dict[str, Any]:
    return {
        "requests": counted.count + counted.error_count,
        "answered": counted.count,
        "p50_ms": _milliseconds(counted.percentile(50)),
        "p99_ms": _milliseconds(counted.percentile(99)),
        "max_ms": _milliseconds(counted.longest),
        "errors": dict(counted.errors),
        **counted.counts,
    }


def _quoted(text: str) -> str:
    """A cell of CSV. One that begins like a formula is made text, for spreadsheets compute it."""
    text = f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return '"' + text.replace('"', '""') + '"' if text else ""


def _milliseconds(seconds: float) -> float | None:
    """None of nothing: JSON has no other word for it."""
    return None if math.isnan(seconds) else round(seconds * 1e3, 3)


EXPECTED: Final = 10
"""Answers that are missing, at the usual rate, before a silence is told of: a few may be chance."""

STALL: Final = 2
"""Seconds of silence from which a run ends with an exit code that says so. Less may be a pause of the machine."""

MOST_ERRORS: Final = 1.0
"""Percent of errors beyond which latencies are not compared: they are those of the requests that were let through."""

GENERATOR_LIMIT: Final = 0.9
"""Share of its core beyond which the generator, and not the server, may have been what was measured."""
