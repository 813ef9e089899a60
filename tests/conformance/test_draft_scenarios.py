"""Scenarios that the official suite has on branches only, as own tests: a hosted server, and one behind a broker.

The names are theirs: cancellation, session-isolation, notification-isolation, json-rpc-batch-rejection,
protocol-version-header, http-stream-cancellation, per-request-loglevel, progress-notifications, sessionless,
legacy-extensions; and of clients: session-renegotiation, legacy-initialize, stateless-gauntlet.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Revision, Server
from callboard.broker import Broker
from callboard.client import connect
from callboard.codecs.revisions import LEGACY
from callboard.errors import SessionGone
from callboard.server import Extension
from tests.broker.front import backend
from tests.client.stage import EVERYTHING, INFO
from tests.client.web import Reply, web
from tests.transports.server.http.house import House, open_house
from tests.transports.server.http.sessions import HTTP_REVISIONS, OpenSession, initialize
from tests.transports.server.http.stage import META, VERSION, Client, Json, Place, serving

R3, R4 = Revision("2025-06-18"), Revision("2025-11-25")
LOG = f"{META}logLevel"
sides = pytest.mark.parametrize("side", ["hosted", "brokered"])
sessions = pytest.mark.parametrize("revision", HTTP_REVISIONS, ids=str)


@asynccontextmanager
async def placed(server: Server, side: str) -> AsyncIterator[Place]:
    """*server* over HTTP: itself, or behind a broker."""
    served: Any = server if side == "hosted" else Broker([backend(server)])
    async with serving(served) as place:
        yield place


@attrs.frozen
class Drawn:
    """A house that reports progress, too."""

    house: House

    @property
    def server(self) -> Server:
        return self.house.server


def drawn() -> Drawn:
    house = open_house()

    @house.server.tool
    async def climb(steps: int, *, ctx: Context) -> str:
        for step in range(1, steps + 1):
            await ctx.report(step, total=steps, message=f"step {step}")
            await trio.sleep(0.02)
        return "up"

    @house.server.tool
    async def march(name: str, *, ctx: Context) -> str:
        await ctx.report(1)
        await house.pass_gate(name)
        return "done"

    @house.server.tool
    async def speak(*, ctx: Context) -> str:
        for level in ("debug", "info", "warning", "error"):
            await ctx.log(level, level)
        return "said"

    return Drawn(house)


async def told_by(client: Client) -> list[Json]:
    """All messages of the next answer: of a stream, or the one of a JSON body."""
    answer = await client.answer()
    if answer.headers["content-type"] == "application/json":
        return [answer.json]
    return [json.loads(event.data) for event in answer.events if event.data]


# Servers.


@sides
@sessions
async def test_cancellation_of_a_slow_call_ends_it_unanswered_and_a_quick_one_is_untouched(
    revision: Revision, side: str
) -> None:
    house = open_house()
    async with placed(house.server, side) as place:
        session = await OpenSession.open(place, revision)
        slow = await session.begin("work", id="slow", name="slow")
        await house.wait_started("slow")
        cancelled = {"requestId": "slow", "reason": "changed my mind"}
        assert (await session.say({"method": "notifications/cancelled", "params": cancelled})).status == 202
        await house.wait_cut("slow")
        assert (await session.call("echo", text="quick")).result["content"][0]["text"] == "quick"
        told = await told_by(slow)
        assert not any(message.get("id") == "slow" and "method" not in message for message in told)
        for late in ("slow", "never", 7):  # ended, unknown: ignored
            say = {"method": "notifications/cancelled", "params": {"requestId": late}}
            assert (await session.say(say)).status == 202


@sides
async def test_sessions_are_isolated_although_their_clients_use_the_same_ids(side: str) -> None:
    house = open_house()
    async with placed(house.server, side) as place:
        one, other = [await OpenSession.open(place, R4) for _ in range(2)]
        assert one.id != other.id
        first = await one.begin("work", id=1, name="one")
        second = await other.begin("work", id=1, name="other")
        await house.wait_started("one", "other")
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await other.say(cancelled)).status == 202
        await house.wait_cut("other")
        assert "one" not in house.cut
        house.gates["one"].set()
        [answer] = [message for message in await told_by(first) if "result" in message]
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (1, "one")
        assert not any("result" in message for message in await told_by(second))
        assert (await one.delete()).status == 204
        assert (await one.ask("ping")).status == 404
        assert (await other.ask("ping")).status == 200


@sides
async def test_notifications_reach_only_the_client_whose_request_they_belong_to(side: str) -> None:
    async with placed(drawn().server, side) as place:
        one, other = [await OpenSession.open(place, R4) for _ in range(2)]
        standing = await other.listen()
        token = {"_meta": {"progressToken": "same"}}
        client = await place.connect()
        call = one.request("tools/call", id=1, name="climb", arguments={"steps": 3}, **token)
        quiet = await other.begin("echo", id=1, text="quiet")
        await client.send(one.post(call))
        told = await told_by(client)
        assert {message["params"]["progressToken"] for message in told if "method" in message} == {"same"}
        assert [message.get("method") for message in await told_by(quiet)] == [None]
        await other.delete()
        assert await standing.rest() == []


@sides
@pytest.mark.parametrize("revision", [R3, R4], ids=str)
async def test_batches_are_rejected_where_the_revision_has_none(revision: Revision, side: str) -> None:
    async with placed(open_house().server, side) as place:
        session = await OpenSession.open(place, revision)
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answer = await session.say([ping, ping])
        assert (answer.status, answer.code) == (400, -32600)
        client = await place.connect()
        asked = client.message("tools/list")
        await client.send(client.post([asked], mcp_protocol_version=VERSION, mcp_method="tools/list"))
        assert (await client.answer()).status == 400
        assert (await session.ask("ping")).status == 200


@sides
async def test_the_protocol_version_header_decides(side: str) -> None:
    async with placed(open_house().server, side) as place:
        session = await OpenSession.open(place, R4)
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for version, status in (("1999-01-01", 400), ("nonsense", 400), (str(R4), 200), (None, 200)):
            client = await place.connect()
            await client.send(session.post(ping, mcp_protocol_version=version))
            assert (await client.answer()).status == status
        client = await place.connect()
        await client.send(client.modern("tools/list", headers={"mcp_protocol_version": str(R4)}))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32020)
        unknown = {f"{META}protocolVersion": "2099-01-01"}
        client = await place.connect()
        await client.send(client.modern("tools/list", headers={"mcp_protocol_version": "2099-01-01"}, meta=unknown))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32022)
        assert VERSION in answer.json["error"]["data"]["supported"]


@sides
async def test_a_modern_client_that_closes_its_stream_cancels_its_call_alone(side: str) -> None:
    stage = drawn()
    house = stage.house
    async with placed(stage.server, side) as place:
        leaving, staying = await place.connect(), await place.connect()
        for client, name in ((leaving, "left"), (staying, "stayed")):
            token = {"progressToken": name}
            await client.send(client.modern("tools/call", name="march", arguments={"name": name}, meta=token))
            stream = await client.stream_of()
            assert (await stream.message())["params"]["progressToken"] == name
        await house.wait_started("left", "stayed")
        await leaving.aclose()
        await house.wait_cut("left")
        assert "stayed" not in house.cut
        house.gates["stayed"].set()
        assert (await stream.message())["result"]["content"][0]["text"] == "done"


@sides
async def test_a_legacy_client_that_loses_its_stream_cancels_nothing(side: str) -> None:
    house = open_house()
    async with placed(house.server, side) as place:
        session = await OpenSession.open(place, R4)
        client = await session.begin("work", id=1, name="kept")
        await house.wait_started("kept")
        await client.aclose()
        assert (await session.ask("ping")).status == 200
        assert house.cut == {}
        house.gates["kept"].set()


@sides
async def test_the_log_level_is_that_of_each_request(side: str) -> None:
    async with placed(drawn().server, side) as place:
        for level, expected in ((None, []), ("warning", ["warning", "error"]), ("debug", None), ("error", ["error"])):
            client = await place.connect()
            said = {} if level is None else {LOG: level}
            await client.send(client.modern("tools/call", name="speak", arguments={}, meta=said))
            told = [message["params"]["level"] for message in await told_by(client) if "method" in message]
            assert told == (["debug", "info", "warning", "error"] if expected is None else expected)
        client = await place.connect()
        await client.send(client.modern("tools/call", name="speak", arguments={}, meta={LOG: "loud"}))
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, -32602)


@sides
@pytest.mark.parametrize("token", ["text", 7, 0, ""])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_progress_rises_has_its_token_and_ends_with_the_answer(side: str, token: Any, era: str) -> None:
    async with placed(drawn().server, side) as place:
        client = await place.connect()
        params: Json = {"name": "climb", "arguments": {"steps": 4}}
        if era == "modern":
            await client.send(client.modern("tools/call", meta={"progressToken": token}, id="x", **params))
        else:
            session = await OpenSession.open(place, R4)
            call = session.request("tools/call", id="x", **params, _meta={"progressToken": token})
            await client.send(session.post(call))
        *reports, answer = await told_by(client)
        assert answer["id"] == "x"
        assert "result" in answer
        assert reports
        values = [one["params"]["progress"] for one in reports]
        assert values == sorted(set(values))
        assert all(one["params"]["progressToken"] == token for one in reports)
        assert all(type(one["params"]["progressToken"]) is type(token) for one in reports)
        quiet = await place.connect()
        assert (await quiet.call("climb", steps=2)).result  # none without a token: the answer is JSON


@sides
async def test_modern_requests_need_no_session_and_get_none(side: str) -> None:
    async with placed(open_house().server, side) as place:
        for number in range(3):  # each on a connection of its own, none of which agreed on anything
            client = await place.connect()
            await client.send(client.modern("tools/call", name="echo", arguments={"text": str(number)}))
            answer = await client.answer()
            assert answer.result["content"][0]["text"] == str(number)
            assert "mcp-session-id" not in answer.headers
        client = await place.connect()
        await client.send(client.modern("tools/list", headers={"mcp_session_id": "made-up"}))
        assert (await client.answer()).status == 200
        ended = client.post(b"", mcp_protocol_version=VERSION).replace(b"POST", b"DELETE", 1)
        await client.send(ended)
        assert (await client.answer()).status == 405


@pytest.mark.parametrize("revision", HTTP_REVISIONS, ids=str)
async def test_a_legacy_client_and_server_tell_each_other_of_extensions(revision: Revision) -> None:
    moods = Extension("com.example/moods", {"loud": True}, revisions=frozenset(Revision))
    server = Server("moody", extensions=[moods])

    @server.tool
    async def seen(*, ctx: Context) -> str:
        declared = ctx.client_capabilities.extensions
        return ",".join(declared) if isinstance(declared, dict) else ""

    async with serving(server) as place:
        client = await place.connect()
        mine = {"extensions": {"com.example/moods": {}, "com.example/other": {"a": 1}}}
        await client.send(client.post(initialize(revision, capabilities=mine)))
        answer = await client.answer()
        assert answer.result["capabilities"]["extensions"] == {"com.example/moods": {"loud": True}}
        lines = {"mcp_session_id": answer.headers["mcp-session-id"]}
        await client.send(client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **lines))
        assert (await client.answer()).status == 202
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "seen", "arguments": {}}}
        await client.send(client.post(call, **lines))
        text = (await client.answer()).result["content"][0]["text"]
        assert set(text.split(",")) == {"com.example/moods", "com.example/other"}


# Clients.


async def test_a_client_opens_a_new_session_when_the_server_has_forgotten_the_first(autojump_clock: MockClock) -> None:
    opened: list[Json] = []
    forgotten: set[str] = set()

    async def handle(reply: Reply) -> None:
        body, session = reply.seen.body, reply.seen.headers.get("mcp-session-id")
        if reply.seen.rpc == "server/discover":
            await reply.whole(400)
        elif reply.seen.rpc == "initialize":
            assert session is None  # the old id is not sent with a new handshake
            opened.append(body)
            agreed = {"protocolVersion": "2025-11-25", "capabilities": EVERYTHING, "serverInfo": INFO}
            await reply.json(200, {"mcp-session-id": f"s-{len(opened)}"}, id=body["id"], result=agreed)
        elif session in forgotten:
            await reply.whole(404)
        elif reply.seen.method != "POST":
            await reply.whole(405)
        elif "id" in body:
            await reply.legacy(content=[])
        else:
            await reply.whole(202)

    async with web(handle) as here, connect(here.ways()) as client:
        await client.call("a")
        forgotten.add("s-1")
        with pytest.raises(SessionGone):
            await client.call("a")  # it may have been done: only its caller knows whether it may be done twice
        await client.call("a")
        assert len(opened) == 2
        assert opened[0]["params"]["capabilities"] == opened[1]["params"]["capabilities"]
    sent = [seen.headers.get("mcp-session-id") for seen in here.seen if seen.rpc == "tools/call"]
    assert sent == ["s-1", "s-1", "s-2"]


async def test_a_client_declares_its_extensions_to_a_legacy_server_and_sees_those_of_that(
    autojump_clock: MockClock,
) -> None:
    mine, theirs = (
        {"com.example/moods": {"loud": True}, "com.example/other": {}},
        {"com.example/moods": {"loud": False}},
    )

    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "initialize":
            assert reply.seen.body["params"]["capabilities"]["extensions"] == mine
            agreed = {"protocolVersion": "2025-11-25", "capabilities": {"extensions": theirs}, "serverInfo": INFO}
            await reply.json(200, {"mcp-session-id": "s"}, id=reply.seen.body["id"], result=agreed)
        elif reply.seen.method != "POST":
            await reply.whole(405)
        else:
            await reply.whole(400 if reply.seen.rpc == "server/discover" else 202)

    async with web(handle) as here, connect(here.ways(), extensions=mine) as client:
        assert client.server_capabilities.extensions == theirs
    assert "initialize" in [seen.rpc for seen in here.seen]


@pytest.mark.parametrize("status", [400, 404, 405, 406, 501])
async def test_a_client_falls_back_to_initialize_with_a_server_that_knows_no_other_way(
    status: int, autojump_clock: MockClock
) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "initialize":
            asked = reply.seen.body["params"]["protocolVersion"]
            assert Revision(asked) in LEGACY
            agreed = {"protocolVersion": "2025-06-18", "capabilities": EVERYTHING, "serverInfo": INFO}
            await reply.json(200, {"mcp-session-id": "s"}, id=reply.seen.body["id"], result=agreed)
        elif reply.seen.method != "POST":
            await reply.whole(405)
        elif reply.seen.headers.get("mcp-session-id") != "s":
            await reply.whole(status)
        elif "id" in reply.seen.body:
            await reply.legacy(tools=[])
        else:
            await reply.whole(202)

    async with web(handle) as here, connect(here.ways()) as client:
        assert client.revision == R3
        await client.tools()
    rpc = [seen.rpc for seen in here.seen if seen.method == "POST"]
    assert rpc == ["server/discover", "initialize", "notifications/initialized", "tools/list"]
    after = [seen for seen in here.seen if seen.rpc in ("notifications/initialized", "tools/list")]
    assert {seen.headers["mcp-protocol-version"] for seen in after} == {"2025-06-18"}
    assert not any(META in str(seen.body) for seen in after)


async def test_a_modern_client_says_everything_with_each_request_and_keeps_nothing_of_the_server(
    autojump_clock: MockClock,
) -> None:
    async def handle(reply: Reply) -> None:
        # A trap, which a modern client does not take up; and each request has to come on a connection of its own.
        told = {"mcp-session-id": "a trap", "connection": "close"}
        body = reply.seen.body
        results: Json = {
            "server/discover": {"supportedVersions": [VERSION], "capabilities": EVERYTHING, "serverInfo": INFO},
            "tools/list": {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": []},
        }
        hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        await reply.json(200, told, id=body["id"], result={**hints, **results[reply.seen.rpc]})

    async with web(handle) as here, connect(here.ways()) as client:
        await client.tools()
        for _ in range(3):
            await client.call("a")
    assert [seen.rpc for seen in here.seen].count("tools/call") == 3
    assert "initialize" not in {seen.rpc for seen in here.seen}
    for seen in here.seen:
        said = seen.body["params"]["_meta"]
        assert said[f"{META}protocolVersion"] == seen.headers["mcp-protocol-version"] == VERSION
        assert {f"{META}clientCapabilities", f"{META}clientInfo"} <= set(said)
        assert seen.headers["mcp-method"] == seen.rpc
        assert seen.headers.get("mcp-name") == seen.body["params"].get("name")
        assert "mcp-session-id" not in seen.headers
    ids = [seen.body["id"] for seen in here.seen]
    assert len(ids) == len(set(ids))
