"""The official conformance suite: which of its scenarios we run, and what a run of them found."""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from tests.node import installed, node

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
PROGRAM: Final = "node_modules/@modelcontextprotocol/conformance/dist/index.js"

SELECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "2025-03-26": ("--suite", "all", "--spec-version", "2025-03-26"),
    "2025-06-18": ("--suite", "all", "--spec-version", "2025-06-18"),
    "2025-11-25": ("--requirements", "2025-11-25"),
    "2026-07-28": ("--requirements", "2026-07-28"),
}
"""How the suite is asked for a revision. Only the last two have a requirement set; what belongs to the others is run
at their wire all the same. The suite knows nothing of 2024-11-05."""

SKIPS_ITSELF: Final = "tasks-status-notifications"
"""The one scenario for servers that has no test yet; ours is tests/server/test_task_news.py."""

RUN_TIME: Final = 300
"""Seconds for one selection. The suite bounds each scenario (30 s); this is for the case that it hangs itself."""

FOUND = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed")
LISTED = re.compile(r"^  - (\S+) \[(\S+)\]$", re.MULTILINE)
SCORED = re.compile(r"^  - (\S+)$", re.MULTILINE)
UNSCORED = re.compile(r"^    - (\S+) \[server\]$", re.MULTILINE)
STAMP = re.compile(r"^server-(.*)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$")

Verdict = Literal["passed", "failed", "skipped", "extension"]


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
    extension: bool
    is_strict: bool = False
    """Whether a warning is a failure: the suite has it so for clients."""

    def count(self, status: str) -> int:
        return sum(check.status == status for check in self.checks)

    @property
    def verdict(self) -> Verdict:
        """A scenario of an extension is shown and never counted; one that tested nothing has not passed."""
        if self.extension:
            return "extension"
        if self.count("FAILURE") or (self.is_strict and self.count("WARNING")):
            return "failed"
        # Looking at the schema of the traffic, which every scenario does, is no test of what it is about.
        tested = [c for c in self.checks if c.id != "wire-schema-valid" and c.status in ("SUCCESS", "WARNING")]
        return "passed" if tested else "skipped"

    def lines(self) -> Iterator[str]:
        """One line, and one more for everything that it found wrong."""
        counts = f"{self.count('SUCCESS')} passed, {self.count('FAILURE')} failed, {self.count('WARNING')} warned"
        yield f"{self.verdict:9} {self.name}: {counts}"
        if not self.extension:
            for check in self.checks:
                if check.status in ("FAILURE", "WARNING"):
                    yield f"          {check.status.lower()} {check.id}: {check.text}"


@attrs.frozen
class Report:
    """What one selection found."""

    scenarios: tuple[Scenario, ...]

    def of(self, verdict: Verdict) -> list[Scenario]:
        return [scenario for scenario in self.scenarios if scenario.verdict == verdict]

    @property
    def good(self) -> bool:
        return bool(self.of("passed")) and not self.of("failed")

    def __str__(self) -> str:
        lines = [line for scenario in self.scenarios for line in scenario.lines()]
        return "\n".join([*lines, f"{len(self.of('passed'))} passed, {len(self.of('failed'))} failed"])


def run(url: str, revision: str) -> Report:
    """Run everything that the suite has for *revision* against the server at *url*. Raises SuiteBroke."""
    extensions = {name for name, tag in listed().items() if tag == "extension"}
    return Report(
        tuple(Scenario(name, checks, name in extensions) for name, checks in _found(url, *SELECTIONS[revision]))
    )


def run_all(url: str) -> Report:
    """Run every scenario that the suite has for servers, extensions included, against the server at *url*: in their
    scenarios a warning is a failure, too. Raises SuiteBroke."""
    extensions = {name for name, tag in listed().items() if tag == "extension"}
    found = _found(url, "--suite", "all")
    return Report(tuple(Scenario(name, checks, False, is_strict=name in extensions) for name, checks in found))


def _found(url: str, *selection: str) -> list[tuple[str, tuple[Check, ...]]]:
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
