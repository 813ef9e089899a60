"""Servers made of others: what is mounted stays itself, and what is included becomes the server's own."""

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
from callboard.codecs.revisions import ALL, LATEST, Revision
from callboard.errors import InvalidParams
from callboard.server import Extension, GoOn, Tasks
from callboard.server.compose import MAX_DEPTH
from callboard.server.lifespan import LifespanFailed
from callboard.testing import Refusal, connect
from tests.broker.front import peer

EACH = pytest.mark.parametrize("revision", sorted(ALL))
OLD = max(one for one in ALL if one.dialect.has_sessions and one.dialect.has_structured_content)
BOTH = pytest.mark.parametrize("revision", [OLD, LATEST])


@attrs.frozen
class Size:
    size: int


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def shop(name: str = "shop", **options: Any) -> Server:
    """A server with one of each kind, and a value of its lifespan."""

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        yield f"lifespan of {name}"

    server = Server(name, lifespan=lifespan, **options)

    @server.tool(title="Buy it")
    async def buy(item: str, ctx: Context) -> str:
        return f"{item}: {ctx.target}, {ctx.lifespan}"

    @server.tool
    async def broken() -> str:
        raise LookupError("a secret")

    @server.tool
    async def refused() -> str:
        raise ToolError("sold out")

    @server.resource(f"{name}://one", mime_type="text/plain")
    async def one(ctx: Context) -> str:
        return str(ctx.lifespan)

    @server.resource(f"{name}://item/{{number}}")
    async def item(number: int) -> str:
        return str(number)

    @server.prompt
    async def advertise(about: str) -> str:
        return f"Praise {about}"

    @server.completion("advertise", "about")
    async def about(value: str) -> list[str]:
        return [f"{value}!"]

    @server.completion(f"{name}://item/{{number}}", "number")
    async def number(value: str) -> list[str]:
        return [f"{value}0"]

    return server


def mall(other: Server | None = None, prefix: str | None = "shop", **options: Any) -> Server:
    server = Server("mall", **options)

    @server.tool
    async def hours(ctx: Context) -> str:
        return f"9 to 5, {ctx.lifespan}"

    server.mount(other or shop(), prefix=prefix)
    return server


async def names(client: Any, kind: str = "tools") -> list[str]:
    found = await client.request(f"{kind}/list")
    return [one["name"] for one in found[kind]]


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


@EACH
async def test_a_mounted_server_offers_all_that_it_has_under_its_prefix(revision: Revision) -> None:
    async with connect(mall(), revision) as client:
        assert await names(client) == ["hours", "shop__buy", "shop__broken", "shop__refused"]
        assert await names(client, "prompts") == ["shop__advertise"]
        assert text(await client.call("shop__buy", item="pen")) == "pen: buy, lifespan of shop"
        assert text(await client.call("hours")) == "9 to 5, None"
        found = await client.request("prompts/get", name="shop__advertise", arguments={"about": "pens"})
        assert found["messages"][0]["content"]["text"] == "Praise pens"
        read = await client.request("resources/read", uri="shop://one")
        assert read["contents"][0]["text"] == "lifespan of shop"
        assert read["contents"][0]["mimeType"] == "text/plain"
        read = await client.request("resources/read", uri="shop://item/3")
        assert read["contents"][0]["text"] == "3"
        with pytest.raises(Refusal, match="Unknown tool: buy"):
            await client.request("tools/call", name="buy", arguments={"item": "pen"})


@BOTH
async def test_completions_come_along(revision: Revision) -> None:
    async with connect(mall(), revision) as client:
        for ref, argument, value in (
            ({"type": "ref/prompt", "name": "shop__advertise"}, "about", "pens!"),
            ({"type": "ref/resource", "uri": "shop://item/{number}"}, "number", "pens0"),
        ):
            found = await client.request("completion/complete", ref=ref, argument={"name": argument, "value": "pens"})
            assert found["completion"]["values"] == [value]


@BOTH
@pytest.mark.parametrize("prefix", [None, ""])
async def test_without_a_prefix_names_stay_as_they_are(revision: Revision, prefix: str | None) -> None:
    async with connect(mall(prefix=prefix), revision) as client:
        assert await names(client) == ["hours", "buy", "broken", "refused"]
        assert text(await client.call("buy", item="pen")) == "pen: buy, lifespan of shop"


@BOTH
async def test_servers_are_mounted_in_each_other(revision: Revision) -> None:
    city = Server("city")
    city.mount(mall(), prefix="mall")
    async with connect(city, revision) as client:
        assert await names(client) == ["mall__hours", "mall__shop__buy", "mall__shop__broken", "mall__shop__refused"]
        assert text(await client.call("mall__shop__buy", item="pen")) == "pen: buy, lifespan of shop"
        found = await client.request("prompts/get", name="mall__shop__advertise", arguments={"about": "pens"})
        assert found["messages"][0]["content"]["text"] == "Praise pens"
        assert text(await client.call("mall__hours")) == "9 to 5, None"


async def test_a_mounted_server_also_runs_by_itself_and_in_others() -> None:
    other = shop()
    one, two = mall(other), mall(other, prefix="other")
    async with connect(other) as own, connect(one) as first, connect(two) as second:
        assert text(await own.call("buy", item="a")) == "a: buy, lifespan of shop"
        assert text(await first.call("shop__buy", item="b")) == "b: buy, lifespan of shop"
        assert text(await second.call("other__buy", item="c")) == "c: buy, lifespan of shop"
    assert not other.is_ready()


# What follows.


@BOTH
async def test_what_it_adds_and_removes_later_is_followed_and_told(revision: Revision) -> None:
    other = shop()
    async with connect(mall(other), revision) as client:
        if not revision.dialect.has_sessions:
            await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
            await client.hear()
        await names(client)  # a session that has answered was begun, and hears of changes

        async def sell() -> str:
            return "sold"

        other.tool(sell)
        assert "list_changed" in str(await client.hear())
        assert "shop__sell" in await names(client)
        assert text(await client.call("shop__sell")) == "sold"
        other.remove_tool("buy")
        assert "list_changed" in str(await client.hear())
        assert "shop__buy" not in await names(client)
        with pytest.raises(Refusal, match="Unknown tool"):
            await client.call("shop__buy", item="pen")


@BOTH
async def test_what_the_server_in_front_removes_is_its_own_from_then_on(revision: Revision) -> None:
    other = shop()
    main = mall(other)
    main.remove_tool("shop__buy")
    main.remove_tool("shop__broken")

    @main.tool(name="shop__buy")
    async def buy() -> str:
        return "closed"

    async with connect(main, revision) as client:
        assert "shop__broken" not in await names(client)
        other.remove_tool("broken")
        other.remove_tool("buy")
        other.remove_tool("refused")
        assert await names(client) == ["hours", "shop__buy"]
        assert text(await client.call("shop__buy")) == "closed"


async def test_clients_hear_of_its_resources() -> None:
    other = shop()
    async with connect(mall(other), OLD) as client:
        await client.request("resources/subscribe", uri="shop://one")
        other.notify_updated("shop://one")
        assert (await client.hear())["params"]["uri"] == "shop://one"
        await other.log("info", "all hear it")


async def test_a_name_that_is_taken_in_front_is_refused_where_it_is_added() -> None:
    other = shop()
    main = mall(other)

    @main.tool(name="shop__sell")
    async def mine() -> str:
        return "mine"

    async def sell() -> str:
        return "theirs"

    with pytest.raises(ValueError, match="tool 'shop__sell' already exists"):
        other.tool(sell)
    assert "sell" not in other.registry.tools.entries
    async with connect(main) as client:
        assert text(await client.call("shop__sell")) == "mine"


async def test_a_kind_that_clients_were_not_told_of_is_warned_of(logged: list[Any]) -> None:
    other, main = Server("empty"), Server("main")

    @main.tool
    async def one() -> str:
        return "1"

    main.mount(other, prefix="other")
    async with connect(main) as client:

        async def two() -> str:
            return "2"

        other.tool(two)
        assert not logged
        other.prompt(two)
        assert [line["kinds"] for line in logged] == [["prompts"]]
        assert await names(client) == ["one", "other__two"]


async def test_nothing_is_added_once_several_workers_serve() -> None:
    other = shop()
    main = mall(other)
    async with connect(main):
        main.join_workers()
        with pytest.raises(RuntimeError, match="several workers"):
            other.remove_tool("buy")


# What stays its own.


@BOTH
async def test_failures_are_told_as_the_mounted_server_tells_them(revision: Revision, logged: list[Any]) -> None:
    async with connect(mall(shop(show_errors=True)), revision) as client:
        assert text(await client.call("shop__broken")) == "LookupError: a secret"
        assert text(await client.call("shop__refused")) == "sold out"
        assert text(await client.call("shop__buy")).startswith("Invalid arguments for buy")
    assert [line["event"] for line in logged] == ["handler_failed"]
    assert "test_compose.py" in logged[0]["where"]


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


# What is refused.


def test_names_that_are_taken_are_refused_and_nothing_is_mounted() -> None:
    main = Server("main")

    @main.resource("shop://one")
    async def one() -> str:
        return ""

    with pytest.raises(ValueError, match="resource 'shop://one' already exists"):
        main.mount(shop(), prefix="shop")
    assert not main.registry.tools.entries
    assert not main.mounts.below


def test_circles_doubles_and_bad_prefixes_are_refused() -> None:
    main, other = Server("main"), Server("other")
    main.mount(other, prefix="a")
    with pytest.raises(ValueError, match="'other' is already mounted in 'main'"):
        main.mount(other, prefix="b")
    with pytest.raises(ValueError, match="'main': cannot be mounted in itself"):
        main.mount(main)
    with pytest.raises(ValueError, match="'main': cannot be mounted in itself"):
        other.mount(main, prefix="b")
    with pytest.raises(ValueError, match="invalid prefix 'a b'"):
        main.mount(Server("third"), prefix="a b")


def test_names_that_become_too_long_are_refused() -> None:
    other = Server("long")

    @other.tool(name="x" * 128)
    async def long() -> str:
        return ""

    with pytest.raises(ValueError, match="more than 128 characters"):
        Server("main").mount(other, prefix="p")
    Server("main").mount(other)


async def test_a_running_server_mounts_nothing() -> None:
    main = Server("main")
    async with main.host():
        with pytest.raises(RuntimeError, match="cannot be mounted while 'main' runs"):
            main.mount(shop())


def test_a_tower_of_servers_has_an_end() -> None:
    top = Server("0")
    for number in range(1, MAX_DEPTH):
        above = Server(str(number))
        above.mount(top)
        top = above
    with pytest.raises(ValueError, match="more than 16 servers"):
        Server("roof").mount(top)


async def test_ten_thousand_tools_are_mounted_and_listed() -> None:
    other = Server("many")

    async def same(number: int) -> str:
        return str(number)

    for number in range(10_000):
        other.tool(name=f"t{number}")(same)
    async with connect(mall(other, prefix="m")) as client:
        assert text(await client.call("m__t9999", number=3)) == "3"
        found = await client.request("tools/list")
        assert len(found["tools"]) == 100
        assert found["nextCursor"]


# Included handlers.


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
