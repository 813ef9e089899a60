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
ROOMS = ("codecs", "supervisor", "actors", "transports", "oauth", "authorization", "workers", "cluster", "serve")
HEAD = """# Limits

Every queue, buffer, count and wait has a limit, and one behaviour when it is reached. This page is made from the code
by `docs/limits.py`; a test keeps the two together.

With several workers (`--workers`), a limit that *holds for each worker* is counted by each process for itself, so all
of them together may have as many times as much; if it is one of a single message, connection or session, it is the same
with any number of workers. Those of *all workers* are kept by the parent, or in memory that all workers share. An
author's `rates` are exact over all workers. [Settings](settings.md) says the same of what can be set.

| limit | value | holds for | why |
|---|---|---|---|"""

WORKER, ALL, KEEPER = "each worker", "all workers", "the keeper"
HOLDS = {
    **dict.fromkeys(
        ("codecs", "supervisor", "actors", "transports", "oauth", "authorization", "workers", "serve"), WORKER
    ),
    "cluster": ALL,  # only the parent speaks to the store
    "workers.book": ALL,  # the parent has it
    "workers.fair_share": ALL,  # a page of shared memory
    "workers.shared_rate": ALL,
    "workers.keeper": KEEPER,
    "serve.keeper": KEEPER,
    "serve.options": ALL,
    "serve.parent": ALL,
}
"""What limits of a room or module are counted for. The longest name that fits counts."""


def holds_for(name: str) -> str:
    """What the limit of this dotted name holds for when several workers serve."""
    while name not in HOLDS:
        name = name.rpartition(".")[0]
        if not name:
            raise LookupError("a room without an entry in HOLDS")
    return HOLDS[name]


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
    rows = [f"| `{name}` | {value:,} | {holds_for(name)} | {why} |" for name, value, why in limits()]
    return "\n".join([HEAD, *rows, *grown]).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
