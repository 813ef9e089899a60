"""Other people's servers, as they are published, find in callboard's client the one that they expect."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from callboard.client import connect
from callboard.transports.client.process import Command
from tests.node import needs_npm
from tests.servers.running import LIBRARIES, Library, cuttable, listening
from tests.servers.tour import ANSWERS, EXPECTED, Visit, heard, resume

PATIENCE = 120.0
"""Seconds for one library over one way, in all eras. It takes about five."""

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
PATHS = {"http": "/mcp", "sse": "/sse"}

ROWS = [
    pytest.param(library, way, id=f"{library.name}-{way}", marks=[needs_npm] * ("npm" in library.name))
    for library in LIBRARIES
    for way in library.ways
]


async def tour(target: Any, library: Library, way: str, era: str, *, insists: bool) -> dict[str, Any]:
    """All steps in one era: what was heard, beside what should have been."""
    async with AsyncExitStack() as stack:
        cutter = None
        if way != "stdio":
            target, cutter = await stack.enter_async_context(cuttable(target))
        revision = LEGACY if insists and era == "legacy" else None
        found: dict[str, Any] = {}
        async with connect(target, revision=revision, on_stderr=lambda _: None, **ANSWERS) as client:
            found["revision"] = client.revision.value
            visit = Visit(client, cutter)
            for step in EXPECTED:
                can_resume = way == "http" and era == "legacy"
                if library.takes(way, era, step.__name__) and (step is not resume or can_resume):
                    found[step.__name__] = await heard(step, visit)
        return found


def expected(library: Library, way: str, era: str) -> dict[str, Any]:
    can_resume = way == "http" and era == "legacy"
    return {
        "revision": MODERN if era == "modern" else LEGACY,
        **{
            step.__name__: outcome
            for step, outcome in EXPECTED.items()
            if library.takes(way, era, step.__name__) and (step is not resume or can_resume)
        },
    }


@pytest.mark.parametrize(("library", "way"), ROWS)
async def test_a_server_is_spoken_to_in_every_era_that_it_knows(library: Library, way: str) -> None:
    eras = ["modern", "legacy"] if library.is_modern else ["legacy"]
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            target: Any = Command(args=tuple(library.command(way)), cwd=str(library.cwd()))
            if way != "stdio":
                command = [*library.command(way), "PORT"]
                target = await stack.enter_async_context(listening(command, library.cwd(), PATHS[way]))
            for era in eras:
                found = await tour(target, library, way, era, insists=library.is_modern)
                assert found == expected(library, way, era), era
