"""Write `reference/limits.md` from the limits themselves: each is a constant with its reason beneath it.

python docs/limits.py > docs/reference/limits.md

The table of what a peer can make grow is that of `benchmarks/memory_table.py`, with the figures that `python -m
benchmarks.memory --write` left in `reference/memory.json`.
"""

import ast
import importlib
import runpy
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "callboard"
ROOMS = ("codecs", "supervisor", "actors", "transports", "oauth")
HEAD = """# Limits

Every queue, buffer, count and wait has a limit, and one behaviour when it is reached. This page is made from the code
by `docs/limits.py`; a test keeps the two together.

| limit | value | why |
|---|---|---|"""


def limits() -> Iterator[tuple[str, float, str]]:
    """Every public numeric constant that has a reason beneath it: its dotted name, value and reason."""
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            for statement, reason in pairwise(ast.parse(path.read_text()).body):
                match statement, reason:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ) if not name.startswith("_"):
                        value = getattr(importlib.import_module(module), name)
                        if isinstance(value, int | float):
                            yield f"{module.removeprefix('callboard.')}.{name}", value, " ".join(text.split())


def page() -> str:
    table = runpy.run_path(str(PACKAGE.parent / "benchmarks" / "memory_table.py"))
    grown: list[str] = table["lines"](table["read"]())
    return (
        "\n".join([HEAD, *(f"| `{name}` | {value:,} | {why} |" for name, value, why in limits()), *grown]).rstrip("\n")
        + "\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
