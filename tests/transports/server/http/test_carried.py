"""Requests run in the task of the connection that brought them; while one waits, another task reads the connection."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from itertools import groupby
from typing import Any, cast

import attrs
import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Server, ToolError
from callboard.actors.server.request import run_noticing
from callboard.errors import INTERNAL_ERROR, BackendRefused
from callboard.transports.server.http.connection import IN_A_ROW
from callboard.transports.server.http.slow_requests import SOON
from tests.transports.server.http.stage import QUICK, Client, Json, Place, request, serving, settle


def company(log: list[str]) -> Server:
    server = Server("carried")

    @server.tool
    async def quick(text: str = "ok") -> str:
        return text

    @server.tool
    async def slow(seconds: float) -> str:
        log.append("begun")
        with trio.CancelScope():  # scopes of the handler's own, open while it waits
            try:
                await trio.sleep(seconds)
            finally:
                log.append("left")
        return "slept"

    @server.tool
    async def fails() -> str:
        raise ToolError("no luck")

    @server.tool
    async def data() -> dict[str, int]:
        return {"n": 1}

    return server


async def seen(log: list[str], word: str) -> None:
    while word not in log:
        await settle()


def actors(place: Place) -> int:
    return place.edge.supervisor_of("connections").child_count + place.host.root.supervisor_of("requests").child_count


async def test_what_never_waits_is_answered_by_the_connection_alone() -> None:
    async with serving(company([])) as place:
        client = await place.connect()
        assert (await client.call("quick", text="hä?")).result["content"] == [{"type": "text", "text": "hä?"}]
        assert (await client.call("data")).result["structuredContent"] == {"n": 1}
        assert (await client.call("fails")).result["isError"] is True
        assert (await client.call("quick", text=3)).result["isError"] is True
        assert actors(place) == 1  # the connection


async def test_a_client_that_leaves_cancels_what_waits_at_once() -> None:
    log: list[str] = []
    async with serving(company(log)) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="slow", arguments={"seconds": 1000}))
        await seen(log, "begun")
        began = trio.current_time()
        await client.aclose()
        await seen(log, "left")
        assert trio.current_time() - began < 0.5  # the promise is 50 ms; the machine is shared
        await settle()
        assert place.connections == 0


async def test_what_is_said_meanwhile_is_heard_afterwards_and_in_order() -> None:
    async with serving(company([])) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="slow", arguments={"seconds": 0.1}, id="first"))
        await settle()
        for number in range(3):
            await client.send(client.modern("tools/call", name="quick", arguments={}, id=number))
        ids = [(await client.answer()).json["id"] for _ in range(4)]
        assert ids == ["first", 0, 1, 2]


async def test_between_pipelined_requests_others_have_their_turns() -> None:
    log, server = list[str](), Server("pipelined")

    @server.tool
    async def quick() -> str:
        log.append("served")
        return "ok"

    async def count_turns() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            log.append("turn")

    async with serving(server) as place, trio.open_nursery() as nursery:
        client = await place.connect()
        await client.call("quick")
        nursery.start_soon(count_turns)
        await client.send(client.modern("tools/call", name="quick", arguments={}) * 20)
        for _ in range(20):
            assert (await client.answer()).result["content"][0]["text"] == "ok"
        nursery.cancel_scope.cancel()
    in_a_row = [len(list(group)) for what, group in groupby(log) if what == "served"]
    assert sum(in_a_row) == 21
    assert max(in_a_row) <= 2 * IN_A_ROW + 1  # the last of one turn and the first of the next may meet


async def test_nothing_more_is_served_for_a_client_that_is_gone() -> None:
    log: list[str] = []
    async with serving(company(log)) as place:
        client = await place.connect()
        slow = client.modern("tools/call", name="slow", arguments={"seconds": 1000})
        await client.send(slow * 5)
        await seen(log, "begun")
        await client.aclose()
        await seen(log, "left")
        await settle()
        assert log == ["begun", "left"]


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def test_only_a_long_wait_needs_a_task_that_listens_meanwhile(mock_clock: MockClock) -> None:
    log: list[str] = []
    async with serving(company(log)) as place:
        client = await place.connect()
        await client.call("quick")
        await wait_all_tasks_blocked()
        before, requests = tasks(), place.host.root.supervisor_of("requests")
        await client.send(client.modern("tools/call", name="slow", arguments={"seconds": 10 * SOON}))
        await seen(log, "begun")
        mock_clock.jump(SOON / 2)
        await wait_all_tasks_blocked()
        assert (tasks() - before, requests.child_count) == (0, 1)  # in the tree it is at once
        mock_clock.jump(2 * SOON)
        await wait_all_tasks_blocked()
        assert (tasks() - before, requests.child_count) == (1, 1)
        mock_clock.jump(10 * SOON)
        assert (await client.answer()).result["content"][0]["text"] == "slept"
        await wait_all_tasks_blocked()
        assert (tasks() - before, requests.child_count) == (0, 0)


async def test_many_waits_on_one_connection_leave_nothing_behind() -> None:
    async with serving(company([])) as place:
        client = await place.connect()
        for _ in range(20):
            assert (await client.call("slow", seconds=0.001)).result["content"][0]["text"] == "slept"
        await settle()
        assert actors(place) == 1


async def test_what_takes_longer_than_the_cap_is_answered_so_and_the_connection_goes_on() -> None:
    log: list[str] = []
    async with serving(company(log)) as place:
        place.host.cap = 0.1
        client = await place.connect()
        answer = await client.call("slow", seconds=1000)
        assert answer.code == -31002
        assert log == ["begun", "left"]
        assert (await client.call("quick")).result["content"][0]["text"] == "ok"


async def test_the_end_of_the_server_lets_a_request_finish() -> None:
    log: list[str] = []
    async with serving(company(log)) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="slow", arguments={"seconds": 0.2}))
        await seen(log, "begun")
        place.edge.address.begin_stop()
        answer = await client.answer()
        assert answer.result["content"][0]["text"] == "slept"
        assert await client.ended() == b""


# In a legacy session.


async def shake_hands(client: Client) -> dict[str, Any]:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    await client.send(client.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}))
    headers = {"mcp_session_id": (await client.answer()).headers["mcp-session-id"]}
    await client.send(client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers))
    assert (await client.answer()).status == 202
    return headers


def call(tool: str, request_id: int, **arguments: Any) -> Json:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


@asynccontextmanager
async def one_in_flight(seconds: float) -> AsyncIterator[tuple[Client, Client, dict[str, Any], list[str]]]:
    """A legacy session of two connections, the first of which has a call under way, and what that notes."""
    log: list[str] = []
    async with serving(company(log)) as place:
        client, other = await place.connect(), await place.connect()
        session = await shake_hands(client)
        await client.send(client.post(call("slow", 1, seconds=seconds), **session))
        await seen(log, "begun")
        yield client, other, session, log


async def test_a_legacy_client_that_leaves_cancels_nothing() -> None:
    async with one_in_flight(0.3) as (client, other, session, log):
        await client.aclose()
        await settle()
        assert log == ["begun"]
        await other.send(other.post(call("quick", 1), **session))
        assert (await other.answer()).code == -32600  # that id is in flight still
        await seen(log, "left")


async def test_a_cancelled_legacy_request_gets_an_empty_stream() -> None:
    async with one_in_flight(1000) as (client, other, session, log):
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        await other.send(other.post(cancel, **session))
        assert (await other.answer()).status == 202
        answer = await client.answer()
        assert (answer.status, answer.headers["content-type"], answer.body) == (200, "text/event-stream", b"")
        assert log == ["begun", "left"]
        await other.send(other.post(call("quick", 1), **session))
        assert (await other.answer()).result["content"][0]["text"] == "ok"  # the id is free again


async def test_the_end_of_a_session_ends_its_requests() -> None:
    async with one_in_flight(1000) as (client, other, session, log):
        await other.send(request("DELETE", "/mcp", host=other.host.decode(), **session))
        assert (await other.answer()).status == 204
        await seen(log, "left")
        answer = await client.answer()
        assert (answer.status, answer.headers["content-type"], answer.body) == (200, "text/event-stream", b"")


async def test_legacy_answers_have_the_shape_of_their_revision() -> None:
    async with serving(company([])) as place:
        client = await place.connect()
        session = await shake_hands(client)
        await client.send(client.post(call("quick", 7, text="hi"), **session))
        answer = json.loads((await client.answer()).body)
        assert answer == {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "hi"}]}}


# What runs them.


async def test_work_is_noticed_when_it_waits_and_only_then(autojump_clock: MockClock) -> None:
    noticed: list[float] = []

    def note(_: None) -> None:
        noticed.append(trio.current_time())

    async def work(*naps: float) -> str:
        for nap in naps:
            await trio.sleep(nap)
        return "done"

    assert await run_noticing(work(), copy_context(), note, None) == "done"
    assert noticed == []
    began = trio.current_time()
    assert await run_noticing(work(1, 2), copy_context(), note, None) == "done"
    assert noticed == [began]
    assert trio.current_time() == began + 3


async def test_what_work_raises_comes_out_before_and_after_it_waits() -> None:
    async def work(waits: int) -> None:
        for _ in range(waits):
            await trio.lowlevel.checkpoint()
        raise LookupError

    for waits in range(3):
        with pytest.raises(LookupError):
            await run_noticing(work(waits), copy_context(), lambda _: None, None)


async def test_work_can_be_cancelled_clean_up_and_go_on(autojump_clock: MockClock) -> None:
    log: list[str] = []

    async def work() -> str:
        with trio.move_on_after(1):
            try:
                await trio.sleep_forever()
            finally:
                log.append("cleaned up")
        await trio.sleep(1)
        return "went on"

    async def forever() -> None:
        await trio.sleep_forever()

    async def noticed() -> None:
        await run_noticing(forever(), copy_context(), log.append, "waits")

    assert await run_noticing(work(), copy_context(), lambda _: None, None) == "went on"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(noticed)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert log == ["cleaned up", "waits"]


async def test_context_variables_of_one_request_stay_with_it(autojump_clock: MockClock) -> None:
    name: ContextVar[str] = ContextVar("name", default="none")
    seen: list[str] = []
    base = copy_context()

    async def work(own: str, nap: float) -> None:
        seen.append(name.get())
        name.set(own)
        if nap:
            await trio.sleep(nap)
        seen.append(name.get())

    for nap in (0.0, 1.0, 0.0):
        await run_noticing(work(f"slept {nap}", nap), base.copy(), lambda _: None, None)
    await trio.lowlevel.checkpoint()
    assert seen == ["none", "slept 0.0", "none", "slept 1.0", "none", "slept 0.0"]
    assert name.get() == "none"


async def test_a_request_that_waits_and_fails_leaves_its_connection_as_it_was(mock_clock: MockClock) -> None:
    async with serving(company([]), attrs.evolve(QUICK, keep_alive=2.0)) as place:
        client = await place.connect()
        await client.call("quick")
        await wait_all_tasks_blocked()
        before = tasks()
        with place_of_failure(place):
            assert (await client.call("slow", seconds=0)).code == INTERNAL_ERROR
        mock_clock.jump(3 * SOON)
        await wait_all_tasks_blocked()
        assert tasks() == before
        mock_clock.jump(3)
        assert await client.ended() == b""  # and no last word about what was answered long ago


async def test_a_connection_that_another_task_reads_on_ends_when_it_is_idle(mock_clock: MockClock) -> None:
    log: list[str] = []
    async with serving(company(log), attrs.evolve(QUICK, keep_alive=10.0)) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="slow", arguments={"seconds": 1.0}))
        await seen(log, "begun")
        for seconds in (3 * SOON, 3 * SOON, 1.0):  # first another task reads on, and then it is answered
            await wait_all_tasks_blocked()
            mock_clock.jump(seconds)
        await client.answer()
        await wait_all_tasks_blocked()
        mock_clock.jump(11)
        assert await client.ended() == b""


@contextmanager
def place_of_failure(place: Place) -> Iterator[None]:
    """Calls each wait a little, and then fail as those of a broker do."""

    async def failing(_: object) -> str:
        await trio.lowlevel.checkpoint()
        raise BackendRefused(INTERNAL_ERROR, "no", {})

    offer = cast("Any", place.host.offer)
    before = offer.handlers
    offer.handlers = {**before, "tools/call": failing}
    try:
        yield
    finally:
        offer.handlers = before
