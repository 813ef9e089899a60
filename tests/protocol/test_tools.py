"""Tools: how they are listed, called and held to their schemas."""

from typing import Any

import attrs
import jsonschema
import pytest
from trio.testing import MockClock

from callboard.codecs.revisions import CallToolResult, Icon, Revision, TextContent, ToolAnnotations
from callboard.codecs.revisions.revision import R4, R5
from callboard.server import Server
from callboard.server.context import Context
from callboard.testing import Refusal
from tests.protocol.house import EVERY, open_house, text

server = Server("tools", offers=["prompts", "resources", "completions"])


@attrs.frozen
class Pair:
    left: int
    right: str


@server.tool(
    title="Zip",
    annotations=ToolAnnotations(idempotent_hint=True),
    read_only=True,
    icons=[Icon(src="https://example.com/i.png")],
    meta={"example.com/level": 3},
)
async def zip_up(left: int, right: str = "r") -> Pair:
    return Pair(left, right)


@server.tool
async def add_one(number: int) -> int:
    return number + 1


@server.tool
async def broken() -> Pair:
    return CallToolResult(content=[TextContent(text="x")], structured_content={"left": "no"})  # type: ignore[return-value]


async def words() -> str:  # not a plain function: threads take real time
    return "words"


@server.tool
async def meta_of(*, ctx: Context) -> str:
    return str(ctx.meta.get("example.com/x"))


@pytest.mark.requirement("M224", "M230", "M240", "M246", "M257", "L177", "L185", "L190", "L194", "L199")
@EVERY
async def test_all_that_is_offered_is_declared(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.stranger(revision)
        ask = peer.request("server/discover") if revision is R5 else peer.initialize()
        declared = (await ask)["capabilities"]
        assert declared.keys() >= {"tools", "prompts", "resources", "logging"}
        assert ("completions" in declared) == (revision >= "2025-03-26")
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            await peer.request(method)


@pytest.mark.requirement("M048", "M261", "L015", "L178")
@EVERY
async def test_published_schemas_are_schemas_of_objects(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        for tool in (await peer.request("tools/list"))["tools"]:
            for schema in (tool["inputSchema"], tool.get("outputSchema", {"type": "object"})):
                assert schema["type"] == "object"
                jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.requirement("M263", "L180")
@pytest.mark.parametrize("revision", [r for r in Revision if r >= "2025-06-18"], ids=str)
async def test_structured_results_keep_the_promise_of_their_schema(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        tools = {tool["name"]: tool for tool in (await peer.request("tools/list"))["tools"]}
        for name, arguments in (("zip_up", {"left": 1}), ("add_one", {"number": 1})):
            result = await peer.call(name, **arguments)
            jsonschema.validate(result["structuredContent"], tools[name]["outputSchema"])
        failed = await peer.call("broken")
        assert failed["isError"] is True  # what breaks the promise is not sent
        assert "structuredContent" not in failed


@pytest.mark.requirement("M266", "L181")
@EVERY
@pytest.mark.parametrize("arguments", [{}, {"left": "1"}, {"left": 1, "more": 2}, {"left": None}, {"left": 1.5}])
async def test_arguments_are_checked_before_the_handler_runs(
    revision: Revision, arguments: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        refused = await peer.call("zip_up", **arguments)
        assert refused["isError"] is True
        assert text(refused).startswith("Invalid arguments for zip_up")


@pytest.mark.requirement("M241", "M242", "M247", "M248", "M258", "M259", "M260")
@EVERY
async def test_lists_are_the_same_for_everybody_in_order_and_all_of_it_can_be_used(
    revision: Revision, autojump_clock: MockClock
) -> None:
    several = Server("several")
    for name in ("zeta", "alpha", "mid"):
        several.tool(name=name)(add_one)
        several.prompt(name=name)(words)
        several.resource(f"x://{name}", name=name)(words)
    async with open_house(several) as house:
        one, two = await house.peer(revision), await house.peer(revision, principal="other")
        lists: list[Any] = []
        for peer in (one, two, one):
            tools = (await peer.request("tools/list"))["tools"]
            prompts = (await peer.request("prompts/list"))["prompts"]
            resources = (await peer.request("resources/list"))["resources"]
            lists.append([tools, prompts, resources])
            for tool in tools:
                assert text(await peer.call(tool["name"], number=1)) == "2"
            for prompt in prompts:
                assert (await peer.request("prompts/get", name=prompt["name"]))["messages"]
            for resource in resources:
                assert (await peer.request("resources/read", uri=resource["uri"]))["contents"]
        assert lists[0] == lists[1] == lists[2]
        assert [tool["name"] for tool in lists[0][0]] == ["zeta", "alpha", "mid"]
        several.remove_tool("mid")
        with pytest.raises(Refusal, match="-32602"):
            await one.call("mid", number=1)


@pytest.mark.requirement("M045", "M046", "M047", "L013", "L014", "L016")
def test_a_schema_is_read_by_the_dialect_it_names_and_by_2020_12_if_it_names_none() -> None:
    def add(**schema: Any) -> Server:
        fresh = Server("dialects")
        fresh.tool(input_schema={"type": "object", **schema})(takes)
        return fresh

    async def takes(arguments: dict[str, Any]) -> str:
        return ""

    def accepts(fresh: Server, arguments: Any) -> bool:
        (entry,) = fresh.registry.tools
        try:
            entry.signature.read(arguments)
        except Exception:
            return False
        return True

    pair: dict[str, Any] = {"a": {"prefixItems": [{"type": "integer"}]}}
    assert not accepts(add(properties=pair), {"a": ["x"]})
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert accepts(add(properties=pair, **draft_7), {"a": ["x"]})  # draft-07 has no such keyword
    with pytest.raises(TypeError, match="dialect"):
        add(**{"$schema": "https://example.com/own"})


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 129, "a\n"])
def test_a_name_that_clients_may_not_take_is_refused_when_it_is_given(name: str) -> None:
    fresh = Server("names")
    fresh.tool(name="A-Za_z0.9" + "x" * 119)(add_one)
    with pytest.raises((ValueError, TypeError)):
        fresh.tool(name=name or " ")(add_one)


@pytest.mark.requirement("M041", "M042", "L011")
def test_a_key_that_meta_may_not_have_is_refused_when_it_is_given() -> None:
    fresh = Server("meta")
    for key in ("a b", "-x", "1.example/x", "example.com/_"):
        for decorate in (fresh.tool, fresh.prompt):
            with pytest.raises(ValueError, match="_meta"):
                decorate(meta={key: 1})(add_one)
        with pytest.raises(ValueError, match="_meta"):
            fresh.resource("x://y", meta={key: 1})(lambda: "")


@EVERY
async def test_what_a_tool_says_of_itself_reaches_those_who_know_it(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        tool = (await peer.request("tools/list"))["tools"][0]
        assert tool.get("title") == ("Zip" if revision >= "2025-06-18" else None)
        assert tool.get("annotations") == (
            {"readOnlyHint": True, "idempotentHint": True} if revision >= "2025-03-26" else None
        )
        assert ("icons" in tool) == (revision >= R4)
        assert tool.get("_meta") == ({"example.com/level": 3} if revision >= "2025-06-18" else None)


@EVERY
async def test_a_handler_sees_the_meta_of_its_request(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        assert text(await peer.request("tools/call", name="meta_of", meta={"example.com/x": [1]})) == "[1]"
        assert text(await peer.call("meta_of")) == "None"
