import ast
from pathlib import Path

import callboard.hosting

FOLDER = Path(callboard.hosting.__file__).parent
OURS = {"codecs", "errors", "hosting"}
THEIRS = {"attrs", "jsonschema_rs", "msgspec"}
NO_IO = {"asyncio", "random", "socket", "subprocess", "threading", "time"}


def imported() -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {tuple(alias.name.split(".")) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                found.add(tuple((node.module or "").split(".")))
    return found


def test_hosting_needs_no_actor_no_trio_and_never_pydantic() -> None:
    roots = {name[0] for name in imported()}
    assert {name[1] for name in imported() if name[0] == "callboard"} <= OURS
    assert roots & THEIRS == THEIRS
    assert not roots & {"pydantic", "trio", *NO_IO}


def test_every_public_name_is_there_and_in_order() -> None:
    names = callboard.hosting.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(callboard.hosting, name) for name in names)
