"""Requests that somebody no longer wants, and time that runs out."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.lifecycle import NOT_NEEDED
from callboard.codecs.revisions import LATEST, Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.server import Server
from callboard.server.context import Context
from tests.protocol.house import EACH_LEGACY, EVERY, hears_nothing, open_house, recorded, text

server = Server("patience")
stopped: list[str] = []


@server.tool
async def wait() -> str:
    try:
        await trio.sleep_forever()
    finally:
        stopped.append("wait")


@server.tool
async def ask(*, ctx: Context) -> str:
    return (await ctx.roots())[0].uri


@server.tool
async def ask_briefly(*, ctx: Context) -> str:
    with trio.move_on_after(5):
        return (await ctx.roots())[0].uri
    return "too late"


@pytest.mark.requirement("M160", "M168", "L077")
@EVERY
async def test_work_ends_at_once_and_the_reason_is_logged(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        request_id = await peer.begin("tools/call", name="wait")
        await wait_all_tasks_blocked()
        stopped.clear()
        with capture_logs() as lines:
            params = {"requestId": request_id, "reason": "changed my mind" + "!" * 1000}
            await peer.say({"method": "notifications/cancelled", "params": params})
            await hears_nothing(peer)
        assert stopped == ["wait"]
        (line,) = [line for line in lines if line["event"] == "request_cancelled"]
        assert line["reason"].startswith("changed my mind")
        assert len(line["reason"]) == 200
        assert line["log_level"] == "info"


async def test_a_request_that_a_broker_gave_up_is_no_news_in_the_log(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(LATEST)
        request_id = await peer.begin("tools/call", name="wait")
        await wait_all_tasks_blocked()
        with capture_logs() as lines:
            params = {"requestId": request_id, "reason": NOT_NEEDED}
            await peer.say({"method": "notifications/cancelled", "params": params})
            await hears_nothing(peer)
        assert [line["log_level"] for line in lines if line["event"] == "request_cancelled"] == ["debug"]


@pytest.mark.requirement("M167", "L080")
@EVERY
async def test_a_cancellation_that_makes_no_sense_is_ignored(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        request_id = await peer.begin("tools/call", name="wait")
        for wrong in ("1", 999, None, 1.5, [request_id]):
            await peer.say({"method": "notifications/cancelled", "params": {"requestId": wrong}})
        await peer.say({"method": "notifications/cancelled"})
        await wait_all_tasks_blocked()
        assert (await peer.request("tools/list"))["tools"]
        await hears_nothing(peer)


@pytest.mark.requirement("L032", "L074")
@EACH_LEGACY
async def test_a_client_that_does_not_answer_in_time_is_told_so(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        house.host.cap = 3600
        peer = await house.peer(revision)
        began = trio.current_time()
        request_id = await peer.begin("tools/call", name="ask")
        question = await peer.hear()
        taken_back = await peer.hear()
        assert trio.current_time() - began == 600
        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"]["requestId"] == question["id"]
        failed = await peer.finish(request_id)
        assert failed["isError"] is True
        await peer.say({"id": question["id"], "result": {"roots": []}})  # too late, and harmless
        await hears_nothing(peer)


@pytest.mark.requirement("M166")
async def test_a_handler_sets_the_time_for_its_own_question(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R4)
        began = trio.current_time()
        request_id = await peer.begin("tools/call", name="ask_briefly")
        question = await peer.hear()
        assert (await peer.hear())["params"]["requestId"] == question["id"]
        assert text(await peer.finish(request_id)) == "too late"
        assert trio.current_time() - began == 5


@pytest.mark.requirement("M164")
@EVERY
async def test_work_is_stopped_when_its_time_is_over(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        house.host.cap = 7
        peer = await house.peer(revision)
        stopped.clear()
        began = trio.current_time()
        request_id = await peer.begin("tools/call", name="wait")
        assert (await peer.hear())["id"] == request_id
        assert trio.current_time() - began == 7
        assert stopped == ["wait"]


@pytest.mark.requirement("L033", "L081")
async def test_progress_gives_a_client_more_time_but_never_more_than_the_request_has(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        house.host.cap = 2000
        peer = await house.peer(R4)
        began = trio.current_time()
        await peer.begin("tools/call", name="ask")
        question = await peer.hear()
        token = question["params"]["_meta"]["progressToken"]
        for done in range(1, 10):
            await trio.sleep(500)
            await peer.say({"method": "notifications/progress", "params": {"progressToken": token, "progress": done}})
            if trio.current_time() - began >= 2000:
                break
        ended = [await peer.hear(), await peer.hear()]
        assert {"notifications/cancelled", None} == {message.get("method") for message in ended}
        assert trio.current_time() - began == 2000


@pytest.mark.requirement("M157")
async def test_a_modern_client_hears_of_cancellation_only_when_its_subscription_ends(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R5)
        request_id = await peer.begin("tools/call", name="wait")
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})
        listening = await peer.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        await peer.hear()
        requests = house.host.root.supervisor_of("requests")
        (listener,) = requests.tree().children
        await requests.child(listener.name).stop()
        await peer.finish(listening)
        await peer.hear()
        cancelled = [frame for frame in recorded(peer) if frame.get("method") == "notifications/cancelled"]
        assert [frame["params"]["requestId"] for frame in cancelled] == [listening]
        assert recorded(peer)[-1] is cancelled[0]  # the closing result comes first
