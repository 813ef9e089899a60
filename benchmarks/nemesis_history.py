"""What happened, one fact to a line of JSON, and the checker that reads it afterwards.

Facts, by `what`: `ask` (a request was sent), `reported` (progress), `end` (its outcome), `stray` (an answer that nobody
waits for), `ran` and `read` (a backend executed it), `death` (a backend was killed), `state` (what the broker holds, at
rest). Each has `at`, in seconds of the machine's monotonic clock, which all processes share.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final

import attrs

Fact = Mapping[str, Any]

READS: Final = 2
"""Executions of a read: once, and once more if the connection was lost before any byte of its answer."""


@attrs.define(eq=False)
class History:
    """Writes facts as they happen."""

    file: IO[str]

    def note(self, what: str, at: float, **facts: object) -> None:
        self.file.write(json.dumps({"what": what, "at": round(at, 6), **facts}) + "\n")

    def take_in(self, journal: Path) -> None:
        """Add what the backends wrote down themselves."""
        for line in journal.read_text().splitlines():
            fact = json.loads(line)
            for what in ("ran", "read"):
                if what in fact:
                    self.note(what, fact["at"], key=fact[what], by=fact["backend"])
        self.file.flush()


def read_history(file: Path) -> list[Fact]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@attrs.frozen(kw_only=True)
class Verdict:
    """What the checker found. Every list but the latencies is empty if all is well."""

    admitted: int
    outcomes: Mapping[str, int]
    hung: list[str]
    doubled: list[str]
    misrouted: list[str]
    reordered: list[str]
    repeated: list[str]
    leaked: list[str]
    deaths: int
    after_death: list[float]
    """Seconds from a backend's death to the error of each request that was in flight there, sorted."""

    @property
    def faults(self) -> dict[str, list[str]]:
        names = ("hung", "doubled", "misrouted", "reordered", "repeated", "leaked")
        return {name: found for name in names if (found := getattr(self, name))}

    def line(self) -> str:
        """All of it in one line."""
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        named = ("hung", "doubled", "misrouted", "reordered", "repeated", "leaked")
        counts = ", ".join(f"{len(getattr(self, name))} {name}" for name in named)
        late = self.after_death
        times = f"p99 {1000 * share(late, 0.99):.1f} ms, max {1000 * share(late, 1.0):.1f} ms" if late else "none"
        return f"{self.admitted} admitted ({outcomes}): {counts}; errors after {self.deaths} deaths: {times}"


def share(figures: list[float], part: float) -> float:
    """The figure that *part* of them, sorted, stay below."""
    return figures[min(len(figures) - 1, int(part * len(figures)))] if figures else 0.0


@attrs.define(eq=False)
class Checker:
    """Reads a history once. What it holds against a request is said by the request's key."""

    slack: Mapping[str, float] = attrs.field(factory=dict)
    """How much more of what the broker may hold at the end than at the beginning."""
    asked: dict[str, Fact] = attrs.field(factory=dict, init=False)
    ended: dict[str, Fact] = attrs.field(factory=dict, init=False)
    ran: Counter[str] = attrs.field(factory=Counter, init=False)
    deaths: defaultdict[str, list[float]] = attrs.field(factory=lambda: defaultdict(list), init=False)
    states: list[Fact] = attrs.field(factory=list, init=False)
    doubled: list[str] = attrs.field(factory=list, init=False)
    misrouted: list[str] = attrs.field(factory=list, init=False)
    reordered: list[str] = attrs.field(factory=list, init=False)
    _progress: dict[str, float] = attrs.field(factory=dict, init=False)

    def check(self, history: Iterable[Fact]) -> Verdict:
        facts = sorted(history, key=lambda fact: fact["at"])
        for fact in facts:
            getattr(self, f"_{fact['what']}")(fact)
        for fact in facts:
            if fact["what"] in ("ran", "read") and fact["key"] in self.asked:
                self._check_place(fact)
        return Verdict(
            admitted=len(self.asked),
            outcomes=Counter(str(fact["outcome"]) for fact in self.ended.values()),
            hung=[key for key in self.asked if key not in self.ended],
            doubled=self.doubled,
            misrouted=self.misrouted,
            reordered=self.reordered,
            repeated=self._repeated(),
            leaked=self._leaked(),
            deaths=sum(map(len, self.deaths.values())),
            after_death=sorted(self._after_death()),
        )

    def _ask(self, fact: Fact) -> None:
        self.asked[fact["key"]] = fact

    def _reported(self, fact: Fact) -> None:
        key = fact["key"]
        if key in self.ended or fact["value"] <= self._progress.get(key, -1.0):
            self.reordered.append(key)
        self._progress[key] = fact["value"]

    def _end(self, fact: Fact) -> None:
        key = fact["key"]
        if key in self.ended:
            self.doubled.append(key)
            return
        self.ended[key] = fact
        if fact["outcome"] == "result":
            if fact["of"] != key:
                self.misrouted.append(f"{key} was answered with {fact['of']}")
            self._check_place(fact)

    def _stray(self, fact: Fact) -> None:
        self.doubled.append(str(fact["key"]))

    def _ran(self, fact: Fact) -> None:
        self.ran[fact["key"]] += 1

    _read = _ran

    def _death(self, fact: Fact) -> None:
        self.deaths[fact["backend"]].append(fact["at"])

    def _state(self, fact: Fact) -> None:
        self.states.append(fact)

    def _note(self, fact: Fact) -> None:
        """Something for whoever reads the file."""

    def _check_place(self, fact: Fact) -> None:
        asked = self.asked.get(fact["key"])
        if asked is not None and fact["by"] != asked["backend"]:
            self.misrouted.append(f"{fact['key']} of {asked['backend']} was at {fact['by']}")

    def _repeated(self) -> list[str]:
        """Executions beyond what delivery promises; and results of what nobody executed."""
        may = {key: READS if fact.get("is_read") else 1 for key, fact in self.asked.items()}
        often = [f"{key} ran {count} times" for key, count in self.ran.items() if count > may.get(key, 1)]
        answered = [key for key, fact in self.ended.items() if fact["outcome"] == "result"]
        return often + [f"{key} has a result, and never ran" for key in answered if not self.ran[key]]

    def _leaked(self) -> list[str]:
        if len(self.states) < 2:
            return []
        first, last = self.states[0], self.states[-1]
        return [
            f"{kind}: {first[kind]} before, {last[kind]} after"
            for kind in first
            if kind not in ("what", "at") and last[kind] > first[kind] + self.slack.get(kind, 0)
        ]

    def _after_death(self) -> Iterable[float]:
        """For each error, the time since the last death of its backend while it was in flight."""
        for key, asked in self.asked.items():
            ended = self.ended.get(key)
            if ended is None or ended["outcome"] == "result":
                continue
            during = [at for at in self.deaths[asked["backend"]] if asked["at"] <= at <= ended["at"]]
            if during:
                yield ended["at"] - during[-1]


def check(file: Path, **slack: float) -> Verdict:
    """Judge the history in *file*."""
    return Checker(slack).check(read_history(file))
