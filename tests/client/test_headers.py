"""A client over Streamable HTTP (2026-07-28): every message a POST, and its headers say what its body says."""

from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.client.conversation import Patience
from callboard.client import connect
from callboard.client.subscriptions import ACKNOWLEDGED
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.revisions import meta
from callboard.codecs.sse import encode_event
from callboard.errors import BadAnswer, ConnectionLost, HttpRefused, RequestTimedOut, ServerRefused
from callboard.transports.client.pool import MAX_CHANNELS
from tests.client.stage import CACHED, Json
from tests.client.web import Reply, modern, web

SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "x-mcp-header": "City"},
        "zone": {"type": "integer", "x-mcp-header": "Zone"},
        "sure": {"type": "boolean", "x-mcp-header": "Sure"},
        "note": {"type": "string"},
        "deep": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Deeper"}}},
    },
}
ROUTE: Final[Json] = {"name": "route", "inputSchema": SCHEMA}


def param_headers(reply: Reply) -> dict[str, str]:
    return {name: value for name, value in reply.seen.headers.items() if name.startswith("mcp-param-")}


async def nothing_much(reply: Reply) -> None:
    match reply.seen.rpc:
        case "tools/list":
            await reply.answer(tools=[ROUTE], **CACHED)
        case "resources/read":
            await reply.answer(contents=[], **CACHED)
        case "prompts/get":
            await reply.answer(messages=[])
        case _:
            await reply.answer(content=[])


@pytest.mark.requirement("M092", "M093", "M094", "M095", "M113", "M114", "M120", "M121", "M140")
async def test_every_message_is_a_post_of_its_own_whose_headers_say_what_it_says(autojump_clock: MockClock) -> None:
    async with web(modern(nothing_much)) as here, connect(here.ways()) as client:
        await client.tools()
        await client.call("route", note="x")
        await client.read("house://hall")
        await client.prompt("invite")
    assert [seen.rpc for seen in here.seen] == [
        *("server/discover", "tools/list", "tools/call", "resources/read", "prompts/get"),
    ]
    for seen in here.seen:
        assert (seen.method, seen.target) == ("POST", "/mcp")
        assert isinstance(seen.body, dict)
        assert seen.headers["content-type"] == "application/json"
        assert {kind.strip() for kind in seen.headers["accept"].split(",")} == {
            "application/json",
            "text/event-stream",
        }
        assert seen.headers["mcp-protocol-version"] == seen.body["params"]["_meta"][meta.PROTOCOL_VERSION]
        assert seen.headers["mcp-method"] == seen.rpc
        assert "mcp-session-id" not in seen.headers
    names = [seen.headers.get("mcp-name") for seen in here.seen]
    assert names == [None, None, "route", "house://hall", "invite"]
    assert here.connections == 1


@pytest.mark.requirement("M122")
@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("plain name", "plain name"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
async def test_a_name_that_is_not_plain_is_encoded(name: str, header: str, autojump_clock: MockClock) -> None:
    async with web(modern(nothing_much)) as here, connect(here.ways()) as client:
        await client.call(name)
    assert here.seen[-1].headers["mcp-name"] == header
    assert here.seen[-1].body["params"]["name"] == name


@pytest.mark.requirement("M123", "M134", "M135", "M136", "M141", "M142")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"city": "Oslo", "zone": 7, "sure": True, "note": "x"}, {"city": "Oslo", "zone": "7", "sure": "true"}),
        ({"city": "", "sure": False}, {"city": "", "sure": "false"}),
        ({"city": None}, {}),
        ({}, {}),
        ({"city": "世界"}, {"city": "=?base64?5LiW55WM?="}),
        ({"city": "\tindented"}, {"city": "=?base64?CWluZGVudGVk?="}),
        ({"city": "=?base64?literal?="}, {"city": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}),
        ({"deep": {"er": "down"}}, {"deeper": "down"}),
    ],
)
async def test_arguments_are_mirrored_as_the_tool_wants(
    arguments: Json, expected: dict[str, str], autojump_clock: MockClock
) -> None:
    async with web(modern(nothing_much)) as here, connect(here.ways()) as client:
        await client.tools()
        await client.call_with("route", arguments)
    found = {name.removeprefix("mcp-param-"): value for name, value in here.seen[-1].headers.items() if "param" in name}
    assert found == expected


@pytest.mark.requirement("M132", "M133")
@pytest.mark.parametrize(
    "broken",
    [
        {"x": {"type": "number", "x-mcp-header": "X"}},
        {"x": {"type": "string", "x-mcp-header": ""}},
        {"x": {"type": "string", "x-mcp-header": "a b"}},
        {"x": {"type": "string", "x-mcp-header": "A"}, "y": {"type": "string", "x-mcp-header": "a"}},
        {"x": {"type": "array", "items": {"type": "string", "x-mcp-header": "X"}}},
    ],
)
async def test_a_tool_whose_headers_break_the_rules_is_left_out_and_the_log_says_why(
    broken: Json, autojump_clock: MockClock
) -> None:
    bad = {"name": "bad", "inputSchema": {"type": "object", "properties": broken}}

    async def handle(reply: Reply) -> None:
        await reply.answer(tools=[bad, ROUTE], **CACHED)

    with structlog.testing.capture_logs() as logs:
        async with web(modern(handle)) as here, connect(here.ways()) as client:
            assert [tool.name for tool in await client.tools()] == ["route"]
    [line] = [line for line in logs if line["event"] == "tool_left_out"]
    assert line["tool"] == "bad"
    assert line["reason"]


@pytest.mark.requirement("M154")
@pytest.mark.parametrize("has_id", [True, False])  # a server that looked at the headers alone has seen none
async def test_a_call_whose_headers_do_not_match_is_made_again_with_a_fresh_list_once(
    has_id: bool, autojump_clock: MockClock
) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "tools/call" and param_headers(reply) != {"mcp-param-city": "Oslo"}:
            whose = reply.seen.body["id"] if has_id else None
            await reply.json(400, id=whose, error={"code": -32020, "message": "Mcp-Param-City is missing"})
        else:
            await nothing_much(reply)

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        await client.call("route", city="Oslo")
        assert [seen.rpc for seen in here.seen[1:]] == ["tools/call", "tools/list", "tools/call"]
        assert len({seen.body["id"] for seen in here.seen}) == 4
        await client.call("route", city="Oslo")
        assert len(here.seen) == 5


async def test_a_call_whose_headers_never_match_is_refused_after_one_more_attempt(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "tools/call":
            await reply.refuse(400, -32020, "no")
        else:
            await nothing_much(reply)

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        with pytest.raises(ServerRefused) as refused:
            await client.call("route", city="Oslo")
        assert refused.value.error_code == -32020
        assert len(here.requests("tools/call")) == 2


# Answers.


@pytest.mark.requirement("M100", "M105")
async def test_an_answer_may_be_json_or_a_stream_with_more_in_it(autojump_clock: MockClock) -> None:
    logs: list[Any] = []

    async def handle(reply: Reply) -> None:
        if reply.seen.body["params"]["name"] == "json":
            await reply.answer(content=[])
            return
        token = reply.seen.body["params"]["_meta"]["progressToken"]
        await reply.stream()
        await reply.comment()
        params = {"progressToken": token, "progress": 1}
        await reply.event({"method": "notifications/progress", "params": params})
        await reply.piece(encode_event(b"2026-07-28T12:00:00", event="ping"))  # of another kind: none of ours
        await reply.event({"method": "notifications/message", "params": {"level": "info", "data": "half"}})
        await reply.event({"id": reply.seen.body["id"], "result": {"resultType": "complete", "content": []}})
        await reply.end()

    async with web(modern(handle)) as here, connect(here.ways(), on_log=logs.append) as client:
        await client.call("json")
        async with client.call("stream") as call:
            assert [update.progress async for update in call.progress] == [1]
        assert call.result.content == []
        await client.call("json")
        assert here.connections == 1
    assert [said.data for said in logs] == ["half"]


@pytest.mark.requirement("M112")
async def test_a_call_whose_stream_is_cut_is_lost_and_not_made_again(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        await reply.stream()
        await reply.event({"method": "notifications/message", "params": {"level": "info", "data": 1}}, "event-1")
        reply.cut()

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        with pytest.raises(ConnectionLost):
            await client.call("x")
        assert len(here.requests("tools/call")) == 1
        assert [seen for seen in here.seen if seen.method == "GET"] == []
        with pytest.raises(ConnectionLost):
            await client.call("x")
        first, second = here.requests("tools/call")
        assert first.body["id"] != second.body["id"]


async def test_a_stream_that_ends_without_an_answer_is_a_lost_call(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        await reply.stream()
        await reply.event({"id": 999, "result": {"content": []}})
        await reply.end()

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        with pytest.raises(ConnectionLost, match="ended without a response"):
            await client.call("x")


async def test_a_stream_that_never_ends_costs_the_timeout_and_its_connection(autojump_clock: MockClock) -> None:
    closed = trio.Event()

    async def handle(reply: Reply) -> None:
        await reply.stream()
        try:
            while True:
                await reply.comment()
                await trio.sleep(1)
        except trio.BrokenResourceError:
            closed.set()
            raise

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        with pytest.raises(RequestTimedOut):
            await client.call("x", patience=Patience(timeout=5))
        assert trio.current_time() == 5
        await closed.wait()
        assert trio.current_time() <= 6


async def test_leaving_a_call_closes_its_stream_and_says_nothing_more(autojump_clock: MockClock) -> None:
    closed = trio.Event()

    async def handle(reply: Reply) -> None:
        await reply.stream()
        token = reply.seen.body["params"]["_meta"]["progressToken"]
        await reply.event({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        with suppress(trio.BrokenResourceError):
            assert await reply.wire.receive() == b""
        closed.set()

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        async with client.call("x") as call:
            async for _ in call.progress:
                call.cancel()
        with trio.fail_after(1):
            await closed.wait()
        assert [seen.rpc for seen in here.seen] == ["server/discover", "tools/call"]


@pytest.mark.parametrize(
    ("status", "body", "kind", "error", "why"),
    [
        (200, b"<html>", "text/html", BadAnswer, "unexpected content type text/html: expected JSON or an event stream"),
        (200, b"", "", BadAnswer, r"unexpected content type \(none\): expected"),
        (200, b"{", "application/json", BadAnswer, "JSON"),
        (200, b'{"jsonrpc": "2.0", "id": 999, "result": {}}', "application/json", BadAnswer, "for another request"),
        (301, b"", "text/html", HttpRefused, "HTTP 301: not followed to 'http://elsewhere/'"),
        (401, b"who are you?", "text/plain", HttpRefused, "HTTP 401: who are you"),
        (404, b"not here", "text/plain", HttpRefused, "HTTP 404: not here"),
        (500, b"", "text/plain", HttpRefused, "HTTP 500"),
        (503, b"x" * 100_000, "text/plain", HttpRefused, "HTTP 503: xxx"),
        (200, b'"' + b"x" * MAX_ANSWER + b'"', "application/json", BadAnswer, "larger than"),
    ],
)
async def test_an_answer_that_is_none_has_a_name(
    status: int, body: bytes, kind: str, error: type[Exception], why: str, autojump_clock: MockClock
) -> None:
    async def handle(reply: Reply) -> None:
        await reply.whole(status, body, kind, location="http://ada:s3cr3t@elsewhere/?key=s3cr3t")

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        with pytest.raises(error, match=why) as failed:
            await client.call("x")
        assert len(here.requests("tools/call")) == 1
    assert "s3cr3t" not in str(failed.value)


async def test_errors_come_with_any_status(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        await reply.refuse(int(reply.seen.body["params"]["name"]), -32601, "no such thing")

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        for status in ("200", "400", "404"):
            with pytest.raises(ServerRefused, match="no such thing"):
                await client.call(status)


# Connections.


async def test_calls_at_once_have_connections_of_their_own_which_are_used_again(autojump_clock: MockClock) -> None:
    go = trio.Event()

    async def handle(reply: Reply) -> None:
        await go.wait()
        await reply.answer(content=[])

    async with web(modern(handle)) as here, connect(here.ways()) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(client.call("x")._run)
            await wait_all_tasks_blocked()
            go.set()
        assert here.connections == 5
        for _ in range(5):
            await client.call("x")
        assert here.connections == 5


async def test_there_are_never_more_connections_than_may_be(autojump_clock: MockClock) -> None:
    waiting = 0
    go = trio.Event()

    async def handle(reply: Reply) -> None:
        nonlocal waiting
        waiting += 1
        await go.wait()
        await reply.answer(content=[])

    async with web(modern(handle)) as here, connect(here.ways()) as client, trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(client.call("x")._run)
        await wait_all_tasks_blocked()
        assert waiting == 64
        go.set()
    assert waiting == 100


async def test_whoever_listens_takes_no_turn_from_calls_and_one_too_many_is_told_so(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc != "subscriptions/listen":
            await reply.answer(content=[])
            return
        whose = {meta.SUBSCRIPTION_ID: reply.seen.body["id"]}
        params = {"_meta": whose, "notifications": {"toolsListChanged": True}}
        await reply.stream()
        await reply.event({"method": "notifications/subscriptions/acknowledged", "params": params})
        await trio.sleep_forever()

    async with web(modern(handle)) as here, connect(here.ways()) as client, AsyncExitStack() as stack:
        for _ in range(MAX_CHANNELS):
            await stack.enter_async_context(client.listen(tools=True))
        await client.call("x")
        assert trio.current_time() < ACKNOWLEDGED
        with pytest.raises(RequestTimedOut):
            await stack.enter_async_context(client.listen(tools=True))


async def test_a_connection_that_has_been_idle_for_long_is_not_trusted(autojump_clock: MockClock) -> None:
    async with web(modern(nothing_much)) as here, connect(here.ways()) as client:
        await client.call("x")
        await trio.sleep(3)
        await client.call("x")
        assert here.connections == 1
        await trio.sleep(4.9)  # many a server lets go of it right now
        await client.call("x")
        assert here.connections == 2
