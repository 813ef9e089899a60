"""No duty of a server is forgotten: each is proved by a test that names it, or has a written reason."""

import ast
import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import ELSEWHERE, Why
from tests.shared import PROTOCOL, needs_protocol

TESTS = Path(__file__).parent
MARK = "pytest.mark.requirement"


def duties() -> set[str]:
    """The ids of all rows that bind a server."""
    with PROTOCOL.joinpath("REQUIREMENTS.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"] for row in csv.DictReader(file) if row["role"] in ("server", "both")}


def marks_in(source: str) -> Iterator[tuple[str, str]]:
    """The marked tests of a file and the ids they name. Read, not run: also what is skipped, and on any worker."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
                    yield from ((node.name, ast.literal_eval(argument)) for argument in mark.args)


def proved() -> dict[str, list[str]]:
    """By id, the tests that name it."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, requirement in marks_in(path.read_text(encoding="utf-8")):
            found.setdefault(requirement, []).append(f"{path.relative_to(TESTS)}::{name}")
    return found


@needs_protocol
def test_every_duty_of_a_server_has_a_test_or_a_reason() -> None:
    explained = {requirement for elsewhere in ELSEWHERE for requirement in elsewhere.ids}
    assert sorted(duties() - proved().keys() - explained) == []


@needs_protocol
def test_no_test_and_no_reason_names_what_is_no_duty_of_a_server() -> None:
    explained = {requirement for elsewhere in ELSEWHERE for requirement in elsewhere.ids}
    assert sorted((proved().keys() | explained) - duties()) == []


def test_no_duty_has_both_a_test_and_a_reason_or_two_reasons() -> None:
    explained = Counter(requirement for elsewhere in ELSEWHERE for requirement in elsewhere.ids)
    assert sorted(explained.keys() & proved().keys()) == []
    assert [requirement for requirement, times in explained.items() if times > 1] == []


def test_only_tests_are_marked() -> None:
    marked = [test for tests in proved().values() for test in tests]
    assert [test for test in marked if not test.partition("::")[2].startswith("test_")] == []


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
def test_the_table_in_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints what is proved, what belongs elsewhere, and what is owed."""
    figures = Counter(dict.fromkeys(Why, 0))
    for elsewhere in ELSEWHERE:
        figures[elsewhere.why] += len(elsewhere.ids)
    total, tested = len(duties()), len(proved())
    with capsys.disabled():
        rest = ", ".join(f"{why.name.lower()} {count}" for why, count in figures.items())
        print(f"\nduties of a server: {total}; proved by tests {tested}; {rest}")  # noqa: T201
    assert tested + figures.total() == total
