"""What goes wrong when two things happen at once: nobody waits for ever, and nothing stays behind."""

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.changes import ResourceUpdated
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.session import OUTBOX_SIZE
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.revisions import CallToolResult
from callboard.codecs.revisions.revision import R4, R5
from callboard.errors import PeerRefused
from callboard.testing.peer import EVERYTHING, Peer, Refusal
from callboard.transports.memory import IN_BETWEEN
from tests.actors.server.stage import Stage, said, stage, text
from tests.actors.server.test_parking import ROOTS, form, sampling


def tasks_alive(here: Stage) -> list[str]:
    """Whatever lives beside the session and its reader: requests and their helpers, of both eras."""
    sessions = here.root.supervisor_of("sessions").tree().children
    legacy = [child.name for session in sessions for child in session.children[2:]]
    return legacy + [child.name for child in here.root.supervisor_of("requests").tree().children]


async def report_and_wait(exchange: Exchange) -> CallToolResult:
    await exchange.report(1)
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_a_cancelled_request_takes_its_progress_along(revision: Any, autojump_clock: MockClock) -> None:
    async with stage({"wait": report_and_wait}) as here:
        peer = await here.peer(revision)
        request_id = await peer.begin("tools/call", name="wait", meta={"progressToken": "t"})
        assert (await peer.hear())["method"] == "notifications/progress"
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})
        await trio.sleep(1)
        assert tasks_alive(here) == []


async def test_progress_after_a_round_belongs_to_the_retry(autojump_clock: MockClock) -> None:
    async def work(exchange: Exchange) -> CallToolResult:
        async def report_meanwhile() -> None:
            await trio.sleep(1)  # parked: nobody hears these now, and the newest is kept
            await exchange.report(0.5)
            await exchange.report(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(report_meanwhile)
            await exchange.ask([form()], at_once=True)
        await exchange.report(2)
        return text("done")

    async with stage({"work": work}) as here:
        peer = await here.peer(R5)
        params: dict[str, Any] = {"name": "work", "arguments": {}}
        asked = await peer.request("tools/call", **params, meta={"progressToken": "a"})
        await trio.sleep(2)
        await peer.request("tools/call", **params, **peer.answered(asked), meta={"progressToken": "b"})
        heard = [(note["progressToken"], note["progress"]) for note in peer.notifications("notifications/progress")]
        assert heard == [("b", 1), ("b", 2)]
        assert tasks_alive(here) == []


async def test_a_refused_request_does_not_free_the_token_of_another(autojump_clock: MockClock) -> None:
    async with stage({"wait": report_and_wait}) as here:
        peer = await here.peer(R4)
        await peer.begin("tools/call", name="wait", meta={"progressToken": "t"})
        for _ in range(2):
            with pytest.raises(Refusal, match="token is already in use"):
                await peer.request("tools/call", name="wait", meta={"progressToken": "t"})


async def test_a_handler_that_no_longer_waits_when_it_asks_leaves_nobody_waiting(autojump_clock: MockClock) -> None:
    async def hasty(exchange: Exchange) -> CallToolResult:
        with trio.move_on_after(0):
            await exchange.ask([form()], at_once=True)
        return text("never mind")

    async with stage({"hasty": hasty}) as here:
        peer = await here.peer(R5)
        with trio.fail_after(5):
            assert said(await peer.request("tools/call", name="hasty", arguments={})) == "never mind"


async def test_a_round_goes_out_even_if_whoever_closed_it_is_cancelled_meanwhile(autojump_clock: MockClock) -> None:
    async def impatient(exchange: Exchange) -> CallToolResult:
        await trio.sleep(1)
        with trio.move_on_after(1):
            await exchange.ask([form()], at_once=True)
        return text("never mind")

    async with stage({"impatient": impatient}) as here:
        peer = await here.peer(R5)
        request_id = await peer.begin("tools/call", name="impatient", arguments={})
        for _ in range(OUTBOX_SIZE + 2 * IN_BETWEEN):  # answers that nobody reads: there is no room for another
            await peer.begin("tools/list")
        await trio.sleep(5)
        with trio.fail_after(60):
            asked = await peer.finish(request_id)
            assert asked["resultType"] == "input_required"
            done = await peer.request("tools/call", name="impatient", arguments={}, **peer.answered(asked))
        assert said(done) == "never mind"


async def test_a_deadline_that_breaks_something_on_its_way_is_answered(autojump_clock: MockClock) -> None:
    async def brittle(exchange: Exchange) -> CallToolResult:
        async def break_in_the_end() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("broken")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_in_the_end)
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError

    async with stage({"brittle": brittle}) as here:
        peer = await here.peer(R5)
        with trio.fail_after(700), pytest.raises(Refusal):
            await peer.request("tools/call", name="brittle", arguments={})


@pytest.mark.finding("newcomer-A11")
async def test_an_answer_too_big_to_send_is_an_error(autojump_clock: MockClock) -> None:
    async def huge(exchange: Exchange) -> CallToolResult:
        return text("x" * MAX_ANSWER)

    async with stage({"huge": huge}) as here:
        peer = await here.peer(R5)
        with trio.fail_after(5), capture_logs() as logs, pytest.raises(Refusal, match="-32603"):
            await peer.request("tools/call", name="huge", arguments={})
        told = [(line["name"], line["most"]) for line in logs if line["event"] == "response_too_large"]
        assert told == [("huge", MAX_ANSWER)]
        assert tasks_alive(here) == []


async def test_a_key_asked_twice_leaves_no_question_behind(autojump_clock: MockClock) -> None:
    async def twice(exchange: Exchange) -> CallToolResult:
        with pytest.raises(ValueError, match="'k'"):
            await exchange.ask([form(key="k"), form(key="k")], at_once=True)
        await exchange.ask([ROOTS], at_once=True)
        return text("done")

    async with stage({"twice": twice}) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="twice", arguments={})
        assert [one["method"] for one in asked["inputRequests"].values()] == ["roots/list"]


async def test_answers_that_are_no_object_are_invalid_params_and_may_be_given_again(autojump_clock: MockClock) -> None:
    async def ask(exchange: Exchange) -> CallToolResult:
        await exchange.ask([form(key="k")], at_once=True)
        return text("done")

    async with stage({"ask": ask}) as here:
        peer = await here.peer(R5)
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("tools/call", name="ask", arguments={}, inputResponses=[])
        asked = await peer.request("tools/call", name="ask", arguments={})
        good = peer.answered(asked)
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("tools/call", name="ask", arguments={}, **{**good, "inputResponses": 7})
        assert said(await peer.request("tools/call", name="ask", arguments={}, **good)) == "done"


async def test_a_retry_that_declares_less_is_not_asked_again_for_it(autojump_clock: MockClock) -> None:
    async def ask(exchange: Exchange) -> CallToolResult:
        await exchange.ask([form(), sampling()], at_once=True)
        return text("done")

    async with stage({"ask": ask}) as here:
        peer, less = await here.peer(R5), await here.peer(R5, capabilities={"elicitation": {}})
        asked = await peer.request("tools/call", name="ask", arguments={})
        good = peer.answered(asked)
        some = {key: value for key, value in good["inputResponses"].items() if "action" in value}
        with pytest.raises(Refusal, match="-32021"):
            await less.request("tools/call", name="ask", arguments={}, **{**good, "inputResponses": some})
        assert said(await peer.request("tools/call", name="ask", arguments={}, **good)) == "done"


async def test_a_handler_that_asks_after_its_request_was_cancelled_gets_no_answer_but_an_error(
    autojump_clock: MockClock,
) -> None:
    ended: list[str] = []

    async def stubborn(exchange: Exchange) -> CallToolResult:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True), pytest.raises(Exception) as failure:
                await exchange.ask([form()], at_once=True)
            ended.append(type(failure.value).__name__)
        raise AssertionError

    for revision in (R4, R5):
        async with stage({"stubborn": stubborn}) as here:
            peer = await here.peer(revision)
            request_id = await peer.begin("tools/call", name="stubborn", arguments={})
            await wait_all_tasks_blocked()
            await peer.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})
            await trio.sleep(1)
            assert tasks_alive(here) == []
    assert ended == ["RequestFailed"] * 2


async def test_a_listener_that_is_cut_off_is_told_and_forgotten(autojump_clock: MockClock) -> None:
    uris = [f"file:///{number}" for number in range(3000)]
    async with stage({}) as here:
        peer = await here.peer(R5)
        request_id = await peer.begin("subscriptions/listen", notifications={"resourceSubscriptions": uris})
        assert (await peer.hear())["method"] == "notifications/subscriptions/acknowledged"
        for uri in uris:
            here.host.topics.publish(ResourceUpdated(uri))
        await trio.sleep(1)  # and the client reads nothing
        told = [await peer.hear()]
        while told[-1]["method"] == "notifications/resources/updated":
            told.append(await peer.hear())
        assert told[-1]["method"] == "notifications/cancelled"
        assert told[-1]["params"]["requestId"] == request_id
        await wait_all_tasks_blocked()
        (session,) = here.root.supervisor_of("sessions").tree().children
        assert session.children[0].facts["in_flight"] == 0
        assert len(here.host.topics) == 0


async def park(peer: Peer) -> dict[str, Any]:
    return await peer.request("tools/call", name="ask", arguments={})


async def test_what_is_kept_of_parked_requests_goes_with_them(autojump_clock: MockClock) -> None:
    async def ask(exchange: Exchange) -> CallToolResult:
        await exchange.ask([form()], at_once=True)
        return text("done")

    async with stage({"ask": ask}) as here:
        parking = here.host.parking
        for number in range(20):
            peer = await here.peer(R5, principal=f"user-{number}")
            asked = await park(peer)
            done = await peer.request("tools/call", name="ask", arguments={}, **peer.answered(asked))
            assert said(done) == "done"
        await wait_all_tasks_blocked()
        assert (len(parking._shares), len(parking._due), len(parking._names)) == (0, 0, 0)


@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_a_peer_may_have_so_many_requests_in_flight_and_no_more(revision: Any, autojump_clock: MockClock) -> None:
    async with stage({"wait": report_and_wait}) as here:
        here.host.most_in_flight = 3
        peer, other = await here.peer(revision), await here.peer(revision)
        ids = [await peer.begin("tools/call", name="wait", arguments={}) for _ in range(3)]
        with pytest.raises(Refusal, match="-31003"):
            await peer.request("tools/call", name="wait", arguments={})
        await other.begin("tools/call", name="wait", arguments={})
        await peer.request("tools/list")  # what is answered at once is never in flight
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": ids[0]}})
        await peer.begin("tools/call", name="wait", arguments={})
        await wait_all_tasks_blocked()
        assert len(tasks_alive(here)) == 4


async def test_a_peer_may_follow_so_many_resources_and_no_more(autojump_clock: MockClock) -> None:
    uris = [f"file:///{number}" for number in range(5)]
    async with stage({}) as here:
        here.host.most_followed = 6  # the two lists that are offered count too
        modern, legacy = await here.peer(R5), await here.peer(R4)
        with pytest.raises(Refusal, match="-31003"):
            await modern.request("subscriptions/listen", notifications={"resourceSubscriptions": [*uris, "a:b", "a:c"]})
        for uri in uris[:4]:
            await legacy.request("resources/subscribe", uri=uri)
        await legacy.request("resources/subscribe", uri=uris[0])  # again: no more than before
        with pytest.raises(Refusal, match="-31003"):
            await legacy.request("resources/subscribe", uri=uris[4])
        await legacy.request("resources/unsubscribe", uri=uris[0])
        await legacy.request("resources/subscribe", uri=uris[4])


async def test_a_clock_that_stood_still_goes_on_exactly(autojump_clock: MockClock) -> None:
    async def slow(exchange: Exchange) -> CallToolResult:
        await trio.sleep(100)
        await exchange.ask([form()], at_once=True)
        await trio.sleep_forever()
        raise AssertionError

    async with stage({"slow": slow}) as here:
        peer = await here.peer(R5, capabilities=EVERYTHING)
        asked = await peer.request("tools/call", name="slow", arguments={})
        await trio.sleep(555)
        resumed = trio.current_time()
        with pytest.raises(Refusal, match="-31002"):
            await peer.request("tools/call", name="slow", arguments={}, **peer.answered(asked))
        assert trio.current_time() - resumed == 500


async def test_what_nobody_fetches_is_freed_at_its_deadline(autojump_clock: MockClock) -> None:
    async def impatient(exchange: Exchange) -> CallToolResult:
        with trio.move_on_after(5):
            await exchange.ask([form()], at_once=True)
        return text("never mind")

    async with stage({"impatient": impatient}) as here:
        peer = await here.peer(R5)
        await peer.request("tools/call", name="impatient", arguments={})
        await trio.sleep(599)
        assert len(here.host.parking) == 1
        await trio.sleep(2)
        assert len(here.host.parking) == 0


async def test_a_handler_can_catch_a_refusal_by_its_name(autojump_clock: MockClock) -> None:
    def refuse(params: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(-1, "not now")

    async def ask(exchange: Exchange) -> CallToolResult:
        for questions in ([ROOTS], [ROOTS, ROOTS]):
            with pytest.raises(PeerRefused, match="not now"):
                await exchange.ask(questions, at_once=True)
        return text("caught")

    async with stage({"ask": ask}) as here:
        peer = await here.peer(R4, answers={"roots/list": refuse})
        assert said(await peer.call("ask")) == "caught"
