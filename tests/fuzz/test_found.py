"""What the fuzz found and no trial had: the smallest case of each."""

from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from h2.config import H2Configuration
from h2.connection import H2Connection
from structlog.testing import capture_logs

from callboard.broker import Broker
from callboard.codecs.revisions.revision import R3
from callboard.testing import connect
from callboard.transports.limits import Settings
from callboard.transports.memory import memory_pair
from tests.broker.back import Back
from tests.broker.front import backend
from tests.fuzz.doors import HOST, Doors, opened
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import initialize
from tests.transports.server.http.stage import Client, mirror


async def legacy_call(doors: Doors, client: Client, tool: str, **arguments: Any) -> dict[str, str | None]:
    """Open a session and call a tool. Returns the headers of the session."""
    await client.send(client.post(initialize(R3)))
    session = (await client.answer()).headers["mcp-session-id"]
    about: dict[str, str | None] = {"mcp_session_id": session, "mcp_protocol_version": R3.value}
    await client.send(client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **about))
    await client.answer()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    await client.send(client.post(call, **about))
    return about


async def test_a_legacy_call_that_takes_too_long_holds_nothing_when_its_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for leaves in (True, False):
        async with opened(open_house().server, Settings()) as doors:
            client = doors.client()
            await legacy_call(doors, client, "errand", name="shut")
            await trio.sleep(1)
            if leaves:
                await client.aclose()
            await trio.sleep(601)
            assert doors.host.in_flight.total == 0
            await trio.sleep(1800)
            assert not any(doors.held.values()), doors.held
            await client.aclose()


async def test_a_request_over_http_2_ends_with_a_connection_that_breaks(autojump_clock: trio.testing.MockClock) -> None:
    async with opened(open_house().server, Settings()) as doors:
        wire = doors.wire("asgi")
        mine = H2Connection(H2Configuration(client_side=True))
        mine.initiate_connection()
        listen = Client.message(doors.client(), "subscriptions/listen", notifications={"toolsListChanged": True})
        usual = {"content_type": "application/json", "accept": "application/json, text/event-stream"}
        named = (usual | mirror("subscriptions/listen", {})).items()
        head = [(":method", "POST"), (":path", "/mcp"), (":scheme", "http"), (":authority", HOST)]
        mine.send_headers(1, head + [(name.replace("_", "-"), value) for name, value in named if value is not None])
        mine.send_data(1, msgspec.json.encode(listen), end_stream=True)
        await wire.send(mine.data_to_send())
        await trio.sleep(1)
        assert doors.host.in_flight.total == 1
        wire.close()  # with what the server said unread, which is a reset
        await trio.sleep(200)
        assert not any(doors.held.values()), doors.held


async def test_an_answer_that_cannot_be_read_fails_its_question_and_touches_no_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connect(open_house().server, R3) as client:
        call = await client.begin("tools/call", name="folders", arguments={})
        question = await client.hear()
        assert question["method"] == "roots/list"
        waiting = await client.begin("tools/call", name="errand", arguments={"name": "shut"})
        for named in (question["id"], waiting):
            await client.connection.send(msgspec.json.encode({"jsonrpc": "2.0", "id": named, "result": 5}))
        answer = await client.hear()
        assert answer["id"] == call
        assert answer["result"]["isError"]
        assert trio.current_time() < 1
        with trio.move_on_after(10) as nothing_more:
            await client.hear()
        assert nothing_more.cancelled_caught


async def test_an_answer_that_cannot_be_read_is_refused_over_http_without_its_id(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(open_house().server, Settings()) as doors:
        client = doors.client()
        about = await legacy_call(doors, client, "echo", text="x")
        await client.answer()
        await client.send(client.post({"jsonrpc": "2.0", "id": 1, "result": 5}, **about))
        answer = await client.answer()
        assert answer.status == 400
        assert "id" not in answer.json
        await client.aclose()


async def test_a_backend_that_is_stopped_as_its_connection_breaks_has_not_crashed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with capture_logs() as logs:
        for turns in range(10):  # in one of them the one has just happened, and the other is about to
            back = Back(holds={"tools/list"})
            broker = Broker([backend(back.ways, "odd")], pre_warm=0)
            async with broker.host() as host:
                line, _ = await back.hear("tools/list")
                line.hang_up()
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                await host.root.supervisor_of("backends").address.stop()
    assert [line for line in logs if line["event"] == "actor_crashed"] == []


async def test_sending_after_one_hung_up_oneself_is_as_if_the_other_had() -> None:
    near, _ = memory_pair()
    near.close()
    with pytest.raises(trio.BrokenResourceError, match="closed locally"):
        await near.send(b"x")
