"""What the hosting API is built of: the parts that need no actor know none."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

import callboard.server
from callboard.server import content, signature

OURS = {"codecs", "errors", "server"}
NO_IO = {"asyncio", "random", "socket", "subprocess", "threading", "time"}


def imported(folder: Path) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {tuple(alias.name.split(".")) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                found.add(tuple((node.module or "").split(".")))
    return found


@pytest.mark.parametrize("package", [content, signature], ids=["content", "signature"])
def test_signatures_and_content_need_no_actor_no_trio_and_never_pydantic(package: ModuleType) -> None:
    names = imported(Path(str(package.__file__)).parent)
    assert {name[1] for name in names if name[0] == "callboard"} <= OURS
    assert {name[2] for name in names if name[:2] == ("callboard", "server")} <= {"content", "signature"}
    assert not {name[0] for name in names} & {"pydantic", "trio", *NO_IO}


def test_every_public_name_is_there_and_in_order() -> None:
    names = callboard.server.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(callboard.server, name) for name in names)
