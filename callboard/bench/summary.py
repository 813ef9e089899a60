"""`--summary FILE`: a run in Markdown, as GitHub shows it below a job."""

import re
from collections.abc import Sequence
from typing import Final

from callboard.bench.junit import Case
from callboard.bench.result import BenchResult
from callboard.supervisor.printable import clean

_SIGNS: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")
"""Characters that mean something in Markdown or HTML. A server chooses some of the texts."""


def summary(run: BenchResult, rows: Sequence[Sequence[str]], cases: Sequence[Case]) -> str:
    """The verdicts first, then the figures in a table."""
    label = f": {run.provenance.label}" if run.provenance.label else ""
    verdicts = [f"- {'failed' if case.failure else 'passed'}: {_text(case.name)}{_how(case)}" for case in cases]
    table = [f"| {_text(name)} | {_text(value)} |" for name, value in rows]
    head = f"### {_text(f'callboard bench {run.target}{label}')}"
    return "\n".join([head, "", *verdicts, "", "| | |", "|---|---|", *table, "", ""])


def _how(case: Case) -> str:
    return f" ({_text(case.failure)})" if case.failure else ""


def _text(text: str) -> str:
    return _SIGNS.sub(r"\\\1", clean(" ".join(text.split())))
