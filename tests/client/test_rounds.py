"""Rounds of questions (2026-07-28): everything is answered, the state given back as it came, and there is an end."""

from collections.abc import Callable
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.client.answerer import MAX_QUESTIONS
from callboard.actors.client.conversation import MAX_ROUNDS, ROUNDS_TIME
from callboard.client import Client, connect
from callboard.codecs.revisions.revision import R4
from callboard.errors import OVERLOADED, BadAnswer, MethodNotFound, RequestTimedOut, TooManyRounds
from tests.client.stage import Json, Puppet, played

FORM: Final = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ASKED: Final = {
    "who": {"method": "elicitation/create", "params": FORM},
    "what": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}},
    "where": {"method": "roots/list"},
}
STATE: Final = 'AbC+/= "quoted" {"a": [1,  2]} \\u00e9 ü'

REQUESTS: Final[dict[str, Callable[[Client], Any]]] = {
    "tools/call": lambda client: client.call("x", a=1)._run(),
    "resources/read": lambda client: client.read("house://hall"),
    "prompts/get": lambda client: client.prompt("x", a="1"),
}


def answering(**more: Any) -> dict[str, Any]:
    return {
        "elicitation": lambda _: {"name": "ada"},
        "sampling": lambda _: "fine",
        "roots": ["file:///here"],
        **more,
    }


def result(method: str) -> Json:
    results: dict[str, Json] = {
        "tools/call": {"content": []},
        "resources/read": {"contents": [], "ttlMs": 60_000, "cacheScope": "public"},
        "prompts/get": {"messages": []},
    }
    return results[method]


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.requirement("M184", "M185", "M186", "M188", "M189")
async def test_all_questions_are_answered_and_the_same_request_is_sent_again_with_its_state(
    method: str, autojump_clock: MockClock
) -> None:
    heard: list[Json] = []

    async def play(puppet: Puppet) -> None:
        for _ in range(2):
            heard.append(await puppet.hear(method))
            asks = {"resultType": "input_required", "inputRequests": ASKED, "requestState": STATE}
            await puppet.say(id=heard[-1]["id"], result=asks)
        for _ in range(2):
            heard.append(await puppet.hear(method))
            await puppet.answer(heard[-1], **result(method))

    async with connect(played(play), **answering()) as client:
        await REQUESTS[method](client)
        await REQUESTS[method](client)
    first, second, third, other = heard
    assert len({request["id"] for request in heard}) == 4
    assert "requestState" not in first["params"]
    assert "inputResponses" not in first["params"]
    for retry in (second, third):
        assert retry["params"]["requestState"] == STATE
        answers = retry["params"]["inputResponses"]
        assert answers["who"] == {"action": "accept", "content": {"name": "ada"}}
        assert answers["what"]["content"] == {"type": "text", "text": "fine"}
        assert answers["where"] == {"roots": [{"uri": "file:///here"}]}
        assert "resultType" not in answers["who"]
        same = {key: value for key, value in retry["params"].items() if key not in ("requestState", "inputResponses")}
        del same["_meta"]
        assert same == {key: value for key, value in first["params"].items() if key != "_meta"}
    assert not {"requestState", "inputResponses"} & other["params"].keys()


@pytest.mark.requirement("M187")
async def test_no_state_is_sent_where_none_was_given_and_no_answers_where_nothing_was_asked(
    autojump_clock: MockClock,
) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(
            id=request["id"],
            result={"resultType": "input_required", "inputRequests": {"where": {"method": "roots/list"}}},
        )
        request = await puppet.hear("tools/call")
        assert "requestState" not in request["params"]
        await puppet.say(id=request["id"], result={"resultType": "input_required", "requestState": "later"})
        request = await puppet.hear("tools/call")
        assert request["params"]["requestState"] == "later"
        assert request["params"].get("inputResponses", {}) == {}
        await puppet.answer(request, content=[])

    async with connect(played(play), **answering()) as client:
        await client.call("x")


async def test_questions_of_one_round_are_asked_at_the_same_time(autojump_clock: MockClock) -> None:
    async def slow(_: object) -> Any:
        await trio.sleep(10)
        return {"name": "ada"}

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        asks = {key: {"method": "elicitation/create", "params": FORM} for key in "abc"}
        await puppet.say(id=request["id"], result={"resultType": "input_required", "inputRequests": asks})
        request = await puppet.hear("tools/call")
        assert list(request["params"]["inputResponses"]) == ["a", "b", "c"]
        await puppet.answer(request, content=[])

    async with connect(played(play), elicitation=slow) as client:
        await client.call("x")
        assert trio.current_time() == 10


async def test_a_server_that_never_stops_asking_is_left(autojump_clock: MockClock) -> None:
    rounds = 0

    async def play(puppet: Puppet) -> None:
        nonlocal rounds
        while True:
            request = await puppet.hear("tools/call")
            rounds += 1
            await puppet.say(id=request["id"], result={"resultType": "input_required", "requestState": "again"})

    async with connect(played(play)) as client:
        with pytest.raises(TooManyRounds):
            await client.call("x")
    assert rounds == MAX_ROUNDS


@pytest.mark.parametrize("method", REQUESTS)
async def test_somebody_who_never_answers_is_not_waited_for_for_ever(method: str, autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear(method)
        await puppet.say(id=request["id"], result={"resultType": "input_required", "inputRequests": ASKED})

    async def absent(_: object) -> None:
        await trio.sleep_forever()

    async with connect(played(play), elicitation=absent, sampling=absent, roots=[]) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimedOut), trio.fail_after(2 * ROUNDS_TIME):
            await REQUESTS[method](client)
        assert trio.current_time() - began == ROUNDS_TIME


async def test_nobody_is_asked_more_in_one_round_than_he_could_answer(autojump_clock: MockClock) -> None:
    asked = 0

    def count(_: object) -> None:
        nonlocal asked
        asked += 1

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        many = {f"{number}": ASKED["who"] for number in range(MAX_QUESTIONS + 1)}
        await puppet.say(id=request["id"], result={"resultType": "input_required", "inputRequests": many})

    async with connect(played(play), elicitation=count) as client:
        with pytest.raises(BadAnswer, match="more than 64 questions"):
            await client.call("x")
    assert not asked


async def test_what_nobody_answers_ends_the_call_by_name_and_it_is_not_sent_again(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id=request["id"], result={"resultType": "input_required", "inputRequests": ASKED})
        with trio.move_on_after(10):
            raise AssertionError(await puppet.hear())

    async with connect(played(play), elicitation=lambda _: {}) as client:
        with pytest.raises(MethodNotFound, match="is not supported"):
            await client.call("x")
        await trio.sleep(20)


async def test_what_a_function_raises_comes_out_of_the_call(autojump_clock: MockClock) -> None:
    def broken(_: object) -> Any:
        raise ZeroDivisionError

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(
            id=request["id"], result={"resultType": "input_required", "inputRequests": {"who": ASKED["who"]}}
        )
        await puppet.hear("never")

    async with connect(played(play), elicitation=broken) as client:
        with pytest.raises(ZeroDivisionError):
            await client.call("x")


@pytest.mark.requirement("M214")
async def test_what_took_a_question_is_not_kept(autojump_clock: MockClock) -> None:
    asked = 0

    async def play(puppet: Puppet) -> None:
        nonlocal asked
        while True:
            request = await puppet.hear("resources/read")
            if "inputResponses" in request["params"]:
                await puppet.answer(request, **result("resources/read"))
            else:
                asked += 1
                asks = {"resultType": "input_required", "inputRequests": {"where": ASKED["where"]}}
                await puppet.say(id=request["id"], result=asks)

    async with connect(played(play), **answering()) as client:
        await client.read("house://hall")
        await client.read("house://hall")
    assert asked == 2


async def test_a_server_that_asks_without_end_is_refused_and_then_not_answered(autojump_clock: MockClock) -> None:
    asked = 0
    refused: list[Json] = []

    async def think(_: object) -> str:
        nonlocal asked
        asked += 1
        await trio.sleep(10)
        return "hm"

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        params = {"messages": [], "maxTokens": 1}
        for number in range(MAX_QUESTIONS + 10):
            await puppet.say(id=f"q{number}", method="sampling/createMessage", params=params)
        refused.extend([await puppet.hear() for _ in range(10)])
        await puppet.answer(request, content=[])

    async with connect(played(play, R4), sampling=think) as client:
        await client.call("x")
        assert trio.current_time() < 10
    assert asked == MAX_QUESTIONS
    assert [message["error"]["code"] for message in refused] == [OVERLOADED] * 10
