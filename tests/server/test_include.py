"""Handlers of another server that are included: they become the server's own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard import Context, Server
from callboard.codecs.revisions import Revision
from callboard.errors import InvalidParams
from callboard.server import GoOn
from callboard.testing import Refusal, connect
from tests.server.compose_stage import BOTH, mall, names, shop, text


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


@BOTH
async def test_included_handlers_are_the_servers_own(revision: Revision) -> None:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        yield "mine"

    passed: list[str] = []
    main, other = Server("main", lifespan=lifespan), shop()

    @main.middleware
    async def seen(ctx: Context, go_on: GoOn) -> Any:
        passed.append(ctx.target)
        return await go_on()

    main.include(other, tools=["buy"], prompts=["advertise"], resources=["shop://item/{number}", "shop://one"])
    other.remove_tool("buy")
    async with connect(main, revision) as client:
        assert await names(client) == ["buy"]
        assert text(await client.call("buy", item="pen")) == "pen: buy, mine"
        ref = {"type": "ref/prompt", "name": "advertise"}
        found = await client.request("completion/complete", ref=ref, argument={"name": "about", "value": "pens"})
        assert found["completion"]["values"] == ["pens!"]
        assert (await client.request("resources/read", uri="shop://one"))["contents"][0]["text"] == "mine"
    assert "buy" in passed


async def test_all_is_included_unless_something_is_named() -> None:
    main = Server("main")
    main.include(shop())
    async with connect(main) as client:
        assert await names(client) == ["buy", "broken", "refused"]
        assert await names(client, "prompts") == ["advertise"]


async def test_an_included_handler_for_asyncio_runs_in_a_loop_of_this_server() -> None:
    other, main = Server("guest", loop="asyncio"), Server("main")

    @other.tool
    async def where() -> str:
        return str(asyncio.get_running_loop().is_running())

    main.include(other, tools=["where"])
    async with connect(main) as client:
        assert text(await client.call("where")) == "True"


def test_what_cannot_be_included_is_said_and_nothing_is() -> None:
    main, other = Server("main"), shop()
    with pytest.raises(LookupError, match="no tool 'sell'"):
        main.include(other, tools=["buy", "sell"])
    with pytest.raises(TypeError, match="expected a list of names"):
        main.include(other, tools="buy")
    with pytest.raises(ValueError, match="is of a mounted server"):
        main.include(mall(other), tools=["shop__buy"])
    assert not main.registry.tools.entries
    main.include(other, tools=["buy"])
    with pytest.raises(ValueError, match="tool 'buy' already exists"):
        main.include(other, prompts=["advertise"], tools=["buy"])
    assert not main.registry.prompts.entries


async def test_an_error_that_is_for_the_client_passes() -> None:
    other = Server("other")

    @other.tool
    async def scoped(ctx: Context) -> str:
        raise InvalidParams("another question was answered")

    async with connect(mall(other, prefix="o")) as client:
        with pytest.raises(Refusal, match="another question was answered"):
            await client.call("o__scoped")
