"""A client over Streamable HTTP of the legacy era: sessions, streams that are resumed, and sessions that are gone."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.client.conversation import TIMEOUT, Patience
from callboard.client import connect
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R2, R3, R4
from callboard.errors import ConnectionLost, RequestTimedOut
from callboard.transports.client.answer_stream import RETRY
from callboard.transports.client.http import RESUMPTIONS
from callboard.transports.client.pool import MAX_CHANNELS
from tests.client.web import Handler, Reply, legacy, legacy_revisions, nothing_much, web


@legacy_revisions
@pytest.mark.requirement("L027", "L042", "L043", "L044", "L054", "L065", "L069", "L070", "L064")
async def test_the_session_and_the_revision_go_with_every_request_after_the_handshake(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with web(legacy(nothing_much, revision)) as here:
        async with connect(here.ways()) as client:
            await client.call("x")
            await wait_all_tasks_blocked()
        assert "s-1" not in repr(client)
    discover, initialize, *rest = here.seen
    assert "mcp-session-id" not in discover.headers
    assert "mcp-session-id" not in initialize.headers
    assert "mcp-protocol-version" not in initialize.headers
    assert {seen.method for seen in rest} == {"POST", "GET", "DELETE"}
    for seen in rest:
        assert seen.headers["mcp-session-id"] == "s-1"
        assert seen.headers.get("mcp-protocol-version") == (revision.value if revision >= R3 else None)
        if seen.method == "POST":
            assert isinstance(seen.body, dict)
            assert {kind.strip() for kind in seen.headers["accept"].split(",")} == {
                "application/json",
                "text/event-stream",
            }
        if seen.method == "GET":
            assert seen.headers["accept"] == "text/event-stream"
    assert here.seen[-1].method == "DELETE"


async def test_a_server_without_sessions_has_none_to_end(autojump_clock: MockClock) -> None:
    async with web(legacy(nothing_much, R4, session=None)) as here, connect(here.ways()) as client:
        await client.call("x")
    assert all("mcp-session-id" not in seen.headers and seen.method != "DELETE" for seen in here.seen)


@legacy_revisions
@pytest.mark.requirement("L048")
async def test_answers_come_as_json_or_in_a_stream_and_questions_in_between_are_answered_by_posts(
    revision: Revision, autojump_clock: MockClock
) -> None:
    answered = trio.Event()

    async def handle(reply: Reply) -> None:
        body = reply.seen.body
        if reply.seen.rpc == "tools/call":
            await reply.stream()
            await reply.event({"id": "q", "method": "roots/list"})
            await answered.wait()
            await reply.event({"id": body["id"], "result": {"content": []}})
            await reply.end()
        elif body is not None and body.get("id") == "q":
            assert body["result"] == {"roots": [{"uri": "file:///here"}]}
            await reply.whole(202)
            answered.set()
        else:
            await nothing_much(reply)

    async with web(legacy(handle, revision)) as here, connect(here.ways(), roots=["file:///here"]) as client:
        await client.call("x")


async def test_any_number_of_calls_may_wait_for_answers_of_ours(autojump_clock: MockClock) -> None:
    answered: dict[str, trio.Event] = {}

    async def handle(reply: Reply) -> None:
        body = reply.seen.body
        if reply.seen.rpc == "tools/call":
            question = f"q-{body['id']}"
            answered[question] = trio.Event()
            await reply.stream()
            await reply.event({"id": question, "method": "roots/list"})
            await answered[question].wait()
            await reply.event({"id": body["id"], "result": {"content": []}})
            await reply.end()
        elif body is not None and body.get("id") in answered:
            await reply.whole(202)
            answered[body["id"]].set()
        else:
            await nothing_much(reply)

    async with web(legacy(handle, R4)) as here, connect(here.ways(), roots=["file:///here"]) as client:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(MAX_CHANNELS + 1):
                nursery.start_soon(client.call("x")._run)
        assert trio.current_time() - began < TIMEOUT
    assert len(answered) == MAX_CHANNELS + 1


async def test_a_batch_is_read_as_what_is_in_it(autojump_clock: MockClock) -> None:
    """2025-03-26 lets a server put its messages together."""

    async def handle(reply: Reply) -> None:
        if reply.seen.rpc != "tools/call":
            await nothing_much(reply)
            return
        note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"one"}}'
        answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % reply.seen.body["id"]
        await reply.whole(200, b"[" + note + b"," + answer + b"]")

    async with web(legacy(handle, R2)) as here, connect(here.ways()) as client:
        assert (await client.call("x")).content == []


# Streams that end too soon.


def in_pieces(cut: Callable[[Reply], Any], retry: int | None = None) -> tuple[Handler, list[str]]:
    """A call whose stream breaks off after each of three events; and the ids with which it was resumed."""
    resumed: list[str] = []
    state: dict[str, Any] = {}

    async def handle(reply: Reply) -> None:
        last = reply.seen.headers.get("last-event-id")
        if reply.seen.rpc == "tools/call":
            state["id"] = reply.seen.body["id"]
            await reply.stream()
            await reply.event(None, "e-0", **({} if retry is None else {"retry": retry}))
            await cut(reply)
        elif reply.seen.method == "GET" and last is not None:
            resumed.append(last)
            await reply.stream()
            number = int(last.removeprefix("e-")) + 1
            if number < 3:
                note = {"method": "notifications/message", "params": {"level": "info", "data": number}}
                await reply.event(note, f"e-{number}")
                await cut(reply)
            else:
                await reply.event({"id": state["id"], "result": {"content": []}}, "e-3")
                await reply.end()
        else:
            await nothing_much(reply)

    return handle, resumed


async def end(reply: Reply) -> None:
    await reply.end()


async def cut(reply: Reply) -> None:
    reply.cut()
    await trio.lowlevel.checkpoint()


async def cut_in_the_middle(reply: Reply) -> None:
    """What was begun is no part of what follows."""
    await reply.piece(b'id: e-99\ndata: {"jsonrpc": "2.0", "method": "notifica')
    reply.cut()


@legacy_revisions
@pytest.mark.parametrize("how", [end, cut, cut_in_the_middle])
@pytest.mark.requirement("L061", "L052")
async def test_a_stream_that_ends_or_is_cut_is_resumed_from_where_it_was_and_the_call_not_made_again(
    revision: Revision, how: Callable[[Reply], Any], autojump_clock: MockClock
) -> None:
    heard: list[Any] = []
    handle, resumed = in_pieces(how)
    async with web(legacy(handle, revision)) as here:
        async with connect(here.ways(), on_log=lambda said: heard.append(said.data)) as client:
            assert (await client.call("x")).content == []
        assert resumed == ["e-0", "e-1", "e-2"]
        assert heard == [1, 2]
        assert len(here.requests("tools/call")) == 1
        assert here.requests("notifications/cancelled") == []


@pytest.mark.requirement("L051")
@pytest.mark.parametrize(("retry", "pause"), [(None, RETRY), (250, 0.25), (5000, 5.0), (0, 0.0)])
async def test_the_time_before_coming_back_is_the_server_s_to_say(
    retry: int | None, pause: float, autojump_clock: MockClock
) -> None:
    handle, resumed = in_pieces(end, retry)
    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client:
        await client.call("x")
        gets = [seen.at for seen in here.seen if "last-event-id" in seen.headers]
        assert [
            after - before for before, after in zip([here.requests("tools/call")[0].at, *gets], gets, strict=False)
        ] == [pytest.approx(pause)] * 3
    assert len(resumed) == 3


async def test_a_stream_that_brings_nothing_is_given_up_after_a_while(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "tools/call" or "last-event-id" in reply.seen.headers:
            await reply.stream()
            await reply.event(None, "e-0", retry=0)
            await reply.end()
        else:
            await nothing_much(reply)

    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client:
        with pytest.raises(ConnectionLost, match="cannot be resumed"):
            await client.call("x", patience=Patience(timeout=1000, cap=1000))
        assert len([seen for seen in here.seen if "last-event-id" in seen.headers]) == RESUMPTIONS


async def test_a_call_is_resumed_at_a_server_that_was_not_ready_for_it_at_first(autojump_clock: MockClock) -> None:
    resumed = 0

    async def handle(reply: Reply) -> None:
        nonlocal resumed
        if reply.seen.rpc == "tools/call":
            await reply.stream()
            await reply.event(None, "e-1")
            await reply.end()
        elif "last-event-id" in reply.seen.headers:
            resumed += 1
            if resumed < 3:
                await reply.whole(503, b"starting", "text/plain")
                return
            await reply.stream()
            await reply.event({"id": here.requests("tools/call")[0].body["id"], "result": {"content": []}}, "e-2")
            await reply.end()
        else:
            await nothing_much(reply)

    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client:
        await client.call("x")
        assert len(here.requests("tools/call")) == 1


async def test_a_stream_without_ids_cannot_be_resumed(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "tools/call":
            await reply.stream()
            await reply.event({"method": "notifications/message", "params": {"level": "info", "data": 1}})
            reply.cut()
        else:
            await nothing_much(reply)

    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client:
        with pytest.raises(ConnectionLost):
            await client.call("x")
        assert not [seen for seen in here.seen if "last-event-id" in seen.headers]


async def test_a_server_that_is_away_for_a_moment_finds_its_client_again(autojump_clock: MockClock) -> None:
    handle, resumed = in_pieces(cut, 1000)
    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call("x")._run)
        await wait_all_tasks_blocked()
        here.is_down = True
        await trio.sleep(3)
        here.is_down = False
    assert resumed == ["e-0", "e-1", "e-2"]


async def test_a_call_that_is_given_up_is_taken_back_in_so_many_words(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "tools/call":
            await reply.stream()
            await trio.sleep(1000)
        else:
            await nothing_much(reply)

    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client:
        with pytest.raises(RequestTimedOut):
            await client.call("x", patience=Patience(timeout=5))
        [taken] = here.requests("notifications/cancelled")
        assert taken.body["params"]["requestId"] == here.requests("tools/call")[0].body["id"]


# What comes unasked.


async def test_the_stream_for_what_comes_unasked_is_opened_again_whenever_it_ends(autojump_clock: MockClock) -> None:
    subscribed = trio.Event()

    async def handle(reply: Reply) -> None:
        if reply.seen.method != "GET":
            await nothing_much(reply)
            subscribed.set()
            return
        await subscribed.wait()
        number = int(reply.seen.headers.get("last-event-id", "-1")) + 1
        await reply.stream()
        uri = {"uri": f"x://a/{number}"}
        await reply.event({"method": "notifications/resources/updated", "params": uri}, str(number), retry=2000)
        if number == 1:
            reply.cut()
        elif number < 3:
            await reply.end()
        else:
            await trio.sleep(1000)

    async with (
        web(legacy(handle, R4)) as here,
        connect(here.ways()) as client,
        client.listen(resources=["x://a"]) as changes,
    ):
        heard = [(await anext(changes)).uri for _ in range(4)]  # type: ignore[union-attr]  # nothing else was asked for
    assert heard == [f"x://a/{number}" for number in range(4)]


@pytest.mark.parametrize("status", [409, 429, 502, 503, 504])
async def test_a_server_that_wants_no_stream_just_now_is_asked_again(status: int, autojump_clock: MockClock) -> None:
    gets = 0

    async def handle(reply: Reply) -> None:
        nonlocal gets
        if reply.seen.method != "GET":
            await nothing_much(reply)
            return
        gets += 1
        if gets in (2, 3):
            await reply.whole(status, b"not now", "text/plain")
            return
        await reply.stream()
        await reply.event({"method": "notifications/resources/updated", "params": {"uri": f"x://a/{gets}"}}, str(gets))
        await reply.end()

    async with (
        web(legacy(handle, R4)) as here,
        connect(here.ways()) as client,
        client.listen(resources=["x://a"]) as changes,
    ):
        with trio.fail_after(60):
            while "x://a/4" not in str(await anext(changes)):
                pass


async def test_a_server_that_fails_every_stream_is_asked_less_and_less_often(autojump_clock: MockClock) -> None:
    async def handle(reply: Reply) -> None:
        if reply.seen.method == "GET":
            await reply.stream()
            reply.cut()
        else:
            await nothing_much(reply)

    async with web(legacy(handle, R4)) as here, connect(here.ways()) as client:
        await trio.sleep(600)
        assert 10 < len([seen for seen in here.seen if seen.method == "GET"]) < 40
        await client.call("x")


@legacy_revisions
async def test_leaving_does_not_wait_until_the_stream_of_a_session_would_be_opened_again(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async def play(reply: Reply) -> None:
        await reply.stream()
        await reply.end()

    async with web(legacy(play, revision)) as here:
        async with connect(here.ways(), revision=revision):
            pass
        assert [seen.method for seen in here.seen].count("GET") == 1
        assert trio.current_time() == 0
