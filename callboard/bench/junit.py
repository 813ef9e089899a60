"""`--junit FILE`: the limits of a run as test cases, as continuous integration systems read and show them."""

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

import attrs

from callboard.bench.isolation import FINDINGS
from callboard.bench.limits import Limit
from callboard.bench.provenance import Provenance
from callboard.bench.result import BenchResult
from callboard.supervisor.printable import clean

SUITE: Final = "callboard.bench"


@attrs.frozen
class Case:
    """One thing that a run must fulfil. It failed if there is a text that says how."""

    name: str
    failure: str = ""
    is_verdict: bool = False
    """Whether it is what the run was made to find out: then a failure is one of the run."""


def cases(run: BenchResult, limits: Sequence[Limit]) -> Iterator[Case]:
    """Each limit, and what holds of every run that is worth to be looked at."""
    yield Case("requests are answered", "" if run.count else "no request was answered")
    spans = ", ".join(f"from second {start} to {end}" for start, end in run.silences)
    yield Case("the server answers throughout", f"no answer {spans}" if run.has_stalled else "")
    if run.settings.get("generators"):
        yield Case("all generators work to the end", "; ".join(run.lost_generators))
    for limit in limits:
        yield Case(f"not {limit.text}", f"measured: {limit.told(run)}" if limit.broken_by(run) else "")
    if run.find_limit is not None:
        found = run.find_limit
        yield Case(f"a rate at which {found.conditions}", "" if found.rate is not None else str(found), is_verdict=True)
    if run.settings.get("profile") == "isolation":
        for kind in FINDINGS:
            count = run.tally.errors[kind]
            example = run.tally.examples.get(kind, "")
            yield Case(f"never: {kind}", f"{count:,} times: {example}" if count else "", is_verdict=True)


def junit(run: BenchResult, found: Sequence[Case], rows: Sequence[Sequence[str]]) -> str:
    """A run with its cases; *rows* are shown as its output."""
    output = "\n".join(": ".join(row) for row in rows)
    return _suite(run.target, run.provenance, run.seconds, [_case(case) for case in found], output)


def junit_of_failure(target: str, provenance: Provenance, why: str) -> str:
    """A run that did not begin."""
    case = f'<testcase classname="{SUITE}" name="requests are answered"><error message={_quoted(why)}/></testcase>'
    return _suite(target, provenance, 0.0, [case], why)


def _suite(target: str, provenance: Provenance, seconds: float, found: Sequence[str], output: str) -> str:
    failures, errors = (sum(f"<{kind} " in case for case in found) for kind in ("failure", "error"))
    counts = f'tests="{len(found)}" failures="{failures}" errors="{errors}" time="{seconds:.3f}"'
    when = f' timestamp="{provenance.started.removesuffix("Z")}"' if provenance.started else ""
    properties = "".join(
        f"<property name={_quoted(name)} value={_quoted(value)}/>" for name, value in provenance.told()
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites {counts}>",
        f"<testsuite name={_quoted(f'callboard bench {target}')} {counts}{when}>",
        f"<properties>{properties}</properties>",
        *found,
        f"<system-out>{escape(clean(output))}</system-out>",
        "</testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _case(case: Case) -> str:
    head = f'<testcase classname="{SUITE}" name={_quoted(case.name)}'
    if not case.failure:
        return f"{head}/>"
    return f'{head}><failure message={_quoted(case.failure)} type="limit"/></testcase>'


def _quoted(text: str) -> str:
    return quoteattr(clean(" ".join(text.split())))
