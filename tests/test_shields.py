"""No shield without a bound: a shielded wait that may take for ever makes a server that cannot stop."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import callboard

PACKAGE = Path(callboard.__file__).parent

BOUNDED = "# bounded"
"""What a comment begins with that names the bound of a shield which has no deadline of its own."""


def shields(source: str) -> Iterator[int]:
    """The lines on which a scope is shielded that has no deadline, and whose comment names no bound."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            is_shield = "shield" in named and not (
                isinstance(named["shield"], ast.Constant) and named["shield"].value is False
            )
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            has_deadline = "deadline" in named or called in {"move_on_after", "move_on_at", "fail_after", "fail_at"}
        elif isinstance(node, ast.Assign):
            is_shield = any(isinstance(target, ast.Attribute) and target.attr == "shield" for target in node.targets)
            is_shield = is_shield and not (isinstance(node.value, ast.Constant) and node.value.value is False)
            has_deadline = False
        else:
            continue
        if is_shield and not has_deadline and BOUNDED not in lines[node.lineno - 1]:
            yield node.lineno


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("with trio.CancelScope(shield=True): pass", True),
        ("with CancelScope(shield=is_late): pass", True),
        ("scope.shield = True", True),
        ("with trio.CancelScope(shield=True, deadline=now + 5): pass", False),
        ("with trio.move_on_after(5, shield=True): pass", False),
        ("with trio.CancelScope(shield=True): pass  # bounded by the link", False),
        ("scope.shield = False", False),
        ("with trio.CancelScope(): pass", False),
    ],
)
def test_a_shield_without_a_bound_is_found(line: str, is_found: bool) -> None:
    assert bool(list(shields(line))) == is_found


def test_every_shield_has_a_deadline_or_names_its_bound() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line}" for path in PACKAGE.rglob("*.py") for line in shields(path.read_text())
    }
    assert not found
