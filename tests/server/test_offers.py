"""A server declares what it offers, and nothing else."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard import Context, Server
from callboard.actors.server.session_tree import open_session
from callboard.codecs.caller import ANYBODY
from callboard.codecs.revisions import LATEST, Model, Revision, declares
from callboard.server.registry import OFFERS, Registry
from callboard.testing import Peer, Refusal, connect
from callboard.transports.memory import memory_pair

LISTED = {"listChanged": True}
PROMPT = {"type": "ref/prompt", "name": "p"}
EVERYTHING = {
    "tools": LISTED,
    "prompts": LISTED,
    "resources": {**LISTED, "subscribe": True},
    "completions": {},
    "logging": {},
}


def tools_only(**options: Any) -> Server:
    server = Server("s", **options)

    @server.tool
    async def greet() -> str:
        return "hello"

    return server


async def question() -> str:
    return "?"


async def declared(client: Peer) -> Any:
    if client.agreed:
        return client.agreed["capabilities"]
    return (await client.request("server/discover"))["capabilities"]


BOTH = pytest.mark.parametrize("revision", [LATEST, Revision.V2025_06_18])


@pytest.mark.finding("protocol-1.12a")
@BOTH
async def test_a_server_of_tools_declares_tools(revision: Revision) -> None:
    async with connect(tools_only(), revision) as client:
        assert await declared(client) == {"tools": LISTED}
        for method, params in (
            ("prompts/list", {}),
            ("resources/list", {}),
            ("resources/read", {"uri": "x://y"}),
            ("completion/complete", {"ref": PROMPT, "argument": {"name": "a", "value": ""}}),
        ):
            with pytest.raises(Refusal, match="-32601"):
                await client.request(method, **params)


@pytest.mark.finding("protocol-1.12a")
async def test_only_what_is_declared_is_acknowledged() -> None:
    async with connect(tools_only()) as client:
        wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["x://y"]}
        await client.begin("subscriptions/listen", notifications=wanted)
        assert (await client.hear())["params"]["notifications"] == {"toolsListChanged": True}


@BOTH
async def test_each_kind_of_handler_is_declared(revision: Revision) -> None:
    server = tools_only()

    @server.resource("x://{y}")
    def read(y: str) -> str:
        return y

    @server.prompt
    def ask(city: str, ctx: Context) -> str:
        return city

    @server.completion("ask", "city")
    def cities(value: str) -> list[str]:
        return [value]

    async with connect(server, revision) as client:
        assert await declared(client) == EVERYTHING


async def test_a_server_that_can_log_says_so() -> None:
    server = tools_only()

    @server.middleware
    async def around(ctx: Context, go_on: Callable[[], Awaitable[Model]]) -> Model:
        return await go_on()

    async with connect(server) as client:
        assert await declared(client) == {"tools": LISTED, "logging": {}}


@BOTH
async def test_what_will_come_can_be_declared_before(revision: Revision) -> None:
    server = tools_only(offers=("prompts",))
    async with connect(server, revision) as client:
        assert (await declared(client))["prompts"] == LISTED
        assert (await client.request("prompts/list"))["prompts"] == []
    with pytest.raises(ValueError, match="unknown offer 'sampling': expected some of tools, resources"):
        Server("s", offers=["sampling"])  # type: ignore[list-item]


async def test_what_comes_later_is_declared_from_then_on_and_stays_so() -> None:
    server = tools_only()
    async with connect(server) as client:
        assert "prompts" not in await declared(client)
        with capture_logs() as lines:
            server.prompt(name="ask")(question)
            server.prompt(name="again")(question)
        (line,) = lines
        assert (line["event"], line["log_level"], line["kinds"]) == ("registered_after_start", "warning", ["prompts"])
        assert "Server(offers=['prompts'])" in line["hint"]

        assert "prompts" in await declared(client)
        assert len((await client.request("prompts/list"))["prompts"]) == 2
        server.remove_prompt("ask")
        server.remove_prompt("again")
        assert "prompts" in await declared(client)
        assert (await client.request("prompts/list"))["prompts"] == []


@pytest.mark.finding("protocol-1.12a")
async def test_a_legacy_session_gets_no_news_of_what_it_was_not_told_of() -> None:
    server = tools_only()
    async with connect(server, Revision.V2025_06_18) as client:
        await client.request("ping")  # by then it is ready

        @server.tool
        async def chat(ctx: Context) -> str:
            await ctx.log("error", "aloud")
            return "said"

        server.prompt(question)
        await client.call("chat")
        heard = [message["method"] for message in client.heard]
        assert heard == ["notifications/tools/list_changed"]

        await client.request("logging/setLevel", level="info")  # a client that asks for them knows of them
        await client.call("chat")
        assert client.notifications("notifications/message") == [{"level": "error", "data": "aloud"}]


async def test_what_is_added_before_the_client_is_ready_is_not_told_either() -> None:
    server = tools_only()
    async with server.host() as host:
        there, here = memory_pair()
        await open_session(host, here, "s-1", ANYBODY)
        client = Peer(there, Revision.V2025_06_18)
        agreed = await client.request(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "c", "version": "1"}
        )
        assert agreed["capabilities"] == {"tools": LISTED}
        server.prompt(name="early")(question)
        await client.say({"method": "notifications/initialized"})
        await client.request("ping")
        server.prompt(name="late")(question)
        server.notify_changed("tools")
        await client.request("ping")
        assert [message["method"] for message in client.heard] == ["notifications/tools/list_changed"]
        there.close()


@BOTH
async def test_an_empty_server_may_get_anything(revision: Revision) -> None:
    server = Server("s")
    async with connect(server, revision) as client:
        assert await declared(client) == EVERYTHING
        with capture_logs() as lines:
            server.prompt(question)
        assert not lines
        assert len((await client.request("prompts/list"))["prompts"]) == 1
    async with connect(Server("s", offers=["tools"]), revision) as client:
        assert await declared(client) == {"tools": LISTED}


async def test_what_the_lifespan_adds_is_there_from_the_start() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        server.prompt(question)
        yield

    with capture_logs() as lines:
        async with connect(Server("s", lifespan=lifespan)) as client:
            assert await declared(client) == {"prompts": LISTED}
    assert not [line for line in lines if line["event"] == "registered_after_start"]


def test_threads_that_add_at_once_lose_nothing() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            registry = Registry()
            with ThreadPoolExecutor(len(OFFERS)) as pool:
                added = [new for (new,) in pool.map(registry.offer, OFFERS)]
            assert added == list(OFFERS)
            assert all(declares(registry.capabilities, kind) for kind in OFFERS)
    finally:
        sys.setswitchinterval(interval)
