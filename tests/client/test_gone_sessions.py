"""A client over Streamable HTTP whose legacy session is gone, or whose server does not answer as it should."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.client.conversation import Patience
from callboard.client import Client, connect
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4
from callboard.errors import CannotConnect, ConnectionLost, HttpRefused, RequestTimedOut, SessionGone
from callboard.transports.client.answer_stream import RETRY
from callboard.transports.client.http import TELL_TIME
from tests.client.stage import EVERYTHING, INFO
from tests.client.web import Handler, Reply, legacy, legacy_revisions, nothing_much, web


def forgetful(revision: Revision) -> tuple[Handler, list[str]]:
    """A server that has forgotten every session but the latest that it opened, if `forgotten` names it."""
    forgotten: list[str] = []
    opened = 0

    async def handle(reply: Reply) -> None:
        nonlocal opened
        body, session = reply.seen.body, reply.seen.headers.get("mcp-session-id")
        if reply.seen.rpc == "server/discover":
            await reply.whole(400)
        elif reply.seen.rpc == "initialize":
            assert session is None
            opened += 1
            result = {"protocolVersion": revision.value, "capabilities": EVERYTHING, "serverInfo": INFO}
            await reply.json(200, {"mcp-session-id": f"s-{opened}"}, id=body["id"], result=result)
        elif session in forgotten:
            await reply.whole(404, b"what session?", "text/plain")
        elif reply.seen.method == "GET":
            await reply.stream()
            with trio.move_on_after(10):
                await reply.wire.receive()
            await reply.end()
        elif body is not None and "id" in body:
            await reply.legacy(content=[])
        else:
            await reply.whole(202)

    return handle, forgotten


@legacy_revisions
@pytest.mark.requirement("L068")
async def test_a_session_that_is_gone_fails_its_call_by_name_and_the_next_one_has_a_new_session(
    revision: Revision, autojump_clock: MockClock
) -> None:
    handle, forgotten = forgetful(revision)
    async with web(handle) as here, connect(here.ways(), log_level="info") as client:
        await client.call("a")
        forgotten.append("s-1")
        with pytest.raises(SessionGone):
            await client.call("b")
        assert len(here.requests("initialize")) == 1
        await client.call("c")
        names = [seen.body["params"]["name"] for seen in here.requests("tools/call")]
        assert names == ["a", "b", "c"]
        assert here.requests("tools/call")[-1].headers["mcp-session-id"] == "s-2"
        assert len(here.requests("initialize")) == 2
        assert [seen.body["params"]["level"] for seen in here.requests("logging/setLevel")] == ["info"] * 2


async def test_calls_at_once_open_one_new_session_between_them(autojump_clock: MockClock) -> None:
    handle, forgotten = forgetful(R4)
    outcomes: list[str] = []
    async with web(handle) as here, connect(here.ways()) as client:

        async def call() -> None:
            try:
                await client.call("x")
                outcomes.append("fine")
            except SessionGone:
                outcomes.append("gone")

        for expected in ("gone", "fine"):
            forgotten[:] = ["s-1"]
            outcomes.clear()
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(call)
            assert outcomes == [expected] * 5
        assert len(here.requests("initialize")) == 2


async def test_subscriptions_and_the_stream_are_taken_along_into_the_new_session(autojump_clock: MockClock) -> None:
    handle, forgotten = forgetful(R4)
    async with web(handle) as here, connect(here.ways()) as client, client.listen(resources=["x://a"]):
        forgotten.append("s-1")
        await trio.sleep(60)  # nobody calls: the stream alone finds out
        assert [seen.headers["mcp-session-id"] for seen in here.requests("resources/subscribe")] == ["s-1", "s-2"]
        assert [seen.headers["mcp-session-id"] for seen in here.seen if seen.method == "GET"][-1] == "s-2"


async def test_a_session_that_cannot_be_opened_anew_is_said_so_and_tried_again_by_the_next_call(
    autojump_clock: MockClock,
) -> None:
    handle, forgotten = forgetful(R4)
    is_broken = False

    async def moody(reply: Reply) -> None:
        if is_broken and reply.seen.rpc == "initialize":
            await reply.whole(503, b"come back later", "text/plain")
        else:
            await handle(reply)

    async with web(moody) as here, connect(here.ways()) as client:
        forgotten.append("s-1")
        with pytest.raises(SessionGone):
            await client.call("x")
        is_broken = True
        with pytest.raises((HttpRefused, CannotConnect)):
            await client.call("x")
        is_broken = False
        await client.call("x")
        assert here.requests("tools/call")[-1].headers["mcp-session-id"] == "s-2"


async def test_to_open_a_session_anew_is_part_of_the_time_that_a_call_has(autojump_clock: MockClock) -> None:
    handle, forgotten = forgetful(R4)
    is_hung = False

    async def moody(reply: Reply) -> None:
        if is_hung and reply.seen.rpc == "initialize":
            await trio.sleep_forever()
        await handle(reply)

    async with web(moody) as here, connect(here.ways()) as client:
        forgotten.append("s-1")
        with pytest.raises(SessionGone):
            await client.call("x")
        is_hung, before = True, trio.current_time()
        with pytest.raises(RequestTimedOut):
            await client.call("x", patience=Patience(timeout=2))
        assert trio.current_time() - before == 2
        is_hung = False
        await client.call("x")
        assert here.requests("tools/call")[-1].headers["mcp-session-id"] == "s-2"


async def test_leaving_while_the_server_is_away_ends_in_bounded_time(autojump_clock: MockClock) -> None:
    async with web(legacy(nothing_much, R4)) as here:
        async with connect(here.ways()) as client:
            await client.call("x")
            await trio.sleep(100)  # no connection is kept for so long
            here.is_down = True
            before = trio.current_time()
        assert trio.current_time() - before <= 2


# A server that goes on answering, and one that does not.


async def test_a_server_that_never_takes_in_the_end_of_the_handshake_is_no_server(autojump_clock: MockClock) -> None:
    answers = legacy(nothing_much, R4)

    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "notifications/initialized":
            await trio.sleep(10_000)
        await answers(reply)

    async with web(handle) as here:
        with pytest.raises(CannotConnect):
            async with connect(here.ways()):
                pass
        assert trio.current_time() <= TELL_TIME + 5


async def test_an_answer_that_a_server_does_not_take_in_is_given_up(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "tools/call":
            await reply.stream()
            await reply.event({"id": "q", "method": "roots/list"})
            await trio.sleep(TELL_TIME + 10)
            await reply.event({"id": reply.seen.body["id"], "result": {"content": []}})
            await reply.end()
        elif reply.seen.method == "POST" and "result" in reply.seen.body:
            await trio.sleep(10_000)
        else:
            await nothing_much(reply)

    async with web(legacy(handle, R4)) as here, connect(here.ways(), roots=["file:///a"]) as client:
        await client.call("x")
        assert client._conversation.answering._begun == {}


async def test_a_call_that_waits_for_its_turn_is_of_the_session_in_which_it_was_made(autojump_clock: MockClock) -> None:
    handle, forgotten = forgetful(R4)
    outcomes: list[str] = []
    async with web(handle) as here:
        ways = here.ways()
        async with connect(ways) as client, trio.open_nursery() as nursery:
            link: Any = client._conversation.link
            kept = [await link.pool.take() for _ in range(link.pool.most - 2)]  # one is left, and the stream has one

            async def call() -> None:
                try:
                    await client.call("x")
                except SessionGone:
                    outcomes.append("gone")

            forgotten.append("s-1")
            for _ in range(3):
                nursery.start_soon(call)
            await wait_all_tasks_blocked()
            for channel in kept:
                link.pool.give_back(channel, is_done=False)
    assert outcomes == ["gone"] * 3


async def test_a_call_outside_of_the_block_does_not_outlive_it(autojump_clock: MockClock) -> None:
    failures: list[Exception] = []

    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "tools/call":
            await reply.stream()
            await reply.event(None, "e-0")
            await trio.sleep(10_000)
        else:
            await nothing_much(reply)

    async def call(client: Client) -> None:
        try:
            await client.call("x")
        except ConnectionLost as error:
            failures.append(error)

    async with web(legacy(handle, R4)) as here, trio.open_nursery() as nursery:
        async with connect(here.ways()) as client:
            nursery.start_soon(call, client)
            await wait_all_tasks_blocked()
        before, connections = trio.current_time(), here.connections
        await wait_all_tasks_blocked()
        await call(client)
        assert len(failures) == 2
        assert (trio.current_time() - before <= RETRY, here.connections) == (True, connections)


async def test_whoever_listens_hears_that_the_server_is_gone_and_a_later_call_finds_the_next_one(
    autojump_clock: MockClock,
) -> None:
    handle, forgotten = forgetful(R4)
    async with web(handle) as here, connect(here.ways()) as client:
        async with client.listen(resources=["x://a"]) as changes:
            here.die()
            with pytest.raises(ConnectionLost, match="connection lost"), trio.fail_after(60):
                await anext(changes)
        here.is_down = False
        forgotten.append("s-1")
        async with client.listen(resources=["x://b"]):
            await client.call("x")
        subscribed = here.requests("resources/subscribe")
        told = {(seen.headers["mcp-session-id"], seen.body["params"]["uri"]) for seen in subscribed}
        assert told == {("s-1", "x://a"), ("s-2", "x://b")}


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
async def test_an_answer_that_is_cut_off_is_no_answer_whatever_was_to_follow(
    connection: str, autojump_clock: MockClock
) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc != "tools/call":
            await nothing_much(reply)
            return
        headers = {"content-type": "application/json", "transfer-encoding": "chunked", "connection": connection}
        await reply.begin(200, headers)
        await reply.piece(b'{"jsonrpc": "2.0", "id"')
        reply.wire.outgoing.end()  # as a server hangs up that has crashed
        await trio.sleep(1)

    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client:
        with pytest.raises(ConnectionLost):
            await client.call("x")
