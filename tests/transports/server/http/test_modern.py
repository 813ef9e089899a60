"""Modern requests over HTTP: each stands alone, says everything itself, and is answered on its own stream."""

import json

import pytest
import trio

from callboard import Context, Revision
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.revisions import MODERN
from tests.test_hostile_frames import FRAMES
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import META, VERSION, Json, request, serving, settle

LOG = {f"{META}logLevel": "info"}
MODERN_ONLY = frozenset({Revision.V2026_07_28})


@pytest.mark.requirement("M103", "M104")
async def test_an_answer_becomes_a_stream_when_something_must_be_said_before_it() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="chat", arguments={"words": ["a", "b"]}, meta=LOG, id="x"))
        answer = await client.answer()
        assert answer.headers == {
            "content-type": "text/event-stream",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "transfer-encoding": "chunked",
        }
        messages = [json.loads(event.data) for event in answer.events]
        assert [message.get("method") for message in messages] == ["notifications/message"] * 2 + [None]
        assert messages[-1]["id"] == "x"
        assert all(event.id == "" for event in answer.events)  # nothing that one could come back to
        assert (await client.call("echo", text="x")).result  # on the same connection


async def test_an_answer_is_json_if_nobody_wants_to_hear_what_is_said_before_it() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        assert (await client.call("chat", words=["a", "b"])).result


async def test_the_stream_begins_with_the_first_word_and_not_before() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="steps", arguments={"number": 2, "name": "s"}, meta=LOG))
        stream = await client.stream_of()
        assert (await stream.message())["params"]["data"] == "1"
        house.gates["s1"].set()
        assert (await stream.message())["params"]["data"] == "2"
        house.gates["s2"].set()
        assert "result" in await stream.message()
        assert await stream.event() is None


@pytest.mark.requirement("M101")
async def test_a_stream_carries_only_what_belongs_to_its_request() -> None:
    house = open_house()
    async with serving(house.server) as place:
        listener, *callers = [await place.connect() for _ in range(3)]
        await listener.send(listener.modern("subscriptions/listen", notifications={"toolsListChanged": True}, meta=LOG))
        listening = await listener.stream_of()
        await listening.message()
        for name, caller in zip("ab", callers, strict=True):
            arguments = {"words": [name] * 3, "name": name}
            await caller.send(caller.modern("tools/call", name="chat", arguments=arguments, meta=LOG, id=1))
        await house.wait_started("a", "b")
        house.server.notify_changed("tools")
        for name, caller in zip("ab", callers, strict=True):
            house.gates[name].set()
            *said, last = await (await caller.stream_of()).rest()
            assert [message["params"]["data"] for message in said] == [name] * 3
            assert last["id"] == 1
        assert (await listening.message())["method"] == "notifications/tools/list_changed"
        await settle()
        with trio.move_on_after(0.1):
            pytest.fail(f"the listener also heard {await listening.event()}")


async def test_progress_comes_on_the_stream_of_its_request_and_rises() -> None:
    house = open_house()

    @house.server.tool
    async def count(*, ctx: Context) -> str:
        async for _ in ctx.progress(range(3)):
            await trio.sleep(0.02)
        return "done"

    async with serving(house.server) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="count", arguments={}, meta={"progressToken": "t"}))
        *reports, last = await (await client.stream_of()).rest()
        assert [report["params"]["progress"] for report in reports] == [1, 2, 3]
        assert {report["params"]["progressToken"] for report in reports} == {"t"}
        assert "result" in last


async def test_equal_ids_and_tokens_on_two_posts_are_two_requests() -> None:
    house = open_house()
    async with serving(house.server) as place:
        clients = [await place.connect() for _ in range(2)]
        for client, name in zip(clients, "ab", strict=True):
            token = {"progressToken": 1}
            await client.send(client.modern("tools/call", name="work", arguments={"name": name}, id=7, meta=token))
        await house.wait_started("a", "b")
        for client, name in reversed(list(zip(clients, "ab", strict=True))):
            house.gates[name].set()
            answer = await client.answer()
            assert (answer.json["id"], answer.result["content"][0]["text"]) == (7, name)


@pytest.mark.parametrize(
    "word", ["a\r\nid: 9\r\n\r\ndata: {}", "\n\n", "\u2028\u0085", "\0", "0\r\n\r\nHTTP/1.1 200 OK"]
)
async def test_nothing_that_a_handler_says_gets_out_of_its_event(word: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="chat", arguments={"words": [word]}, meta=LOG))
        stream = await client.stream_of()
        first, last = await stream.rest()
        assert first["params"]["data"] == word
        assert "result" in last
        assert stream.decoder.last_event_id == ""
        assert (await client.call("echo", text=word)).result["content"][0]["text"] == word


async def test_an_error_after_the_stream_began_is_its_last_event() -> None:
    house = open_house()

    @house.server.tool
    async def chat_then_ask(*, ctx: Context) -> str:
        await ctx.log("info", "a")
        return str(await ctx.roots())

    async with serving(house.server) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="chat_then_ask", arguments={}, meta=LOG, id="x"))
        first, last = await (await client.stream_of()).rest()
        assert first["method"] == "notifications/message"
        assert (last["id"], last["error"]["code"]) == ("x", -32021)


async def test_an_answer_that_is_too_large_is_an_error() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        for tool in ("large", "large_with_context"):
            answer = await client.call(tool, size=MAX_ANSWER)
            assert (answer.status, answer.code) == (200, -32603)
        assert (await client.call("echo", text="x")).result


# What is said wrongly.


@pytest.mark.requirement("M117")
@pytest.mark.parametrize("method", ["nonsense", "ping", "initialize", "resources/subscribe", "logging/setLevel"])
async def test_a_method_that_is_not_there_is_404_with_a_body_that_tells_it_from_an_old_server(method: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern(method, id="x"))
        answer = await client.answer()
        assert (answer.status, answer.code, answer.json["id"]) == (404, -32601, "x")
        assert (await client.call("echo", text="x")).result  # nothing was lost


@pytest.mark.requirement("M034")
@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
async def test_a_request_that_lacks_what_it_must_say_is_400(missing: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        message = client.message("server/discover")
        del message["params"]["_meta"][META + missing]
        await client.send(client.post(message, mcp_protocol_version=VERSION, mcp_method="server/discover"))
        answer = await client.answer()
        assert (answer.status, answer.code, answer.json["id"]) == (400, -32602, message["id"])
        assert missing in answer.json["error"]["message"]


@pytest.mark.parametrize("broken", [{}, {"_meta": {}}, None])
async def test_a_request_without_any_meta_is_known_by_its_header(broken: Json | None) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        message: Json = {"jsonrpc": "2.0", "id": 1, "method": "server/discover"}
        if broken is not None:
            message["params"] = broken
        await client.send(client.post(message, mcp_protocol_version=VERSION, mcp_method="server/discover"))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32602)


@pytest.mark.requirement("M037")
async def test_a_capability_that_is_needed_and_not_declared_is_400() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        bare: Json = {f"{META}clientCapabilities": {}}
        await client.send(client.modern("tools/call", name="ask", arguments={}, meta=bare))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32021)
        assert answer.json["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


@pytest.mark.requirement("M115")
@pytest.mark.parametrize(
    "header", ["2025-11-25", "2026-07-29", "DRAFT", "", " ", VERSION + "x", VERSION.replace("-", "_")]
)
async def test_a_version_header_that_differs_from_the_body_is_refused(header: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover", headers={"mcp_protocol_version": header}))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32020)


@pytest.mark.requirement("M118")
@pytest.mark.parametrize("revisions", [frozenset(Revision), MODERN_ONLY])
async def test_a_modern_request_without_a_version_header_is_refused(revisions: frozenset[Revision]) -> None:
    async with serving(open_house(revisions=revisions).server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover", headers={"mcp_protocol_version": None}))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32020)


@pytest.mark.requirement("M116")
@pytest.mark.parametrize("version", ["2025-11-25", "1999-01-01", "x"])
async def test_a_version_that_is_not_spoken_is_400_and_names_those_that_are(version: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        meta = {f"{META}protocolVersion": version}
        await client.send(client.modern("server/discover", meta=meta, headers={"mcp_protocol_version": version}))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32022)
        assert answer.json["error"]["data"] == {"requested": version, "supported": sorted(Revision)}


async def test_an_error_for_which_nothing_else_is_laid_down_is_an_answer() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        calls: list[tuple[str, Json]] = [("tools/call", {"name": "nobody"}), ("resources/read", {"uri": "x://y"})]
        for method, params in calls:
            await client.send(client.modern(method, **params))
            answer = await client.answer()
            assert (answer.status, answer.code) == (200, -32602)


@pytest.mark.requirement("M097")
@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/progress", "notifications/anything"])
async def test_a_notification_is_accepted_without_a_word(method: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        message = {"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}}
        await client.send(client.post(message, mcp_protocol_version=VERSION))
        answer = await client.answer()
        assert (answer.status, answer.body) == (202, b"")
        assert "content-type" not in answer.headers


@pytest.mark.requirement("M098")
async def test_a_notification_that_cannot_be_accepted_is_an_error_of_http() -> None:
    async with serving(open_house().server) as place:
        rows: list[tuple[Json, dict[str, str | None], int]] = [
            ({"jsonrpc": "2.0", "method": "notifications/x", "params": []}, {}, 400),
            ({"jsonrpc": "1.0", "method": "notifications/x"}, {}, 400),
            ({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": 1}}, {}, 400),
            ({"jsonrpc": "2.0", "method": "notifications/x"}, {"origin": "http://evil.com"}, 403),
        ]
        for message, headers, status in rows:
            client = await place.connect()
            await client.send(client.post(message, mcp_protocol_version=VERSION, **headers))
            answer = await client.answer()
            assert answer.status == status
            assert "id" not in answer.json


@pytest.mark.parametrize("body", [{"result": {}}, {"error": {"code": 1, "message": "x"}}])
async def test_nothing_was_asked_so_nothing_can_be_answered(body: Json) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        message = {"jsonrpc": "2.0", "id": 1, **body}
        await client.send(client.post(message, mcp_protocol_version=VERSION))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32600)


async def test_hostile_frames_are_answered_one_after_the_other_and_harm_nobody() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        for row, frame, code in FRAMES:
            await client.send(client.post(frame, mcp_protocol_version=VERSION, mcp_method="tools/call"))
            answer = await client.answer()
            assert answer.status in (400, 413), row
            # A client that sends an array is told first that it has no session for it.
            assert answer.code == (-32600 if frame.startswith(b"[") else code), row
        assert (await client.call("echo", text="x")).result
        assert place.connections == 1


async def test_a_frame_of_too_many_small_things_is_too_large() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        message = client.message("tools/call", name="echo", arguments={"text": [1] * 150_000})
        await client.send(client.post(message, mcp_protocol_version=VERSION, mcp_method="tools/call", mcp_name="echo"))
        assert (await client.answer()).status == 413


@pytest.mark.parametrize("id", [0, -1, "", "x" * 1000, 2**53 - 1, 2**53 + 1, 10**40, "1"])
async def test_any_id_that_may_be_one_comes_back_as_it_was(id: int | str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover", id=id))
        assert (await client.answer()).json["id"] == id


# No sessions.


@pytest.mark.parametrize("revisions", [frozenset(Revision), MODERN_ONLY])
@pytest.mark.requirement("M110", "M111")
async def test_session_ids_and_event_ids_are_ignored_and_never_minted(revisions: frozenset[Revision]) -> None:
    async with serving(open_house(revisions=revisions).server) as place:
        client = await place.connect()
        lines = ("Mcp-Session-Id: made-up", "Last-Event-ID: 1-1")
        calls: list[tuple[str, Json]] = [
            ("server/discover", {}),
            ("tools/call", {"name": "echo", "arguments": {"text": "x"}}),
        ]
        for method, params in calls:
            await client.send(client.modern(method, *lines, **params))
            answer = await client.answer()
            assert answer.result
            assert "mcp-session-id" not in answer.headers
        await client.send(client.modern("tools/call", *lines, name="chat", arguments={"words": ["a"]}, meta=LOG))
        answer = await client.answer()
        assert answer.events
        assert "mcp-session-id" not in answer.headers


@pytest.mark.requirement("M109")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("lines", [(), ("Mcp-Session-Id: x",), ("Mcp-Session-Id: x", "Last-Event-ID: 1-1")])
async def test_a_modern_server_has_only_post(method: str, lines: tuple[str, ...]) -> None:
    async with serving(open_house(revisions=MODERN_ONLY).server) as place:
        answer = await place.ask(
            request(method, "/mcp", *lines, host=f"127.0.0.1:{place.port}", accept="text/event-stream")
        )
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_a_modern_server_tells_an_old_client_what_it_speaks_and_opens_nothing() -> None:
    async with serving(open_house(revisions=MODERN_ONLY).server) as place:
        client = await place.connect()
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        await client.send(client.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
        answer = await client.answer()
        assert (answer.status, answer.code, answer.json["id"]) == (400, -32022, 1)
        assert answer.json["error"]["data"] == {"requested": "2025-11-25", "supported": sorted(MODERN)}
        assert "mcp-session-id" not in answer.headers
        assert len(place.endpoint.legacy) == 0


@pytest.mark.parametrize("lines", [("Mcp-Session-Id: x",), ("MCP-Protocol-Version: 2025-11-25",)])
async def test_a_modern_server_does_not_look_for_the_session_of_a_legacy_request(lines: tuple[str, ...]) -> None:
    async with serving(open_house(revisions=MODERN_ONLY).server) as place:
        client = await place.connect()
        await client.send(client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, *lines))
        answer = await client.answer()
        assert answer.status == 400
        assert answer.code in (-32020, -32602)
        assert answer.json["id"] == 1
