"""Straight-line handlers: one that asks is written once, and works in every revision."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.server.client_requests import ClientRequest
from callboard.actors.server.exchange import Exchange
from callboard.codecs.revisions import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    ListRootsRequestParams,
    ListRootsResult,
    RequestedSchema,
    Revision,
    SamplingMessage,
    StringSchema,
    TextContent,
)
from callboard.codecs.revisions.revision import R1, R4, R5
from callboard.errors import InvalidParams
from callboard.testing.peer import Peer, Refusal
from tests.actors.server.stage import Stage, said, stage, text

ONE_TEXT = "Invalid or expired requestState"


def form(message: str = "Who?", key: str | None = None) -> ClientRequest:
    schema = RequestedSchema(properties={"name": StringSchema()})
    return ClientRequest("elicitation/create", ElicitRequestFormParams(message=message, requested_schema=schema), key)


def sampling() -> ClientRequest:
    messages = [SamplingMessage(role="user", content=TextContent(text="Capital?"))]
    return ClientRequest("sampling/createMessage", CreateMessageRequestParams(messages=messages, max_tokens=9))


ROOTS = ClientRequest("roots/list", ListRootsRequestParams())


async def one_after_the_other(exchange: Exchange) -> CallToolResult:
    (person,) = await exchange.ask([form()])
    (reply,) = await exchange.ask([sampling()])
    (roots,) = await exchange.ask([ROOTS])
    assert isinstance(person, ElicitResult)
    assert isinstance(reply, CreateMessageResult)
    assert isinstance(roots, ListRootsResult)
    assert isinstance(reply.content, TextContent)
    return text(f"{person.content} {reply.content.text} {roots.roots[0].uri}")


async def all_at_once(exchange: Exchange) -> CallToolResult:
    answers = await exchange.ask([form(), sampling(), ROOTS], at_once=True)
    return text(" ".join(type(answer).__name__ for answer in answers))


async def in_tasks(exchange: Exchange) -> CallToolResult:
    found: dict[str, Any] = {}

    async def ask(name: str, question: ClientRequest) -> None:
        (found[name],) = await exchange.ask([question])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "a", form())
        nursery.start_soon(ask, "b", ROOTS)
    return text(" ".join(type(found[name]).__name__ for name in sorted(found)))


async def nothing(exchange: Exchange) -> CallToolResult:
    return text("nothing")


TOOLS = {"steps": one_after_the_other, "together": all_at_once, "tasks": in_tasks, "nothing": nothing}


def parked(here: Stage) -> int:
    return len(here.host.parking)


@pytest.mark.parametrize("revision", [revision for revision in Revision if revision >= "2025-06-18"], ids=str)
async def test_the_same_handler_gets_the_same_answers_in_every_revision(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(revision)
        assert said(await peer.call("steps")) == "{'name': 'Ada'} Oslo file:///home"
        assert said(await peer.call("together")) == "ElicitResult CreateMessageResult ListRootsResult"
        assert said(await peer.call("tasks")) == "ElicitResult ListRootsResult"
        assert parked(here) == 0


async def rounds(peer: Peer, tool: str) -> list[list[str]]:
    """The methods asked for in each round until the tool has finished."""
    found = []
    result = await peer.request("tools/call", name=tool, arguments={})
    while result["resultType"] == "input_required":
        found.append(sorted(asked["method"] for asked in result["inputRequests"].values()))
        result = await peer.request("tools/call", name=tool, arguments={}, **peer.answered(result))
    return found


@pytest.mark.requirement("M173")
async def test_what_is_asked_together_goes_out_together(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(R5)
        assert await rounds(peer, "steps") == [["elicitation/create"], ["sampling/createMessage"], ["roots/list"]]
        assert await rounds(peer, "together") == [["elicitation/create", "roots/list", "sampling/createMessage"]]
        assert await rounds(peer, "tasks") == [["elicitation/create", "roots/list"]]


async def test_questions_asked_at_once_do_not_wait_for_others(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(R5)
        started = trio.current_time()
        await peer.request("tools/call", name="together", arguments={})
        assert trio.current_time() == started
        await peer.request("tools/call", name="steps", arguments={})
        assert trio.current_time() == pytest.approx(started + 0.02)


@pytest.mark.requirement("M026", "M027")
async def test_a_parked_request_shows_in_the_tree_and_outlives_its_connection(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="steps", arguments={})
        (request,) = here.root.supervisor_of("requests").tree().children
        assert request.state == "parked"
        peer.connection.close()
        await wait_all_tasks_blocked()
        again = await here.peer(R5)
        result = await again.request("tools/call", name="steps", arguments={}, **again.answered(asked))
        assert result["resultType"] == "input_required"  # the next question of the same coroutine
        assert parked(here) == 1


@pytest.mark.requirement("M191", "M192")
async def test_a_missing_answer_is_asked_for_again_and_extra_ones_are_ignored(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="together", arguments={})
        responses = peer.answered(asked)
        (key, *_) = list(responses["inputResponses"])
        first = responses["inputResponses"].pop(key)
        responses["inputResponses"]["surprise"] = {"action": "cancel"}
        again = await peer.request("tools/call", name="together", arguments={}, **responses)
        assert list(again["inputRequests"]) == [key]
        assert again["requestState"] != asked["requestState"]
        done = await peer.request(
            "tools/call",
            name="together",
            arguments={},
            inputResponses={key: first},
            requestState=again["requestState"],
        )
        assert said(done) == "ElicitResult CreateMessageResult ListRootsResult"


@pytest.mark.requirement("M177", "M179", "M180", "M181", "M182", "M406", "M407")
async def test_tampered_foreign_replayed_and_expired_state_is_refused_with_one_text(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="steps", arguments={"a": 1})
        good = peer.answered(asked)
        state = good["requestState"]
        other = await here.peer(R5, principal="mallory")

        async def refused(who: Peer, **changes: Any) -> None:
            params = {"name": "steps", "arguments": {"a": 1}, **good, **changes}
            with pytest.raises(Refusal) as refusal:
                await who.request("tools/call", **params)
            assert (refusal.value.code, refusal.value.message) == (-32602, ONE_TEXT)

        await refused(peer, requestState=state[:-1] + ("A" if state[-1] != "A" else "B"))
        await refused(peer, requestState="")
        await refused(peer, arguments={"a": 2})
        await refused(peer, name="together")
        await refused(other)
        assert parked(here) == 1  # none of this touched it
        asked = await peer.request("tools/call", name="steps", arguments={"a": 1.0}, **good)  # 1.0 is 1
        await refused(peer)  # spent
        await trio.sleep(601)
        assert parked(here) == 0
        good = peer.answered(asked)
        await refused(peer)


@pytest.mark.requirement("M190")
async def test_an_answer_of_the_wrong_shape_may_be_given_again(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="together", arguments={})
        good = peer.answered(asked)
        key = next(iter(good["inputResponses"]))
        bad = {**good, "inputResponses": {key: {"action": 7}}}
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("tools/call", name="together", arguments={}, **bad)
        assert said(await peer.request("tools/call", name="together", arguments={}, **good))


@pytest.mark.requirement("M176")
async def test_a_parked_request_ends_at_its_deadline_exactly(autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def wait(exchange: Exchange) -> CallToolResult:
        try:
            await exchange.ask([form()], at_once=True)
        finally:
            ended.append(trio.current_time())
        raise AssertionError

    async with stage({"wait": wait}) as here:
        peer = await here.peer(R5)
        started = trio.current_time()
        await peer.request("tools/call", name="wait", arguments={})
        await trio.sleep(601)
        assert ended == [started + 600]
        assert here.root.supervisor_of("requests").tree().children == ()


async def test_too_many_parked_requests_of_one_principal_are_refused(autojump_clock: MockClock) -> None:
    async with stage(TOOLS, most_each=2) as here:
        peer, other = await here.peer(R5), await here.peer(R5, principal="bob")
        for _ in range(2):
            await peer.request("tools/call", name="together", arguments={})
        with pytest.raises(Refusal, match="-31003"):
            await peer.request("tools/call", name="together", arguments={})
        assert (await other.request("tools/call", name="together", arguments={}))["resultType"] == "input_required"


async def test_a_handler_that_stops_waiting_leaves_its_result_for_the_retry(autojump_clock: MockClock) -> None:
    async def impatient(exchange: Exchange) -> CallToolResult:
        with trio.move_on_after(5):
            await exchange.ask([form()], at_once=True)
        return text("never mind")

    async with stage({"impatient": impatient}) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="impatient", arguments={})
        await trio.sleep(10)
        assert (
            said(await peer.request("tools/call", name="impatient", arguments={}, **peer.answered(asked)))
            == "never mind"
        )
        assert parked(here) == 0


async def test_answers_that_come_with_the_first_request_are_used_by_their_keys(autojump_clock: MockClock) -> None:
    async def keyed(exchange: Exchange) -> CallToolResult:
        (answer,) = await exchange.ask([form(key="user_name")])
        assert isinstance(answer, ElicitResult)
        return text(str(answer.content))

    async with stage({"keyed": keyed}) as here:
        peer = await here.peer(R5)
        responses = {"user_name": {"action": "accept", "content": {"name": "Eve"}}}
        assert said(await peer.request("tools/call", name="keyed", inputResponses=responses)) == "{'name': 'Eve'}"
        asked = await peer.request("tools/call", name="keyed", inputResponses={"wrong": responses["user_name"]})
        assert list(asked["inputRequests"]) == ["user_name"]


@pytest.mark.requirement("M035", "M036", "M175")
@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_a_client_without_the_capability_is_not_asked(revision: Revision) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(revision, capabilities={"roots": {}})
        with pytest.raises(Refusal) as refused:
            await peer.call("together")
        assert refused.value.code == (-32021 if revision is R5 else -32602)
        assert refused.value.data == {"requiredCapabilities": {"elicitation": {}}}


async def test_a_legacy_client_that_refuses_fails_the_call_and_one_that_is_cancelled_is_told(
    autojump_clock: MockClock,
) -> None:
    async with stage(TOOLS) as here:

        def refuse(params: dict[str, Any]) -> dict[str, Any]:
            raise Refusal(-1, "user said no")

        peer = await here.peer(R1, answers={"sampling/createMessage": refuse, "roots/list": refuse})
        peer.capabilities = {}
        silent = await here.peer(R4)
        request_id = await silent.begin("tools/call", name="steps", arguments={})
        question = await silent.hear()
        await silent.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})
        taken_back = await silent.hear()
        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"]["requestId"] == question["id"]


async def test_an_unfit_answer_to_a_first_request_leaves_no_question_behind(autojump_clock: MockClock) -> None:
    async def stubborn(exchange: Exchange) -> CallToolResult:
        with pytest.raises(InvalidParams):
            await exchange.ask([form(key="who")])
        (roots,) = await exchange.ask([ROOTS])
        return text(type(roots).__name__)

    async with stage({"stubborn": stubborn}) as here:
        peer = await here.peer(R5)
        asked = await peer.request("tools/call", name="stubborn", inputResponses={"who": {"roots": []}})
        assert [one["method"] for one in asked["inputRequests"].values()] == ["roots/list"]
        responses = peer.answered(asked)
        assert said(await peer.request("tools/call", name="stubborn", **responses)) == "ListRootsResult"


async def test_a_retry_goes_on_with_the_exchange_that_is_parked_and_makes_no_other(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        client = await here.peer(R5)
        await client.call("steps")  # three questions one after the other: four requests
        made = next(here.host.numbers)
        assert made == 2
