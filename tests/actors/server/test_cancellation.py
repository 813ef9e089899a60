"""Cancellation is one thing, a Trio cancel scope: each outside event, in each revision that has it, exact in time.

The two rows about closed HTTP streams are held where there are such streams, against real sockets, in
`tests/transports/http`: a modern one that is closed cancels (`test_leaving.py`), a legacy one does not
(`test_resumption.py`). On a connection that both eras share, there is no stream to close but the connection itself.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.server.exchange import Exchange
from callboard.codecs.revisions import LEGACY, MODERN, CallToolResult, Revision
from callboard.testing import Peer, Refusal
from tests.actors.server.stage import Stage, said, stage, text
from tests.actors.server.test_parking import ROOTS, form

ALL = frozenset(Revision)


@attrs.define
class Trace:
    """When a handler's scope was cancelled."""

    cut_at: list[float] = attrs.field(factory=list)

    async def work(self, exchange: Exchange) -> CallToolResult:
        try:
            await trio.sleep_forever()
        finally:
            self.cut_at.append(trio.current_time())
        raise AssertionError

    async def ask(self, exchange: Exchange) -> CallToolResult:
        try:
            await exchange.ask([ROOTS], at_once=True)
        except Exception:
            self.cut_at.append(trio.current_time())
            raise
        return text("answered")

    async def park(self, exchange: Exchange) -> CallToolResult:
        try:
            await exchange.ask([form()], at_once=True)
        finally:
            self.cut_at.append(trio.current_time())
        raise AssertionError

    async def greet(self, exchange: Exchange) -> CallToolResult:
        return text("hello")


Row = Callable[[Stage, Peer, Trace], Awaitable[None]]


async def a_notification_for_a_request_in_flight(here: Stage, peer: Peer, trace: Trace) -> None:
    request_id = await peer.begin("tools/call", name="work")
    await trio.sleep(7)
    await peer.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})
    await wait_all_tasks_blocked()
    assert trace.cut_at == [7]
    assert said(await peer.call("greet")) == "hello"
    assert not peer.heard  # no response is sent


async def our_deadline_passes(here: Stage, peer: Peer, trace: Trace) -> None:
    request_id = await peer.begin("tools/call", name="ask")
    question = await peer.hear()
    taken_back = await peer.hear()  # the client says nothing
    assert trio.current_time() == 600
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"]["requestId"] == question["id"]
    with pytest.raises(Refusal, match="-31002"):
        await peer.finish(request_id)


async def our_own_caller_is_cancelled(here: Stage, peer: Peer, trace: Trace) -> None:
    request_id = await peer.begin("tools/call", name="ask")
    question = await peer.hear()
    await trio.sleep(3)
    await peer.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})
    taken_back = await peer.hear()
    assert trio.current_time() == 3
    assert taken_back["params"] == {"requestId": question["id"], "reason": "no longer needed"}


async def progress_moves_the_deadline_but_not_past_the_cap(here: Stage, peer: Peer, trace: Trace) -> None:
    here.host.cap = 1500
    request_id = await peer.begin("tools/call", name="ask")
    question = await peer.hear()
    token = question["params"]["_meta"]["progressToken"]
    for moment in (500, 1000, 1400):
        await trio.sleep(moment - trio.current_time())
        params = {"progressToken": token, "progress": moment}
        await peer.say({"method": "notifications/progress", "params": params})
    taken_back = await peer.hear()
    assert taken_back["params"]["requestId"] == question["id"]
    assert trio.current_time() == 1500  # not 600, and not 2000
    with pytest.raises(Refusal, match="-31002"):
        await peer.finish(request_id)


async def the_session_ends(here: Stage, peer: Peer, trace: Trace) -> None:
    for _ in range(3):
        await peer.begin("tools/call", name="work")
    await trio.sleep(2)
    peer.connection.close()
    await wait_all_tasks_blocked()
    assert trace.cut_at == [2, 2, 2]
    assert here.root.supervisor_of("sessions").tree().children == ()


async def a_parked_request_is_not_retried(here: Stage, peer: Peer, trace: Trace) -> None:
    await peer.request("tools/call", name="park", arguments={})
    await trio.sleep(1000)
    assert trace.cut_at == [600]
    assert here.root.supervisor_of("requests").tree().children == ()


async def a_closed_connection_does_not_touch_what_is_parked(here: Stage, peer: Peer, trace: Trace) -> None:
    await peer.request("tools/call", name="park", arguments={})
    peer.connection.close()
    await trio.sleep(599)
    assert trace.cut_at == []


TABLE: list[tuple[Row, frozenset[Revision]]] = [
    (a_notification_for_a_request_in_flight, ALL),
    (our_deadline_passes, LEGACY),  # a modern server sends no requests
    (our_own_caller_is_cancelled, LEGACY),
    (progress_moves_the_deadline_but_not_past_the_cap, LEGACY),
    (the_session_ends, ALL),
    (a_parked_request_is_not_retried, MODERN),
    (a_closed_connection_does_not_touch_what_is_parked, MODERN),
]
CELLS: list[Any] = [
    pytest.param(row, revision, id=f"{row.__name__}-{revision}")
    for row, revisions in TABLE
    for revision in sorted(revisions)
]


@pytest.mark.parametrize(("row", "revision"), CELLS)
async def test_every_outside_event_cancels_what_it_should(
    row: Row, revision: Revision, autojump_clock: MockClock
) -> None:
    trace = Trace()
    tools = {"work": trace.work, "ask": trace.ask, "park": trace.park, "greet": trace.greet}
    async with stage(tools) as here:
        await row(here, await here.peer(revision), trace)
