"""Legacy sessions over HTTP, in each revision that has them: how they begin, who finds them, and how they end."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Revision
from callboard.actors.server.drain import drain
from callboard.codecs.revisions import LEGACY
from callboard.transports.limits import Settings
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import HTTP_REVISIONS, OpenSession, initialize
from tests.transports.server.http.stage import Json, Place, request, serving, settle

EACH = pytest.mark.parametrize("revision", HTTP_REVISIONS, ids=str)
VERSIONED = pytest.mark.parametrize("revision", HTTP_REVISIONS[1:], ids=str)
LAST = Revision.V2025_11_25


FORGETFUL = Settings(session_idle=1, write_time=1)  # a busy machine may take a second for a call


def sessions(place: Place) -> int:
    """How many there are, as the endpoint and as the tree see it."""
    number = len(place.endpoint.legacy)
    assert place.host.root.supervisor_of("sessions").child_count == number
    return number


@EACH
@pytest.mark.requirement("L047")
async def test_a_session_begins_with_initialize_and_is_found_by_its_id(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        assert session.agreed["protocolVersion"] == revision
        answer = await session.call("echo", text="hello")
        assert (answer.status, answer.result["content"][0]["text"]) == (200, "hello")
        assert answer.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in answer.headers
        assert sessions(place) == 1


@EACH
@pytest.mark.requirement("L045")
async def test_notifications_and_responses_are_accepted_without_a_word(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        for message in (
            {"method": "notifications/initialized"},
            {"method": "notifications/roots/list_changed"},
            {"method": "notifications/cancelled", "params": {"requestId": 99}},
            {"method": "notifications/anything"},
            {"id": 99, "result": {}},
            {"id": 99, "error": {"code": -1, "message": "no"}},
        ):
            answer = await session.say(message)
            assert (answer.status, answer.body) == (202, b"")
            assert "content-type" not in answer.headers


@pytest.mark.finding("newcomer-H6")
async def test_a_browser_that_opens_the_endpoint_is_told_what_it_is() -> None:
    async with serving(open_house().server) as place:
        host = (await place.connect()).host.decode()
        answer = await place.ask(request("GET", "/mcp", host=host, accept="text/html,*/*;q=0.8"))
        assert answer.status == 400
        assert "an endpoint for MCP clients" in str(answer.json)


@EACH
@pytest.mark.requirement("L046")
@pytest.mark.parametrize(
    "body",
    [b"", b"hello", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"2.0","method":1}', b'{"jsonrpc":"2.0","id":true,"result":{}}'],
)
async def test_what_cannot_be_accepted_is_an_error_of_http(revision: Revision, body: bytes) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        await session.client.send(session.post(body))
        answer = await session.client.answer()
        assert answer.status == 400
        assert "id" not in answer.json
        assert (await session.call("echo", text="x")).result


@EACH
async def test_errors_of_requests_are_answers(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        for method, code in (("nonsense", -32601), ("sampling/createMessage", -32601), ("server/discover", -32601)):
            answer = await session.ask(method)
            assert (answer.status, answer.code) == (200, code)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize"},
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 7}},
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
    ],
)
async def test_a_handshake_that_fails_opens_nothing(message: Json) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.post(message))
        answer = await client.answer()
        assert (answer.code, answer.json["id"]) == (-32602, 1)
        assert "mcp-session-id" not in answer.headers
        await settle()
        assert sessions(place) == 0


@pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", "x"])
async def test_a_version_that_is_not_known_gets_the_newest_that_is(version: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.post(initialize(version)))
        assert (await client.answer()).result["protocolVersion"] == max(LEGACY)


async def test_a_second_handshake_is_a_second_session() -> None:
    async with serving(open_house().server) as place:
        first = await OpenSession.open(place, LAST)
        await first.client.send(first.post(initialize(LAST)))
        second = (await first.client.answer()).headers["mcp-session-id"]
        assert second != first.id
        assert sessions(place) == 2
        assert (await first.call("echo", text="x")).result


# Versions.


@EACH
@pytest.mark.requirement("L071")
async def test_a_version_header_may_be_missing_where_the_session_tells(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        echo = session.request("tools/call", name="echo", arguments={"text": "x"})
        assert (await place.ask(session.post(echo, mcp_protocol_version=None))).result


@EACH
@pytest.mark.requirement("L072")
@pytest.mark.parametrize("version", ["1999-01-01", "x", "", "2025-11-25, 2025-11-25", "2025-11-25x", "\xff"])
async def test_a_version_header_that_is_none_is_refused(revision: Revision, version: str) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        for data in session.every(mcp_protocol_version=version):
            answer = await place.ask(data)
            assert (answer.status, answer.code) == (400, -32600)
        assert sessions(place) == 1


async def test_a_version_header_that_stands_twice_must_be_good_twice() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, LAST)
        for versions, status in ((("2025-11-25", "1999-01-01"), 400), (("1999-01-01", "2025-11-25"), 400)):
            data = session.post(session.request("ping"), mcp_protocol_version=versions[0])
            line = f"MCP-Protocol-Version: {versions[1]}\r\n".encode()
            data = data.replace(b"mcp-session-id", line + b"mcp-session-id")
            assert (await place.ask(data)).status == status


async def test_a_version_that_this_server_does_not_speak_is_refused() -> None:
    async with serving(open_house(revisions=frozenset({LAST})).server) as place:
        session = await OpenSession.open(place, LAST)
        for data in session.every(mcp_protocol_version="2025-06-18"):
            assert (await place.ask(data)).status == 400


# Batches.


@pytest.mark.parametrize("revision", HTTP_REVISIONS[1:], ids=str)
async def test_a_batch_is_refused_where_there_are_none(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        answer = await session.say([session.request("ping")])
        assert (answer.status, answer.code) == (400, -32600)
        assert "id" not in answer.json


async def test_a_batch_without_a_session_is_refused() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        for version in (None, "2026-07-28", "2025-03-26"):
            await client.send(client.post([initialize("2025-03-26")], mcp_protocol_version=version))
            answer = await client.answer()
            assert (answer.status, answer.code) == (400, -32600)


OLD = Revision.V2025_03_26


async def test_a_batch_is_answered_as_one() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, OLD)
        echo = {"name": "echo", "arguments": {"text": "x"}}
        answer = await session.say(
            [
                session.request("ping", id="a"),
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}},
                session.request("tools/call", id="b", **echo),
                session.request("nonsense", id="c"),
                {"jsonrpc": "2.0", "id": 9, "result": {}},
            ]
        )
        assert answer.status == 200
        found = {reply["id"]: reply for reply in answer.replies}
        assert found.keys() == {"a", "b", "c"}
        assert "error" in found["c"]


async def test_a_batch_that_asks_nothing_is_accepted() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, OLD)
        told: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        answer = await session.say([told, told, {"jsonrpc": "2.0", "id": 9, "result": {}}])
        assert (answer.status, answer.body) == (202, b"")


@pytest.mark.parametrize(
    "batch", [[], [1, 2], [[]], [{"jsonrpc": "2.0"}], ["x", {"jsonrpc": "2.0", "id": 1, "method": "ping"}]]
)
async def test_members_that_are_no_messages_are_answered_one_by_one(batch: list[Json]) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, OLD)
        answer = await session.say(batch)
        assert len(answer.replies) == max(1, len(batch))
        assert {reply["error"]["code"] for reply in answer.replies if "error" in reply} == {-32600}
        assert (await session.call("echo", text="x")).result


async def test_initialize_may_not_be_part_of_a_batch() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, OLD)
        answer = await session.say([initialize(OLD, id="x")])
        assert [reply["error"]["code"] for reply in answer.replies] == [-32600]
        assert sessions(place) == 1


async def test_a_batch_streams_what_must_be_said_before_its_answers() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, OLD)
        chat = {"name": "chat", "arguments": {"words": ["a", "b"]}}
        client = await place.connect()
        await client.send(session.post([session.request("tools/call", **chat), session.request("ping")]))
        *said, last = await (await client.stream_of()).rest()
        assert [message["params"]["data"] for message in said] == ["a", "b"]
        assert [sorted(reply) for reply in last] == [["id", "jsonrpc", "result"]] * 2


# The end.


@EACH
async def test_delete_ends_a_session_and_all_that_goes_on_in_it(revision: Revision) -> None:
    house = open_house()
    async with serving(house.server) as place:
        session, other = [await OpenSession.open(place, revision) for _ in range(2)]
        listening = await session.listen()
        silent = await session.begin("work", name="silent")
        errand = await session.begin("errand", name="errand")
        talking = await session.streamed("chat", words=["a"], name="talking")
        await house.wait_started("silent", "talking", "errand")
        started = trio.current_time()
        assert (await session.delete()).status == 204
        assert trio.current_time() - started < 1
        for name in ("silent", "errand", "talking"):
            assert await house.wait_cut(name) - started < 1
        assert await listening.rest() == []
        assert [message["method"] for message in await talking.rest()] == ["notifications/message"]
        for client in (silent, errand):  # there is no answer, and that is said
            answer = await client.answer()
            assert (answer.status, answer.events) == (200, [])
        assert (await place.ask(session.post(session.request("ping")))).status == 404
        assert (await session.delete()).status == 404
        assert (await other.call("echo", text="x")).result
        await settle()
        assert sessions(place) == 1


async def _wait_forgotten(place: Place, clock: MockClock) -> None:
    """Have so much time pass that an idle session ends."""
    for _ in range(5):
        clock.jump(FORGETFUL.session_idle / 2)
        await wait_all_tasks_blocked()
    assert sessions(place) == 0


@EACH
async def test_a_session_that_nobody_uses_ends_by_itself(revision: Revision, mock_clock: MockClock) -> None:
    async with serving(open_house().server, FORGETFUL) as place:
        session = await OpenSession.open(place, revision)
        for _ in range(5):
            mock_clock.jump(FORGETFUL.session_idle * 0.8)
            await wait_all_tasks_blocked()
            assert (await session.call("echo", text="x")).result
        await _wait_forgotten(place, mock_clock)
        assert (await session.call("echo", text="x")).status == 404


@EACH
async def test_a_session_that_somebody_listens_to_is_used(revision: Revision, mock_clock: MockClock) -> None:
    house = open_house()
    async with serving(house.server, FORGETFUL) as place:
        session = await OpenSession.open(place, revision)
        stream = await session.listen()
        for _ in range(5):
            mock_clock.jump(FORGETFUL.session_idle / 2)
            await wait_all_tasks_blocked()
        assert sessions(place) == 1
        house.server.notify_changed("tools")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        await stream.client.aclose()
        await _wait_forgotten(place, mock_clock)


@pytest.mark.parametrize("tool", ["work", "errand", "chat"])
async def test_a_session_that_works_for_somebody_is_used(tool: str, mock_clock: MockClock) -> None:
    house = open_house()
    async with serving(house.server, FORGETFUL) as place:
        session = await OpenSession.open(place, LAST)
        arguments: Json = {"words": ["a"]} if tool == "chat" else {}
        client = await session.begin(tool, name="gate", **arguments)
        await house.wait_started("gate")
        for _ in range(5):
            mock_clock.jump(FORGETFUL.session_idle / 2)
            await wait_all_tasks_blocked()
        assert sessions(place) == 1
        house.gates["gate"].set()
        assert (await client.answer()).status == 200
        assert (await session.call("echo", text="x")).result


@pytest.mark.finding("faults-low-id-of-503")
async def test_one_session_too_many_is_told_to_come_back() -> None:
    async with serving(open_house().server, Settings(max_sessions=2, write_time=1)) as place:
        first, _ = [await OpenSession.open(place, LAST) for _ in range(2)]
        client = await place.connect()
        await client.send(client.post(initialize(LAST, id="mine")))
        answer = await client.answer()
        assert (answer.status, answer.code) == (503, -31003)
        assert answer.json["id"] == "mine"
        assert "retry-after" in answer.headers
        assert (await first.delete()).status == 204
        await OpenSession.open(place, LAST)


async def test_many_that_come_at_once_are_not_more_than_may_be() -> None:
    async with serving(open_house().server, Settings(max_sessions=3, write_time=1)) as place:
        clients = [await place.connect() for _ in range(10)]
        for client in clients:
            await client.send(client.post(initialize(LAST)))
        statuses = sorted([(await client.answer()).status for client in clients])
        assert statuses == [200] * 3 + [503] * 7


async def test_no_session_begins_when_the_end_has_begun() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, LAST)
        place.host.begin_drain()
        client = await place.connect()
        await client.send(client.post(initialize(LAST)))
        answer = await client.answer()
        assert (answer.status, answer.code) == (503, -31004)
        answer = await session.call("echo", text="x")
        assert (answer.status, answer.code) == (503, -31004)


async def test_in_the_end_everybody_in_a_session_is_told() -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, LAST)
        listening = await session.listen()
        client = await session.begin("work", name="gate", id="x")
        await house.wait_started("gate")
        await drain(place.host, edges=[place.edge.address], within=0.3, spread=0)
        answer = await client.answer()
        assert (answer.code, answer.json["id"]) == (-31004, "x")
        assert await listening.rest() == []


async def test_more_in_flight_than_a_session_may_have_is_429() -> None:
    house = open_house()
    async with serving(house.server) as place:
        place.host.most_in_flight = 2
        session = await OpenSession.open(place, LAST)
        for name in "ab":
            await session.begin("work", name=name)
        await house.wait_started("a", "b")
        answer = await session.call("work", name="never")
        assert (answer.status, answer.code) == (429, -31003)
        assert "retry-after" in answer.headers
        await session.delete()


@pytest.mark.parametrize("accept", ["application/json", "text/html", "text/event-stream;q=0"])
async def test_who_listens_must_take_streams(accept: str) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, LAST)
        assert (await place.ask(session.get(accept=accept))).status == 406


@pytest.mark.requirement("L038")
async def test_all_that_a_session_needs_has_one_address() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, LAST)
        await session.listen()
        for path in ("/sse", "/message", "/mcp/stream"):
            data = request("GET", path, host=session.client.host.decode(), mcp_session_id=session.id)
            assert (await place.ask(data)).status == 404
