"""What the package imports is what it declares, and nothing older than what is known to be safe."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import callboard

PACKAGE = Path(callboard.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]


def declared() -> dict[str, str]:
    """Lower bounds of the dependencies, extras included, by name."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for name in extras if name != "dev" for line in extras[name])]
    return {name: bound.partition(",")[0] for name, _, bound in (line.partition(">=") for line in lines)}


def imported() -> set[str]:
    """Top-level modules of others that any module of the package imports."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                found.add(node.module)
    tops = {name.partition(".")[0] for name in found}
    return tops - set(sys.stdlib_module_names) - {"callboard"}


@pytest.mark.finding("security-24")
def test_every_import_is_declared() -> None:
    known = packages_distributions()
    names = {_same(name) for name in declared()}
    missing = {top for top in imported() if not names & {_same(name) for name in known.get(top, [top])}}
    assert missing - {"pydantic", "_typeshed"} == set()  # looked for, and not needed; for mypy alone


def _same(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.finding("security-24")
@pytest.mark.parametrize(
    ("name", "least"), [("httptools", (0, 6, 2)), ("h11", (0, 16)), ("h2", (4, 3)), ("joserfc", (1, 6, 3))]
)
def test_no_dependency_may_be_so_old_that_it_is_known_to_be_unsafe(name: str, least: tuple[int, ...]) -> None:
    assert tuple(int(part) for part in declared()[name].split(".")) >= least
