"""Middleware: what it knows, what it stands before, and what its answers and errors come to."""

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from callboard import Context, Server, ToolError
from callboard import client as http
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import (
    ALL,
    CallToolResult,
    ListToolsResult,
    Model,
    ReadResourceResult,
    Revision,
    TextContent,
    TextResourceContents,
)
from callboard.errors import InvalidParams
from callboard.server import GoOn
from callboard.testing import Refusal, connect
from tests.transports.server.http.stage import serving

HTTP = [revision for revision in ALL if revision.dialect.has_structured_content]
"""Revisions that have structured results."""


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def full(**options: Any) -> Server:
    """A server with one of each kind."""
    server = Server("s", **options)

    @server.tool
    async def greet(name: str = "Ada") -> str:
        return f"Hello {name}!"

    @server.tool
    async def broken() -> str:
        raise LookupError("secret")

    @server.resource("r://one")
    async def one() -> str:
        return "1"

    @server.resource("r://item/{number}")
    async def item(number: int) -> str:
        return str(number)

    @server.prompt
    async def write(about: str) -> str:
        return about

    @server.completion("write", "about")
    async def about(value: str) -> list[str]:
        return [value]

    return server


REQUESTS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("tools/list", {}, "", {}),
    ("tools/call", {"name": "greet", "arguments": {"name": "Bo"}}, "greet", {"name": "Bo"}),
    ("tools/call", {"name": "greet"}, "greet", {}),
    ("resources/list", {}, "", {}),
    ("resources/templates/list", {}, "", {}),
    ("resources/read", {"uri": "r://item/3"}, "r://item/3", {}),
    ("prompts/list", {}, "", {}),
    ("prompts/get", {"name": "write", "arguments": {"about": "x"}}, "write", {"about": "x"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "write"}, "argument": {"name": "about", "value": "x"}},
        "write",
        {},
    ),
]


@pytest.mark.parametrize("revision", sorted(ALL))
@pytest.mark.parametrize(("method", "params", "target", "arguments"), REQUESTS, ids=lambda part: str(part)[:24])
async def test_middleware_knows_what_it_stands_before_and_changes_nothing(
    revision: Revision, method: str, params: dict[str, Any], target: str, arguments: dict[str, Any]
) -> None:
    seen: list[Any] = []
    plain, layered = full(), full()

    @layered.middleware
    async def look(ctx: Context, go_on: GoOn) -> Model:
        seen.append((ctx.method, ctx.target, ctx.arguments, ctx.principal, dict(ctx.headers)))
        return await go_on()

    async with connect(plain, revision, principal="ann") as client:
        expected = await client.request(method, **params)
    async with connect(layered, revision, principal="ann") as client:
        assert await client.request(method, **params) == expected
    assert seen == [(method, target, arguments, "ann", {})]


async def test_a_middleware_hides_a_tool_from_the_list_and_from_calls() -> None:
    server = full()

    @server.middleware
    async def hide(ctx: Context, go_on: GoOn) -> Model:
        if ctx.target == "broken":
            raise InvalidParams("Unknown tool: broken")
        result = await go_on()
        if isinstance(result, ListToolsResult):
            return attrs.evolve(result, tools=[tool for tool in result.tools if tool.name != "broken"])
        return result

    async with connect(server) as client:
        assert [tool["name"] for tool in (await client.request("tools/list"))["tools"]] == ["greet"]
        with pytest.raises(Refusal, match="-32602: Unknown tool: broken"):
            await client.call("broken")


async def test_a_list_that_a_middleware_may_change_is_kept_for_no_other_caller() -> None:
    server = full(ttl=60, cache_scope="public")
    async with connect(server) as client:
        assert (await client.request("tools/list"))["cacheScope"] == "public"

    @server.middleware
    async def look(ctx: Context, go_on: GoOn) -> Model:
        return await go_on()

    async with connect(server) as client:
        assert (await client.request("tools/list"))["cacheScope"] == "private"


async def test_a_middleware_that_does_not_go_on_answers_itself_and_inner_ones_do_not_see_it() -> None:
    server, seen = full(), []

    @server.middleware
    async def answer(ctx: Context, go_on: GoOn) -> Model:
        if ctx.method == "tools/call":
            return CallToolResult(content=[TextContent(text="kept")])
        return ReadResourceResult(contents=[TextResourceContents(uri=ctx.target, text="kept")])

    @server.middleware
    async def inner(ctx: Context, go_on: GoOn) -> Model:
        seen.append(ctx.method)
        return await go_on()

    async with connect(server) as client:
        assert (await client.call("greet"))["content"][0]["text"] == "kept"
        assert (await client.request("resources/read", uri="r://one"))["contents"][0]["text"] == "kept"
    assert seen == []


async def test_a_tool_that_fails_is_a_result_to_its_middleware() -> None:
    server, seen = full(), list[object]()

    @server.middleware
    async def look(ctx: Context, go_on: GoOn) -> Model:
        result = await go_on()
        seen.append(isinstance(result, CallToolResult) and result.is_error)
        return result

    async with connect(server) as client:
        assert (await client.call("broken"))["isError"]
        assert (await client.call("greet", name=3))["isError"]
    assert seen == [True, True]


async def test_a_tool_error_of_a_middleware_is_the_result_of_the_call(logged: list[Any]) -> None:
    server = full()

    @server.middleware
    async def refuse(ctx: Context, go_on: GoOn) -> Model:
        raise ToolError("closed on Sundays")

    async with connect(server) as client:
        result = await client.call("greet")
        assert (result["isError"], result["content"][0]["text"]) == (True, "closed on Sundays")
        with pytest.raises(Refusal, match="-32603: closed on Sundays"):
            await client.request("resources/read", uri="r://one")
        with pytest.raises(Refusal, match="-32603: closed on Sundays"):
            await client.request("tools/list")
    assert logged == []


async def test_a_middleware_that_returns_no_result_is_told_in_the_log(logged: list[Any]) -> None:
    server = full()

    @server.middleware  # type: ignore[type-var]  # it forgets to return
    async def forgetful(ctx: Context, go_on: GoOn) -> None:
        await go_on()

    async with connect(server) as client:
        with pytest.raises(Refusal, match="-32603: Internal error: TypeError"):
            await client.call("greet")
    assert "the middleware forgetful returned NoneType and no result: return await go_on()" in logged[0]["failure"]


async def test_a_middleware_may_go_on_twice() -> None:
    server, tries = Server("s"), list[int]()

    @server.tool
    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ToolError("not yet")
        return "now"

    @server.middleware
    async def again(ctx: Context, go_on: GoOn) -> Model:
        result = await go_on()
        return await go_on() if isinstance(result, CallToolResult) and result.is_error is True else result

    async with connect(server) as client:
        assert (await client.call("flaky"))["content"][0]["text"] == "now"


async def test_no_middleware_answers_what_its_caller_may_not_use() -> None:
    server = Server("s")

    @server.tool(scopes=["write"])
    async def erase() -> str:
        return "gone"

    @server.middleware
    async def answer(ctx: Context, go_on: GoOn) -> Model:
        return CallToolResult(content=[TextContent(text="kept")])

    async with connect(server, principal=Caller(principal="ann")) as client:
        with pytest.raises(Refusal, match="scope"):
            await client.call("erase")
    async with connect(server, principal=Caller(principal="ann", scopes=["write"])) as client:
        assert (await client.call("erase"))["content"][0]["text"] == "kept"


async def test_a_handler_reads_the_headers_that_its_server_names() -> None:
    server = Server("s", headers=["X-Request-Id", "user-agent"])

    @server.tool
    async def read(ctx: Context) -> dict[str, str]:
        return dict(ctx.headers)

    headers = {"X-Request-Id": "7", "X-Other": "8"}
    async with serving(server) as place:
        for revision in sorted(HTTP):
            async with http.connect(f"http://127.0.0.1:{place.port}/mcp", headers=headers, revision=revision) as client:
                assert (await client.call("read")).structured_content == {"x-request-id": "7"}


@pytest.mark.parametrize("name", ["Authorization", "cookie", "DPoP", "proxy-authorization", "bad name"])
def test_a_credential_is_no_header_for_handlers(name: str) -> None:
    with pytest.raises(ValueError, match=r"credential|invalid header name"):
        Server("s", headers=[name])
