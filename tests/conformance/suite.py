"""The official conformance suite: which of its scenarios we run, and what a run of them found."""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from tests.node import installed, node

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
PROGRAM: Final = "node_modules/@modelcontextprotocol/conformance/dist/index.js"

Selection: TypeAlias = tuple[str, ...]
"""Which scenarios one run of the suite has, and at which wire: arguments of its program."""

SELECTIONS: Final[Mapping[str, Selection]] = {
    "2025-03-26": ("--suite", "all", "--spec-version", "2025-03-26"),
    "2025-06-18": ("--suite", "all", "--spec-version", "2025-06-18"),
    "2025-11-25": ("--requirements", "2025-11-25"),
    "2026-07-28": ("--requirements", "2026-07-28"),
}
"""How the suite is asked for a revision. Only the last two have a requirement set; what belongs to the others is run
at their wire all the same. The suite knows nothing of 2024-11-05."""

Stage: TypeAlias = tuple[Selection, ...]
"""Runs that can go on at once."""

EVERY: Final[tuple[Stage, ...]] = (
    (("--suite", "active"),),
    (
        ("--suite", "pending"),
        ("--suite", "draft"),
        ("--suite", "active", "--spec-version", "2026-07-28"),
        ("--suite", "pending", "--spec-version", "2026-07-28"),
    ),
)
"""Every scenario for servers, extensions included, at both wires if it belongs to both. The older wire is alone: of two
of its clients that share a connection to a server, neither would get the log messages, which name no request."""

OLDER: Final[tuple[Stage, ...]] = ((SELECTIONS["2025-06-18"],), (SELECTIONS["2025-03-26"],))

LANES: Final = 2
"""Runs at once. The tasks in `pending` take as long as all others, and wait most of it; three runs would only make each
other late where a scenario measures time."""

SKIPS_ITSELF: Final = "tasks-status-notifications"
"""The one scenario for servers that has no test yet; ours is tests/server/test_task_news.py."""

RUN_TIME: Final = 300
"""Seconds for one selection. The suite bounds each scenario (30 s); this is for the case that it hangs itself."""

FOUND = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed")
LISTED = re.compile(r"^  - (\S+) \[(\S+)\]$", re.MULTILINE)
SCORED = re.compile(r"^  - (\S+)$", re.MULTILINE)
UNSCORED = re.compile(r"^    - (\S+) \[server\]$", re.MULTILINE)
STAMP = re.compile(r"^server-(.*)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$")

Verdict = Literal["passed", "failed", "skipped"]


class SuiteBroke(AssertionError):
    """The suite itself did not come to an end; what it printed last is in the message."""


@attrs.frozen
class Check:
    """One assertion of a scenario."""

    id: str
    status: str
    text: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Check":
        return cls(row["id"], row["status"], row.get("errorMessage") or row.get("description") or "")


@attrs.frozen
class Scenario:
    """What one scenario found."""

    name: str
    checks: tuple[Check, ...]
    is_strict: bool = False
    """Whether a warning is a failure: the suite has it so for clients."""

    def count(self, status: str) -> int:
        return sum(check.status == status for check in self.checks)

    @property
    def verdict(self) -> Verdict:
        """A scenario that tested nothing has not passed."""
        if self.count("FAILURE") or (self.is_strict and self.count("WARNING")):
            return "failed"
        # Looking at the schema of the traffic, which every scenario does, is no test of what it is about.
        tested = [c for c in self.checks if c.id != "wire-schema-valid" and c.status in ("SUCCESS", "WARNING")]
        return "passed" if tested else "skipped"

    def lines(self) -> Iterator[str]:
        """One line, and one more for everything that it found wrong."""
        counts = f"{self.count('SUCCESS')} passed, {self.count('FAILURE')} failed, {self.count('WARNING')} warned"
        yield f"{self.verdict:9} {self.name}: {counts}"
        for check in self.checks:
            if check.status in ("FAILURE", "WARNING"):
                yield f"          {check.status.lower()} {check.id}: {check.text}"


@attrs.frozen
class Report:
    """What a run found."""

    scenarios: tuple[Scenario, ...]

    def of(self, verdict: Verdict) -> list[Scenario]:
        return [scenario for scenario in self.scenarios if scenario.verdict == verdict]

    @property
    def good(self) -> bool:
        return bool(self.of("passed")) and not self.of("failed")

    @property
    def is_complete(self) -> bool:
        """Whether every scenario for servers has passed, but for the one that tests nothing."""
        return {scenario.name for scenario in self.of("passed")} == set(listed()) - {SKIPS_ITSELF}

    def __str__(self) -> str:
        lines = [line for scenario in self.scenarios for line in scenario.lines()]
        counts = ", ".join(f"{len(self.of(verdict))} {verdict}" for verdict in ("passed", "failed", "skipped"))
        return "\n".join([*lines, counts])


def run(url: str, *stages: Stage) -> Report:
    """Run scenarios against the server at *url*, stage by stage: each scenario is one, at all wires where it was run.
    In those of extensions a warning is a failure, too. Raises SuiteBroke."""
    checks: dict[str, tuple[Check, ...]] = {}
    with ThreadPoolExecutor(LANES) as pool:
        for stage in stages:
            for found in pool.map(partial(_found, url), stage):
                for name, more in found:
                    checks[name] = (*checks.get(name, ()), *more)
    known = listed()
    return Report(tuple(Scenario(name, all_, known.get(name) == "extension") for name, all_ in checks.items()))


def _found(url: str, selection: Selection) -> list[tuple[str, tuple[Check, ...]]]:
    with tempfile.TemporaryDirectory() as folder:
        printed = call("server", "--url", url, *selection, "--output-dir", folder)
        checks = dict(written(Path(folder)))
    names = [match[1] for match in map(FOUND.match, printed.splitlines()) if match]
    if not names:
        raise SuiteBroke(printed[-2000:])
    # The suite writes no file for a scenario that crashed; that is a failure which has only a line.
    crashed = (Check("scenario-crashed", "FAILURE", "it did not come to an end"),)
    return [(name, checks.get(name, crashed)) for name in names]


@cache
def listed(*options: str, leg: str = "server") -> dict[str, str]:
    """Every scenario for servers, or for clients, by name, with the revisions it belongs to, or `extension`."""
    return dict(LISTED.findall(call("list", f"--{leg}", *options)))


def required(revision: str) -> set[str]:
    """The scenarios for servers in a requirement set, those that it does not score included."""
    servers, rest = call("list", "--requirements", revision).split("\nClient scenarios", 1)
    return {*SCORED.findall(servers), *UNSCORED.findall(rest)}


def written(folder: Path) -> Iterator[tuple[str, tuple[Check, ...]]]:
    for file in folder.glob("*/checks.json"):
        if stamped := STAMP.match(file.parent.name):
            yield stamped[1], tuple(Check.of(row) for row in json.loads(file.read_text()))


def call(*arguments: str) -> str:
    """What one run of the suite's program prints. Raises SuiteBroke."""
    return started(*arguments).stdout


def started(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """One run of the suite's program, to its end. Raises SuiteBroke."""
    command = [str(node()), str(installed(HERE) / PROGRAM), *arguments]
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=RUN_TIME,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise SuiteBroke(f"not done after {RUN_TIME} s: {late.output!r:.2000}") from None
