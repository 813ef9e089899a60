"""The suite's other side: it plays servers, and looks at what our client does with them.

Each scenario is a process of the suite's and one of ours. Two run at a time, and those that measure time alone.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from tests.conformance import suite
from tests.conformance.suite import Check, Report, Scenario

COMMAND: Final = f"{sys.executable} -m tests.conformance.client"
"""Split at blanks by the suite, which adds the address of its server."""

REVISIONS: Final = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Only the last two have a requirement set; of the others, what the suite says belongs to them."""

EXTENSIONS: Final = "extensions"
"""A selection of its own: everything that is no part of any revision, on the newest wire."""

AT_A_TIME: Final = 2
TIMEOUT: Final = 60_000
"""Milliseconds for one scenario: a machine that is busy starts interpreters slowly."""

ALONE: Final = frozenset({"sse-retry"})
"""Scenarios that measure time: 200 ms lie between too early and too late."""
TRIES: Final = 3
"""How often these are tried on a machine that is busy with other things. Too early is never the machine's fault."""

CLIENT: Final = re.compile(r"^    - (\S+) \[client\]$", re.MULTILINE)
STAMP: Final = re.compile(r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$")


def run(revision: str) -> Report:
    """Run everything that the suite has for clients of *revision*. Raises SuiteBroke."""
    names = sorted(scenarios(revision))
    together = [name for name in names if name not in ALONE]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        found = list(pool.map(lambda name: examine(name, revision), together))
    found += [_examine_alone(name, revision) for name in names if name in ALONE]
    return Report(tuple(found))


def examine(name: str, revision: str, command: str = COMMAND) -> Scenario:
    """Run one scenario. A client that did not end well has failed, whatever else was found."""
    wire = REVISIONS[-1] if revision == EXTENSIONS else revision
    options = ("--spec-version", wire, "--force", "--timeout", str(TIMEOUT))
    with tempfile.TemporaryDirectory() as folder:
        done = suite.started("client", "--command", command, "--scenario", name, *options, "--output-dir", folder)
        checks = dict(_written(Path(folder))).get(name, ())
    is_bad = any(check.status in ("FAILURE", "WARNING") for check in checks)
    if done.returncode and not is_bad:
        checks = (*checks, Check("client-ended-well", "FAILURE", done.stdout[-1000:]))
    is_extension = suite.listed(leg="client").get(name) == "extension"
    return Scenario(name, checks, is_extension, is_strict=True)


def _examine_alone(name: str, revision: str) -> Scenario:
    for _ in range(TRIES):
        scenario = examine(name, revision)
        if scenario.verdict == "passed":
            break
    return scenario


@cache
def scenarios(revision: str) -> frozenset[str]:
    """The names of what there is for clients of *revision*."""
    if revision == EXTENSIONS:
        return frozenset(name for name, tag in suite.listed(leg="client").items() if tag == "extension")
    if revision not in REVISIONS[2:]:
        return frozenset(suite.listed("--spec-version", revision, leg="client"))
    scored, rest = suite.call("list", "--requirements", revision).split("\nClient scenarios", 1)[1].split("\n\n", 1)
    known = suite.listed(leg="client")
    named = {*suite.SCORED.findall(scored), *CLIENT.findall(rest)}
    return frozenset(name for name in named if known.get(name) != "extension")


def _written(folder: Path) -> Iterator[tuple[str, tuple[Check, ...]]]:
    for file in folder.rglob("checks.json"):
        name = STAMP.sub("", str(file.parent.relative_to(folder)))
        yield name, tuple(Check.of(row) for row in json.loads(file.read_text()) if row["status"] != "INFO")
