"""Where everything lives: one table for the whole package (docs/design/architecture.md), and this keeps it true."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import callboard

PACKAGE = Path(callboard.__file__).parent

ORDER = (
    *("_version", "errors", "codecs", "supervisor", "tree"),
    *("event_loops", "actors", "actors.server", "actors.client", "actors.broker"),
    *("transports", "transports.server", "transports.client"),
    *("oauth", "authorization", "server", "config", "client", "asyncio", "broker", "observe"),
    *("workers", "cluster", "serve", "testing", "bench", "cli"),
)
"""The rooms. Each may import what stands to its left."""

NEVER = {
    ("actors.server", "actors.client"),
    ("actors.client", "actors.server"),
    ("supervisor", "codecs"),
    ("transports.server", "transports.client"),
    ("transports.client", "transports.server"),
}
"""Imports that would go to the left, and are none of that room's business."""

LAZY = {("server", "serve")}
"""Imports to the right that a function makes when it is called: `Server.run()` and `Server.asgi()`."""

OUTSIDE = {"__init__", "__main__", "py.typed", "__pycache__"}
"""Entries of the package that are no rooms: the public names, `python -m callboard`, and what is no code of ours."""

NO_IO = {"trio", "time", "socket", "asyncio", "threading", "subprocess", "random"}
LONGEST = 500
"""Lines of a file that can be read at one sitting."""


def modules() -> dict[str, Path]:
    """Every module below the package, by its dotted name without that of the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str | None:
    """The innermost room that *module* is in."""
    rooms = [room for room in ORDER if module == room or module.startswith(f"{room}.")]
    return max(rooms, key=len, default=None)


def imports(path: Path) -> Iterator[str]:
    """Every name that a module imports, absolute and dotted: those inside functions and for type checkers, too."""
    package = ("callboard", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *([node.module] if node.module else [])))
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def edges() -> dict[str, set[str]]:
    """Which modules of ours each module imports."""
    known = modules()
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for imported in imports(path):
            if imported.startswith("callboard."):
                target = imported.removeprefix("callboard").lstrip(".")
                while target and target not in known:
                    target = target.rpartition(".")[0]
                found[name].add(target)
    return found


def astray(between: Mapping[str, set[str]]) -> list[str]:
    """The imports that the table does not allow."""
    wrong = []
    for name, targets in between.items():
        here = room_of(name)
        for target in targets if here is not None else ():
            there = room_of(target)
            if there is None:
                wrong.append(f"{name} imports {target or 'callboard'}, which is no room")
            elif (here, there) not in LAZY and (ORDER.index(there) > ORDER.index(here) or (here, there) in NEVER):
                wrong.append(f"{name} imports {target}")
    return wrong


def test_every_entry_of_the_package_is_in_the_table() -> None:
    entries = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    assert entries - OUTSIDE == {room for room in ORDER if "." not in room}


def test_imports_go_to_the_left() -> None:
    assert not astray(edges())


def test_an_import_to_the_right_is_seen() -> None:
    assert astray({"codecs.seal": {"actors.terms"}})
    assert astray({"actors.client.link": {"actors.server.host"}})
    assert astray({"config.load": {""}})
    assert not astray({"actors.server.host": {"codecs.seal"}, "server.served": {"serve.serve"}})


def test_no_module_imports_itself_in_a_circle() -> None:
    straight = {
        name: {
            target
            for target in targets
            if target not in ("", name)
            and (room_of(name), room_of(target)) not in LAZY
            and not {room_of(name), room_of(target)} <= {"supervisor"}
        }
        for name, targets in edges().items()
    }
    try:
        TopologicalSorter(straight).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_codecs_know_no_trio_no_io_and_no_clock() -> None:
    for name, path in modules().items():
        if room_of(name) == "codecs":
            assert not {imported.split(".")[0] for imported in imports(path)} & NO_IO, path


def test_no_module_is_longer_than_a_sitting() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert not {path: lines for path, lines in lengths.items() if lines > LONGEST}


def public_classes() -> Counter[str]:
    """How often each name of a public class is used."""
    return Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def test_no_two_public_classes_have_one_name() -> None:
    assert not {name: count for name, count in public_classes().items() if count > 1}


TABLES = PACKAGE / "codecs" / "revisions"
ERAS = {"MODERN", "LEGACY", "R1", "R2", "R3", "R4", "R5"}
"""Names that say when. They may be written in tables and in sets (`LEGACY & offer.revisions`), and decide nothing."""


def era_checks(tree: ast.AST) -> list[int]:
    """The lines that compare something with an era or a revision by name, or ask a revision for its era."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            compared = {str(getattr(side, "id", getattr(side, "attr", ""))) for side in sides}
            if compared & ERAS or any(name.startswith("V20") for name in compared):
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr == "era":
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "revision in MODERN",
        "terms.revision not in revisions.LEGACY",
        "revision is R4",
        "revision >= Revision.V2025_06_18",
        "revision.era is Era.MODERN",
    ],
)
def test_an_era_check_is_found(line: str) -> None:
    assert era_checks(ast.parse(line))


def test_outside_the_tables_traits_decide_and_eras_do_not() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(TABLES)
        for line in era_checks(ast.parse(path.read_text()))
    }
    assert not found, "ask `revision.dialect` why (callboard/codecs/revisions/dialect.py)"
