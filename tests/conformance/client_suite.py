"""The suite's other side: it plays servers, and looks at what our client does with them.

All scenarios of a revision are one process of the suite's, which plays all servers at once, and a fork of ours for
each. Those that measure time are tried again alone, if they failed in company.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.conformance import noted, suite
from tests.conformance.suite import Check, Report, Scenario, SuiteBroke
from tests.fork_server import forked

REVISIONS: Final = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Only the last two have a requirement set; of the others, what the suite says belongs to them."""

EXTENSIONS: Final = "extensions"
"""A selection of its own: everything that is no part of any revision, on the newest wire."""

TIMEOUT: Final = 60_000
"""Milliseconds for one scenario: a machine that is busy starts interpreters slowly."""

ALONE: Final = frozenset({"sse-retry"})
"""Scenarios that measure time: 200 ms lie between too early and too late."""
TRIES: Final = 3
"""How often these are tried on a machine that is busy with other things. Too early is never the machine's fault."""

REFUSING: Final = frozenset(
    {
        "auth/iss-normalized",
        "auth/iss-supported-missing",
        "auth/iss-unexpected",
        "auth/iss-wrong-issuer",
        "auth/metadata-issuer-mismatch",
        "auth/resource-mismatch",
        "auth/scope-retry-limit",
    }
)
"""Scenarios of servers that no client should go on with: ours ends with an error, and says which."""

CLIENT: Final = re.compile(r"^    - (\S+) \[client\]$", re.MULTILINE)
STAMP: Final = re.compile(r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$")


def command(module: str = "tests.conformance.client", *arguments: str) -> str:
    """Split at blanks by the suite, which adds the address of its server."""
    return " ".join((*forked(module), *arguments))


def run(revision: str) -> Report:
    """Run everything that the suite has for clients of *revision*. Raises SuiteBroke."""
    if revision == EXTENSIONS:
        return Report(tuple(examine(name, revision, command()) for name in sorted(scenarios(revision))))
    return Report(tuple(_tried_alone(found, revision) for found in _examined_at_once(revision)))


def _examined_at_once(revision: str) -> Iterator[Scenario]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ended"
        client = command("tests.conformance.noted", str(file))
        given = ("--command", client, "--timeout", str(TIMEOUT), "--output-dir", folder)
        printed = suite.call("client", *suite.SELECTIONS[revision], *given)
        checks, ended = dict(_written(Path(folder))), noted.read(file)
    for name in sorted(scenarios(revision)):
        if name not in ended:
            raise SuiteBroke(f"no client of {name} came to an end:\n{printed[-2000:]}")
        is_well = ended[name] == 0 or name in REFUSING
        yield _judged(name, checks.get(name, ()), is_well, f"it ended with {ended[name]}")


def examine(name: str, revision: str, command: str) -> Scenario:
    """Run one scenario. A client that did not end well has failed, whatever else was found."""
    wire = REVISIONS[-1] if revision == EXTENSIONS else revision
    options = ("--spec-version", wire, "--force", "--timeout", str(TIMEOUT))
    with tempfile.TemporaryDirectory() as folder:
        done = suite.started("client", "--command", command, "--scenario", name, *options, "--output-dir", folder)
        checks = dict(_written(Path(folder))).get(name, ())
    return _judged(name, checks, done.returncode == 0, done.stdout[-1000:])


def _judged(name: str, checks: tuple[Check, ...], is_well: bool, words: str) -> Scenario:
    is_bad = any(check.status in ("FAILURE", "WARNING") for check in checks)
    if not is_well and not is_bad:
        checks = (*checks, Check("client-ended-well", "FAILURE", words))
    return Scenario(name, checks, is_strict=True)


def _tried_alone(found: Scenario, revision: str) -> Scenario:
    for _ in range(TRIES if found.name in ALONE else 0):
        if found.verdict == "passed":
            break
        found = examine(found.name, revision, command())
    return found


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
