"""The hosting API around the handlers: lifespan, middleware, threads, wrong use."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import callboard
from callboard import Context, Rate, Server
from callboard.actors.server.bounds import MAX_PARKED_EACH
from callboard.codecs.revisions import Model
from callboard.server.server import DEFAULT_RATES
from callboard.testing import Refusal, connect


def text(result: dict[str, Any]) -> str:
    words: str = result["content"][0]["text"]
    return words


async def test_a_lifespan_is_there_while_the_server_runs() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def database(server: Server) -> AsyncIterator[dict[str, int]]:
        events.append("open")
        yield {"rows": 7}
        events.append("closed")

    server = Server("s", lifespan=database)

    @server.tool
    async def rows(*, ctx: Context) -> int:
        return int(ctx.lifespan["rows"])

    async with connect(server) as client:
        assert text(await client.call("rows")) == "7"
        assert events == ["open"]
    assert events == ["open", "closed"]


async def test_middleware_stands_around_every_handler_the_first_outermost() -> None:
    events: list[str] = []
    server = Server("s")

    def named(name: str) -> Callable[[Context, Callable[[], Awaitable[Model]]], Awaitable[Model]]:
        async def around(ctx: Context, go_on: Callable[[], Awaitable[Model]]) -> Model:
            events.append(f"{name} before {ctx.method}")
            result = await go_on()
            events.append(f"{name} after")
            return result

        return around

    server.middleware(named("outer"))
    server.middleware(named("inner"))

    @server.tool
    async def greet() -> str:
        events.append("greet")
        return "hello"

    async with connect(server) as client:
        assert text(await client.call("greet")) == "hello"
    assert events == ["outer before tools/call", "inner before tools/call", "greet", "inner after", "outer after"]


async def test_a_plain_function_runs_in_a_thread() -> None:
    server = Server("s")

    @server.tool
    def where() -> str:
        return str(threading.current_thread() is threading.main_thread())

    async with connect(server) as client:
        assert text(await client.call("where")) == "False"


async def test_no_more_plain_functions_run_at_once_than_there_are_threads() -> None:
    server, running, most, gate = Server("s", threads=2), list[None](), list[int](), threading.Event()

    @server.tool
    def wait() -> str:
        running.append(None)
        most.append(len(running))
        gate.wait(10)
        running.pop()
        return "done"

    async with callboard.connect(server) as client, trio.open_nursery() as nursery:

        async def call() -> None:
            await client.call("wait")

        for _ in range(5):
            nursery.start_soon(call)
        while len(most) < 2:  # noqa: ASYNC110  # a thread has no event of Trio's
            await trio.sleep(0.01)
        gate.set()
    assert (len(most), max(most)) == (5, 2)


async def test_a_request_ends_at_the_timeout_of_its_server(autojump_clock: MockClock) -> None:
    server = Server("s", timeout=3)

    @server.tool
    async def hang() -> str:
        await trio.sleep_forever()

    async with connect(server) as client:
        began = trio.current_time()
        with pytest.raises(Refusal, match="timed out: no response within 3 s"):
            await client.call("hang")
        assert trio.current_time() - began == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize("given", [{"timeout": 0}, {"threads": 0}])
def test_a_server_without_time_or_threads_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="timeout must be positive, and threads at least 1"):
        Server("s", **given)


def test_names_are_taken_once_and_wrong_signatures_are_told_at_once() -> None:
    server = Server("s")

    @server.tool
    async def twice() -> str:
        return ""

    with pytest.raises(ValueError, match="tool 'twice' already exists"):
        server.tool(twice)
    with pytest.raises(LookupError):
        server.remove_tool("unknown")

    async def needs_city(city: str) -> str:
        return city

    with pytest.raises(TypeError, match="needs_city"):
        server.resource("weather://static")(needs_city)
    with pytest.raises(TypeError, match="needs_city"):
        server.resource("weather://{town}")(needs_city)


async def test_two_connections_share_one_server(autojump_clock: MockClock) -> None:
    server = Server("s")
    running = 0

    @server.tool
    async def count() -> int:
        nonlocal running
        running += 1
        await trio.sleep(1)
        return running

    async with connect(server) as one, connect(server) as two:
        first = await one.begin("tools/call", name="count")
        second = await two.begin("tools/call", name="count")
        assert text(await one.finish(first)) == text(await two.finish(second)) == "2"


async def test_a_tool_that_too_many_wait_in_is_refused_as_overload_and_not_by_its_result(
    autojump_clock: MockClock,
) -> None:
    server = Server("s")

    @server.tool
    async def where(ctx: Context) -> int:
        return len(await ctx.roots())

    async with connect(server) as client:
        for _ in range(MAX_PARKED_EACH):
            await client.request("tools/call", name="where")
        with pytest.raises(Refusal, match="-31003"):
            await client.request("tools/call", name="where")


@pytest.mark.requirement("M227", "L196")
async def test_nobody_may_ask_more_often_than_the_rate_says(autojump_clock: MockClock) -> None:
    rates = {"tools/call": Rate(2, per=60), "completion/complete": Rate(1)}
    server = Server("s", rates=rates, offers=["completions"])

    @server.tool
    async def greet() -> str:
        return "hello"

    @server.prompt
    def ask(city: str) -> str:
        return city

    async with connect(server) as client:
        typed = {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "city", "value": ""}}
        await client.request("completion/complete", **typed)
        with pytest.raises(Refusal, match="-31003"):
            await client.request("completion/complete", **typed)
        for _ in range(2):
            assert text(await client.call("greet")) == "hello"
        with pytest.raises(Refusal, match="-31003"):
            await client.call("greet")
        await trio.sleep(30)
        assert text(await client.call("greet")) == "hello"


@pytest.mark.requirement("M235")
async def test_a_handler_that_logs_too_much_is_heard_a_thousand_times_a_second(autojump_clock: MockClock) -> None:
    server = Server("s")

    @server.tool
    async def chatter(*, ctx: Context) -> str:
        for number in range(1500):
            await ctx.log("info", number)
        return "done"

    async with connect(server, log_level="info") as client:
        assert text(await client.call("chatter")) == "done"
        assert len(client.notifications("notifications/message")) <= 1000


def test_completions_are_limited_unless_the_author_says_otherwise() -> None:
    assert DEFAULT_RATES["completion/complete"].count == 100


async def test_a_handler_tells_of_changes_and_may_let_its_client_go(autojump_clock: MockClock) -> None:
    server = Server("s", offers=["prompts", "resources"])

    @server.tool
    async def change(*, ctx: Context) -> str:
        ctx.notify_updated("file:///a")
        ctx.notify_changed("prompts")
        await ctx.close_stream(retry=0.1)  # there is no stream here, and so nothing happens
        return "changed"

    async with connect(server) as client:
        wanted = {"promptsListChanged": True, "resourceSubscriptions": ["file:///a"]}
        await client.begin("subscriptions/listen", notifications=wanted)
        assert (await client.hear())["method"] == "notifications/subscriptions/acknowledged"
        assert text(await client.call("change")) == "changed"
        while len(client.heard) < 2:
            client.heard.append(await client.hear())
        assert sorted(message["method"] for message in client.heard) == [
            "notifications/prompts/list_changed",
            "notifications/resources/updated",
        ]
