"""What a mounted server keeps as its own: errors, middleware, lifespan, loops. Rules go by the names that are shown."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from structlog.testing import capture_logs

from callboard import Context, InputRequired, Server, ToolError
from callboard.actors.quotas import Quotas, QuotaSettings
from callboard.actors.rate import Rate
from callboard.actors.rules import AccessRules, Rule
from callboard.actors.server.parking import Parking
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, Revision
from callboard.server import Extension, GoOn, Tasks
from callboard.server.lifespan import LifespanFailed
from callboard.testing import Refusal, connect
from tests.broker.front import peer
from tests.server.compose_stage import BOTH, EACH, Size, mall, names, shop, text


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


@BOTH
async def test_failures_are_told_as_the_mounted_server_tells_them(revision: Revision, logged: list[Any]) -> None:
    async with connect(mall(shop(show_errors=True)), revision) as client:
        assert text(await client.call("shop__broken")) == "LookupError: a secret"
        assert text(await client.call("shop__refused")) == "sold out"
        assert text(await client.call("shop__buy")).startswith("Invalid arguments for buy")
    assert [line["event"] for line in logged] == ["handler_failed"]
    assert "compose_stage.py" in logged[0]["where"]


@BOTH
async def test_a_server_in_front_that_shows_errors_shows_none_of_others(revision: Revision) -> None:
    async with connect(mall(show_errors=True), revision) as client:
        assert text(await client.call("shop__broken")) == "Internal error: LookupError"


@BOTH
async def test_middlewares_stand_before_their_own_handlers(revision: Revision) -> None:
    passed: list[str] = []
    other = shop()
    main = mall(other)

    @other.middleware
    async def inner(ctx: Context, go_on: GoOn) -> Any:
        passed.append(f"shop {ctx.method} {ctx.target} {ctx.lifespan}")
        if ctx.target == "refused":
            raise ToolError("closed")
        return await go_on()

    @main.middleware
    async def outer(ctx: Context, go_on: GoOn) -> Any:
        passed.append(f"mall {ctx.method} {ctx.target} {ctx.lifespan}")
        return await go_on()

    async with connect(main, revision) as client:
        await client.call("hours")
        await client.call("shop__buy", item="pen")
        assert text(await client.call("shop__refused")) == "closed"
        await client.request("prompts/get", name="shop__advertise", arguments={"about": "pens"})
    assert passed == [
        "mall tools/call hours None",
        "mall tools/call shop__buy None",
        "shop tools/call buy lifespan of shop",
        "mall tools/call shop__refused None",
        "shop tools/call refused lifespan of shop",
        "mall prompts/get shop__advertise None",
        "shop prompts/get advertise lifespan of shop",
    ]


@EACH
async def test_lists_pass_through_the_middlewares_of_their_servers(revision: Revision) -> None:
    passed: list[str] = []
    other = shop()
    main, city = mall(other), Server("city", cache_scope="public", ttl=9)
    city.mount(main, prefix="mall")

    @city.tool
    async def parks() -> str:
        return ""

    @other.middleware
    async def hide(ctx: Context, go_on: GoOn) -> Any:
        result: Any = await go_on()
        if ctx.method == "tools/list":
            passed.append(" ".join(tool.name for tool in result.tools))
            kept = [tool for tool in result.tools if tool.name != "broken"]
            return attrs.evolve(result, tools=[attrs.evolve(tool, title="Shown") for tool in kept])
        if ctx.method == "resources/templates/list":
            return attrs.evolve(result, resource_templates=[])
        return result

    async with connect(city, revision) as client:
        found = (await client.request("tools/list"))["tools"]
        assert [tool["name"] for tool in found] == ["mall__hours", "mall__shop__buy", "mall__shop__refused", "parks"]
        assert found[1].get("title") in ("Shown", None)
        assert "title" not in found[0]
        assert (await client.request("resources/templates/list"))["resourceTemplates"] == []
        assert len((await client.request("resources/list"))["resources"]) == 1
        assert await names(client, "prompts") == ["mall__shop__advertise"]
        assert text(await client.call("mall__shop__buy", item="pen")) == "pen: buy, lifespan of shop"
        if revision is LATEST:
            assert (await client.request("tools/list"))["cacheScope"] == "private"
    assert passed[0] == "buy broken refused"


@EACH
async def test_a_server_that_is_reached_in_two_ways_is_the_same_in_both(revision: Revision) -> None:
    other, middle, side, front = shop(), Server("middle"), Server("side"), Server("front")

    @other.middleware
    async def hide(ctx: Context, go_on: GoOn) -> Any:
        result: Any = await go_on()
        is_list = ctx.method == "tools/list"
        return attrs.evolve(result, tools=[one for one in result.tools if one.name == "buy"]) if is_list else result

    for name in list(other.registry.resources.entries):  # URIs have no prefix
        other.registry.resources.remove(name)
    for name in list(other.registry.templates.entries):
        other.registry.templates.remove(name)
    middle.mount(other, prefix="shop")
    front.mount(middle, prefix="a")
    side.mount(middle, prefix="b")
    front.mount(side, prefix="c")
    async with connect(front, revision) as client:
        assert await names(client) == ["a__shop__buy", "c__b__shop__buy"]
        for name in ("a__shop__buy", "c__b__shop__buy"):
            assert text(await client.call(name, item="pen")) == "pen: buy, lifespan of shop"


@BOTH
async def test_a_middleware_that_fails_is_told_and_logged_once(revision: Revision, logged: list[Any]) -> None:
    other = shop()

    @other.middleware
    async def failing(ctx: Context, go_on: GoOn) -> Any:
        raise LookupError("a secret")

    async with connect(mall(other), revision) as client:
        for method, params in (
            ("tools/call", {"name": "shop__buy", "arguments": {"item": "pen"}}),
            ("prompts/get", {"name": "shop__advertise", "arguments": {"about": "pens"}}),
            ("resources/read", {"uri": "shop://one"}),
        ):
            with pytest.raises(Refusal, match="Internal error: LookupError"):
                await client.request(method, **params)
    assert [line["event"] for line in logged] == ["handler_failed"] * 3


@BOTH
async def test_questions_progress_and_logs_go_to_the_client(revision: Revision) -> None:
    other = Server("asking")

    @other.tool
    async def greet(ctx: Context) -> str:
        await ctx.report(1, total=2, message="asking")
        await ctx.log("info", "asking")
        given = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"Hello {given['name']}"

    @other.tool
    async def anew(ctx: Context) -> InputRequired | str:
        asking = ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}}, key="who")
        found = ctx.answered(asking)
        return InputRequired([asking], state={"round": 1}) if found is None else f"{found['name']} {ctx.state}"

    answers = {"elicitation/create": lambda _: {"action": "accept", "content": {"name": "Ada"}}}
    async with connect(mall(other, prefix="a"), revision, answers=answers, log_level="debug") as client:
        assert text(await client.call("a__greet")) == "Hello Ada"
        assert text(await client.call("a__anew")) == "Ada {'round': 1}"
        assert client.notifications("notifications/message")[0]["data"] == "asking"


async def test_a_tool_of_a_mounted_server_goes_on_as_a_task(autojump_clock: trio.testing.MockClock) -> None:
    other = shop(extensions=[Tasks(ttl=77)])

    @other.tool(task="optional", task_after=1)
    async def slow(ctx: Context) -> str:
        await trio.sleep(10)
        return f"done: {ctx.lifespan}"

    capabilities: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with connect(mall(other), capabilities=capabilities) as client:
        created = await client.request("tools/call", name="shop__slow", arguments={})
        assert created["resultType"] == "task"
        assert created["ttlMs"] == 77_000
        await trio.sleep(20)
        found = await client.request("tasks/get", taskId=created["taskId"])
        assert text(found["result"]) == "done: lifespan of shop"


async def test_handlers_for_asyncio_run_there() -> None:
    other = Server("guest", loop="asyncio")

    @other.tool
    async def where(ctx: Context) -> str:
        await ctx.report(1)
        return f"{asyncio.get_running_loop().is_running()} {ctx.target}"

    async with connect(mall(other, prefix="guest")) as client:
        assert text(await client.call("guest__where")) == "True where"


async def test_lifespans_begin_in_order_and_end_in_reverse_each_in_its_loop() -> None:
    seen: list[str] = []

    def made(name: str, **options: Any) -> Server:
        @asynccontextmanager
        async def lifespan(_: Server) -> AsyncIterator[str]:
            seen.append(f"{name} begins")
            if options.get("loop") == "asyncio":
                await asyncio.sleep(0)
            yield name
            seen.append(f"{name} ends")

        return Server(name, lifespan=lifespan, **options)

    front, first, inner, second = made("front"), made("first", loop="asyncio"), made("inner"), made("second")
    first.mount(inner, prefix="i")
    front.mount(first, prefix="f")
    front.mount(second, prefix="s")
    async with front.host():
        assert inner.is_ready()
    order = ["front", "first", "inner", "second"]
    assert seen == [f"{name} begins" for name in order] + [f"{name} ends" for name in reversed(order)]


async def test_a_mounted_lifespan_that_fails_is_named_and_the_others_end() -> None:
    ended: list[str] = []

    @asynccontextmanager
    async def good(_: Server) -> AsyncIterator[None]:
        try:
            yield
        finally:
            ended.append("good")

    @asynccontextmanager
    async def bad(server: Server) -> AsyncIterator[None]:
        if server.info.name == "shop":
            raise ConnectionRefusedError("no database")
        yield

    front = Server("front", lifespan=good)
    front.mount(Server("shop", lifespan=bad), prefix="shop")
    with pytest.raises(LifespanFailed, match="the lifespan of 'shop' failed: ConnectionRefusedError"):
        async with front.host():
            pass
    assert ended == ["good"]
    assert not front.is_ready()


async def test_structured_results_keep_their_form() -> None:
    other = Server("sizes")

    @other.tool
    async def size() -> Size:
        return Size(3)

    async with connect(mall(other, prefix="s")) as client:
        found = await client.call("s__size")
        assert found["structuredContent"] == {"size": 3}
        assert text(found) == '{"size":3}'


async def test_extensions_cross_with_their_methods() -> None:
    echo = Extension("com.example/echo", {"loud": True})

    @echo.method("com.example/shout")
    async def shout(words: str, ctx: Context) -> dict[str, str]:
        return {"words": words.upper(), "lifespan": ctx.lifespan}

    async with connect(mall(shop(extensions=[echo]))) as client:
        found = await client.request("server/discover")
        assert found["capabilities"]["extensions"] == {"com.example/echo": {"loud": True}}
        found = await client.request("com.example/shout", words="hi")
        assert (found["words"], found["lifespan"]) == ("HI", "lifespan of shop")
    with pytest.raises(ValueError, match=r"extension 'com.example/echo' of 'shop' already exists in 'mall'"):
        mall(shop(extensions=[echo]), extensions=[Extension("com.example/echo")])


async def test_skills_and_apps_cross(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "greeting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greeting\ndescription: Greets\n---\nSay hello.")
    (skill / "more.txt").write_text("more")
    page = tmp_path / "page.html"
    page.write_text("<p>Hello</p>")
    other = shop()
    main = mall(other)
    other.skills(tmp_path / "skills")
    other.app("ui://page", page)
    async with connect(main) as client:
        found = await client.request("server/discover")
        assert set(found["capabilities"]["extensions"]) == {
            "io.modelcontextprotocol/skills",
            "io.modelcontextprotocol/ui",
        }
        [listed] = (await client.request("skills/list"))["skills"]
        assert listed["uri"] == "skill://greeting/SKILL.md"
        read = await client.request("resources/read", uri="skill://greeting/more.txt")
        assert read["contents"][0]["text"] == "more"
        read = await client.request("resources/read", uri="ui://page")
        assert read["contents"][0]["text"] == "<p>Hello</p>"


@BOTH
async def test_rules_scopes_and_quotas_go_by_the_name_that_is_shown(
    revision: Revision, autojump_clock: trio.testing.MockClock
) -> None:
    other, asked = shop(), list[Any]()

    @other.tool(scopes=["sell"])
    async def sell() -> str:
        return "sold"

    @other.resource("shop://safe", scopes=["sell"])
    async def safe() -> str:
        return ""

    def approve(params: Any) -> Any:
        asked.append(params["message"])
        return {"action": "accept", "content": {"approve": True}}

    rules = AccessRules(
        [
            Rule(tools=["shop__refused"], deny=True),
            Rule(tools=["buy", "hours", "broken"], deny=True),  # these are no names that a client is shown, but one
            Rule(tools=["shop__buy"], approve="caller"),
        ]
    )
    caller = Caller(principal="ada", scopes=["a"])
    async with mall(other).host(parking=Parking("mall")) as host:
        host.rules = rules
        answers = {"elicitation/create": approve}
        async with peer(host, revision, principal=caller, answers=answers) as client:
            assert await names(client) == ["shop__buy", "shop__broken", "shop__sell"]
            assert text(await client.call("shop__buy", item="pen")) == "pen: buy, lifespan of shop"
            assert len(asked) == 1
            assert "shop__buy" in asked[0]
            with pytest.raises(Refusal, match="Unknown tool: shop__refused"):
                await client.call("shop__refused")
            guarded: list[tuple[str, dict[str, Any]]] = [
                ("tools/call", {"name": "shop__sell"}),
                ("resources/read", {"uri": "shop://safe"}),
            ]
            for method, params in guarded:
                with pytest.raises(Refusal) as caught:
                    await client.request(method, **params)
                assert caught.value.data["requiredScopes"] == ["sell"]
            host.quotas = Quotas(QuotaSettings(tools={"shop__bro*": Rate(1, 100)}))
            await client.call("shop__broken")
            with pytest.raises(Refusal):
                await client.call("shop__broken")
