"""The folder list is the architecture diagram; this keeps the diagram true."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import callboard

PACKAGE = Path(callboard.__file__).parent

MAY_IMPORT = {
    "errors": set[str](),
    "codecs": {"errors"},
    "supervisor": {"errors"},
    "actors": {"errors", "codecs", "supervisor"},
    "transports": {"errors", "codecs", "supervisor", "actors"},
}
NO_IO = {"trio", "time", "socket", "asyncio", "threading", "subprocess", "random"}


def modules(room: str) -> Iterator[Path]:
    single = PACKAGE / f"{room}.py"
    return iter([single]) if single.exists() else (PACKAGE / room).rglob("*.py")


def imports(path: Path) -> Iterator[str]:
    """Every imported module as an absolute dotted name, also those inside functions."""
    package = ("callboard", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *([node.module] if node.module else [])))
            yield from (f"{stem}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_only_look_downwards(room: str) -> None:
    allowed = {room, *MAY_IMPORT[room]}
    for path in modules(room):
        for name in imports(path):
            if name.startswith("callboard."):
                assert name.split(".")[1] in allowed, f"{path.relative_to(PACKAGE)} imports {name}"


def test_codecs_know_no_trio_no_io_and_no_clock() -> None:
    for path in modules("codecs"):
        assert not {name.split(".")[0] for name in imports(path)} & NO_IO, path


def test_no_module_is_longer_than_a_sitting() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert not {path: lines for path, lines in lengths.items() if lines > 500}
