"""No duty of a server or a client is forgotten: each is proved by a test that names it, or has a written reason."""

import ast
import csv
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.client_requirements import ELSEWHERE_OF_CLIENT
from tests.requirements import ELSEWHERE, Elsewhere, Why
from tests.shared import PROTOCOL, needs_protocol

TESTS = Path(__file__).parent
MARK = "pytest.mark.requirement"

REASONS: Mapping[str, Sequence[Elsewhere]] = {"server": ELSEWHERE, "client": ELSEWHERE_OF_CLIENT}
OF_CLIENT = ("client/", "actors/client/", "transports/client/", "cli/", "oauth/", "codecs/oauth/")
"""Where the tests of a client are."""
OF_SERVER = ("cli/test_serving.py",)
"""Tests of a server among those."""
SHARED = "codecs/"
"""Where the tests are of what both sides share."""

sides = pytest.mark.parametrize("side", REASONS)


def duties(side: str) -> set[str]:
    """The ids of all rows that bind a *side*."""
    with PROTOCOL.joinpath("REQUIREMENTS.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"] for row in csv.DictReader(file) if row["role"] in (side, "both")}


def every_duty() -> set[str]:
    return duties("server") | duties("client")


def explained(side: str) -> Counter[str]:
    return Counter(requirement for elsewhere in REASONS[side] for requirement in elsewhere.ids)


def is_of(side: str, path: str) -> bool:
    """Whether a file's tests are about this side."""
    is_client = path.startswith(OF_CLIENT) and path not in OF_SERVER
    return is_client == (side == "client") or (path.startswith(SHARED) and not is_client)


def marks_in(source: str) -> Iterator[tuple[str, str]]:
    """The marked tests of a file and the ids they name. Read, not run: also what is skipped, and on any worker."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
                    yield from ((node.name, ast.literal_eval(argument)) for argument in mark.args)


@functools.cache
def marked() -> Sequence[tuple[str, str, str]]:
    """Every mark: file, test, id."""
    return [
        (path.relative_to(TESTS).as_posix(), name, requirement)
        for path in sorted(TESTS.rglob("test_*.py"))
        for name, requirement in marks_in(path.read_text(encoding="utf-8"))
    ]


def proved(side: str) -> set[str]:
    """The ids that tests of this side name."""
    return {requirement for path, _, requirement in marked() if is_of(side, path)} & duties(side)


@needs_protocol
@sides
def test_every_duty_has_a_test_or_a_reason(side: str) -> None:
    assert sorted(duties(side) - proved(side) - explained(side).keys()) == []


@needs_protocol
@sides
def test_no_reason_names_what_is_no_duty(side: str) -> None:
    assert sorted(explained(side).keys() - duties(side)) == []


@needs_protocol
def test_no_test_names_what_is_no_duty() -> None:
    assert sorted({requirement for _, _, requirement in marked()} - every_duty()) == []


@needs_protocol
@sides
def test_no_test_proves_a_duty_of_the_other_side_alone(side: str) -> None:
    named = {requirement for path, _, requirement in marked() if is_of(side, path) and not path.startswith(SHARED)}
    assert sorted(named - duties(side)) == []


@needs_protocol
@sides
def test_no_duty_has_both_a_test_and_a_reason_or_two_reasons(side: str) -> None:
    assert sorted(explained(side).keys() & proved(side)) == []
    assert [requirement for requirement, times in explained(side).items() if times > 1] == []


def test_only_tests_are_marked() -> None:
    assert [name for _, name, _ in marked() if not name.startswith("test_")] == []


def test_marks_are_found_wherever_a_test_may_stand() -> None:
    source = """
@pytest.mark.requirement("M001", "L001")
@other
async def test_a(): ...

@pytest.mark.requirement("M002")
def test_b(): ...

def test_c(): ...
"""
    assert list(marks_in(source)) == [("test_a", "M001"), ("test_a", "L001"), ("test_b", "M002")]


@needs_protocol
@sides
def test_the_table_in_figures(side: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints what is proved, what belongs elsewhere, and what is owed."""
    figures = Counter(dict.fromkeys(Why, 0))
    for elsewhere in REASONS[side]:
        figures[elsewhere.why] += len(elsewhere.ids)
    total, tested = len(duties(side)), len(proved(side))
    with capsys.disabled():
        rest = ", ".join(f"{why.name.lower()} {count}" for why, count in figures.items() if count)
        print(f"\nduties of a {side}: {total}; proved by tests {tested}; {rest}")  # noqa: T201
    assert tested + figures.total() == total
