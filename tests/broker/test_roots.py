"""Roots between a client and a legacy backend, questions that nobody declared, and the reason of a cancellation."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R3, R4, R5
from callboard.testing import Peer
from tests.broker.back import Back, Line, form, text
from tests.broker.front import brokered, peer, texts
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {}}
CHANGED = "notifications/roots/list_changed"
HOME: Json = {"roots": [{"uri": "file:///home"}]}
ANSWERS = {"roots/list": lambda _: HOME}
CHANGING: Json = {"roots": {"listChanged": True}}


async def finished(back: Back, client: Peer) -> Line:
    """A call that is over: where it was made."""
    begun = await client.begin("tools/call", **BOOK)
    line, request = await back.hear()
    await line.answer(request, **text("done"))
    assert texts([await client.finish(begun)]) == ["done"]
    return line


@pytest.mark.finding("protocol-1.9")
@pytest.mark.parametrize("front", [R1, R3, R4])
@pytest.mark.parametrize("behind", [R1, R4])
async def test_a_backend_hears_that_its_clients_roots_have_changed(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front, capabilities=CHANGING) as client:
        line = await finished(back, client)
        assert line.declared == CHANGING
        await client.say({"method": CHANGED})
        await wait_all_tasks_blocked()
        assert len(line.told(CHANGED)) == 1
        assert [other for other in back.lines if other is not line and other.told(CHANGED)] == []


@pytest.mark.finding("protocol-1.9")
async def test_only_the_backends_of_that_session_hear_of_changed_roots(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with (
        brokered(back.ways) as host,
        peer(host, R4, capabilities=CHANGING) as one,
        peer(host, R4, capabilities=CHANGING) as two,
        peer(host, R4, capabilities={"roots": {}}) as undeclared,
    ):
        lines = [await finished(back, client) for client in (one, two, undeclared)]
        for client in (one, undeclared):
            await client.say({"method": CHANGED})
        await wait_all_tasks_blocked()
        assert [len(line.told(CHANGED)) for line in lines] == [1, 0, 0]
        assert lines[2].declared == {"roots": {}}


@pytest.mark.finding("protocol-1.9")
async def test_a_client_that_says_it_in_a_loop_does_not_pile_up_work(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4, capabilities=CHANGING) as client:
        line = await finished(back, client)
        back.is_deaf = True
        for _ in range(500):
            await client.say({"method": CHANGED})
        await wait_all_tasks_blocked()
        back.is_deaf = False
        await trio.sleep(5)
        assert 1 <= len(line.told(CHANGED)) <= 100


@pytest.mark.finding("protocol-1.9")
@pytest.mark.parametrize("front", [R1, R4])
async def test_roots_asked_for_when_the_call_is_over_are_answered_by_the_session(
    front: Revision, autojump_clock: MockClock
) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, front, answers=ANSWERS, capabilities={"roots": {}}) as client:
        line = await finished(back, client)
        question = await line.ask("roots/list")
        with trio.fail_after(1):
            asked = await client.hear()
            assert asked["method"] == "roots/list"
            await client.say({"id": asked["id"], "result": HOME})
            assert (await line.answered(question))["result"] == HOME


@pytest.mark.finding("protocol-1.9")
async def test_a_question_about_roots_outlives_the_call_that_opened_the_connection(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4, capabilities={"roots": {}}) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        question = await line.ask("roots/list")
        await wait_all_tasks_blocked()
        await line.answer(request, **text("done"))
        await wait_all_tasks_blocked()
        heard = [await client.hear() for _ in range(4)]
        assert {one.get("method") or one["id"] for one in heard} == {"roots/list", "notifications/cancelled", begun}
        await client.say({"id": [one for one in heard if one.get("method") == "roots/list"][-1]["id"], "result": HOME})
        with trio.fail_after(1):
            assert (await line.answered(question))["result"] == HOME


@pytest.mark.finding("protocol-1.9")
async def test_a_client_that_answers_nothing_about_roots_is_not_waited_for_for_long(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4, capabilities={"roots": {}}) as client:
        line = await finished(back, client)
        question = await line.ask("roots/list")
        with trio.fail_after(31):
            assert (await line.answered(question))["error"]["code"] == -32603


@pytest.mark.finding("protocol-1.12e")
@pytest.mark.parametrize("front", [R4, R5])
@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create"])
async def test_a_question_that_the_client_did_not_declare_is_refused_at_once(
    method: str, front: Revision, autojump_clock: MockClock
) -> None:
    sampling: Json = {"messages": [], "maxTokens": 1}
    params = {"roots/list": {}, "sampling/createMessage": sampling, "elicitation/create": form()}[method]
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, front, capabilities={}) as client:
        await client.begin("tools/call", **BOOK)
        line, _ = await back.hear()
        began = trio.current_time()
        question = await line.ask(method, **params)
        assert (await line.answered(question))["error"]["code"] == -32601
        assert trio.current_time() == began


@pytest.mark.finding("security-19")
async def test_a_backend_that_asks_in_a_loop_does_not_fill_the_log(autojump_clock: MockClock) -> None:
    back = Back(R4)
    with capture_logs() as logs:
        async with brokered(back.ways):
            for _ in range(1000):
                await back.lines[0].ask("sampling/createMessage", messages=[], maxTokens=1)
            await wait_all_tasks_blocked()
            await trio.sleep(11)
            await back.lines[0].ask("sampling/createMessage", messages=[], maxTokens=1)
            await wait_all_tasks_blocked()
    refused = [line for line in logs if line["event"] == "question_refused"]
    assert len(refused) == 2
    assert refused[1]["left_out"] >= 64
    assert len(logs) < 10


@pytest.mark.finding("security-19")
async def test_a_backend_that_cancels_its_questions_in_a_loop_does_not_fill_the_log(autojump_clock: MockClock) -> None:
    back = Back(R4)
    with capture_logs() as logs:
        async with brokered(back.ways) as host, peer(host, R4) as client:
            await client.begin("tools/call", **BOOK)
            line, _ = await back.hear()
            for _ in range(100):
                question = await line.ask("elicitation/create", **form())
                await wait_all_tasks_blocked()
                await line.tell("notifications/cancelled", requestId=question, reason="never mind")
                await wait_all_tasks_blocked()
                await client.hear()
                await client.hear()
    assert len([one for one in logs if one["event"] == "question_cancelled"]) == 1
    assert len(logs) < 10


@pytest.mark.finding("protocol-1.12d")
@pytest.mark.parametrize("behind", [R4, R5])
@pytest.mark.parametrize("capabilities", [{}, {"roots": {}}], ids=["plain", "may be asked"])
async def test_the_reason_of_a_cancellation_reaches_the_backend(
    behind: Revision, capabilities: Json, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, R4, capabilities=capabilities) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun, "reason": "why not"}})
        await wait_all_tasks_blocked()
        assert line.told("notifications/cancelled") == [{"requestId": request["id"], "reason": "why not"}]
