"""Other people's servers that want a token: they give one to callboard's client, and renew it."""

import time

import pytest
import trio

from callboard.client import connect
from callboard.oauth import AuthorizationCode, Headless, MemoryStore, OAuth
from tests.oauth.town import look, visit
from tests.servers.running import HERE, START_TIME, listening, python

PATIENCE = START_TIME + 40
"""Seconds for one server. Each takes about three, installed."""

ONE, TWO = "mcp[ws]==1.30.0", "mcp==2.3.0"


@pytest.mark.parametrize(("library", "way"), [(ONE, "origin"), (ONE, "resource"), (TWO, "resource")])
async def test_a_server_gives_leave_and_renews_it_without_asking_again(library: str, way: str) -> None:
    asked: list[str] = []
    store = MemoryStore()

    async def consent(url: str) -> str:
        asked.append(url)
        return await visit(url)

    with trio.fail_after(PATIENCE):
        async with listening([*python("guarded.py", library)(way), "PORT"], HERE.parents[1], "/mcp") as url:
            for later in (0, 3600 - 29):
                grant = AuthorizationCode(consent=Headless(consent))
                auth = OAuth(grant=grant, store=store, clock=lambda later=later: time.time() + later)  # type: ignore[misc]
                async with connect(url, auth=auth) as client:
                    await look(client)
    assert len(asked) == 1
