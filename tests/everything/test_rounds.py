"""The rounds of the modern era, with the server of examples/everything.py."""

from functools import partial
from typing import Any

import pytest
from trio.testing import MockClock

from callboard import Revision
from callboard.testing import Peer, Refusal
from tests.everything.stage import ANSWERS, ROOTS, SAMPLED, WITH_FORMS, Json, accept, connect, text

# Rounds of the modern era.

ASK = "test_input_required_result_"


async def ask(client: Peer, tool: str, **more: Any) -> Json:
    return await client.request("tools/call", name=ASK + tool, arguments={}, **more)


def reply(asked: Json, **responses: Json) -> Json:
    """A retry with these answers and the state that came along."""
    assert asked["resultType"] == "input_required"
    return {"inputResponses": responses, "requestState": asked["requestState"]}


def methods(asked: Json) -> dict[str, str]:
    return {key: request["method"] for key, request in asked["inputRequests"].items()}


async def test_a_round_for_the_user(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "elicitation")
        assert methods(asked) == {"user_name": "elicitation/create"}
        form = asked["inputRequests"]["user_name"]["params"]["requestedSchema"]
        assert form["properties"] == {"name": {"type": "string"}}
        done = await ask(client, "elicitation", **reply(asked, user_name=accept(name="Alice")))
        assert text(done) == "Hello, Alice!"
        assert done["resultType"] == "complete"


async def test_a_round_for_the_model(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "sampling")
        assert methods(asked) == {"capital_question": "sampling/createMessage"}
        params = asked["inputRequests"]["capital_question"]["params"]
        assert params["messages"][0]["content"]["text"] == "What is the capital of France?"
        assert params["maxTokens"] == 100
        done = await ask(client, "sampling", **reply(asked, capital_question=SAMPLED))
        assert text(done) == "The model says: Paris"


async def test_a_round_for_the_roots(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "list_roots")
        assert methods(asked) == {"client_roots": "roots/list"}
        done = await ask(client, "list_roots", **reply(asked, client_roots=ROOTS))
        assert text(done) == "Roots: file:///test/root"


async def test_a_handler_that_keeps_nothing_goes_by_its_state(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "request_state")
        assert methods(asked) == {"confirm": "elicitation/create"}
        assert isinstance(asked["requestState"], str)
        assert text(await ask(client, "request_state", **reply(asked, confirm=accept(ok=True)))) == "state-ok"


async def test_three_questions_in_one_round_and_only_the_missing_one_again(autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "multiple_inputs")
        assert methods(asked) == {
            "user_name": "elicitation/create",
            "greeting": "sampling/createMessage",
            "client_roots": "roots/list",
        }
        again = await ask(client, "multiple_inputs", **reply(asked, user_name=accept(name="Ada"), client_roots=ROOTS))
        assert methods(again) == {"greeting": "sampling/createMessage"}
        done = await ask(client, "multiple_inputs", **reply(again, greeting=SAMPLED))
        assert text(done) == "Paris Ada works in 1 folders."


async def test_two_rounds_with_a_state_each(autojump_clock: MockClock) -> None:
    async with connect() as client:
        first = await ask(client, "multi_round")
        assert methods(first) == {"step1": "elicitation/create"}
        second = await ask(client, "multi_round", **reply(first, step1=accept(name="Ada")))
        assert methods(second) == {"step2": "elicitation/create"}
        assert second["requestState"] != first["requestState"]
        done = await ask(client, "multi_round", **reply(second, step2=accept(colour="blue")))
        assert text(done) == "Ada likes blue."


@pytest.mark.parametrize("with_state", [True, False])
async def test_an_answer_under_another_key_is_asked_for_again(with_state: bool, autojump_clock: MockClock) -> None:
    async with connect() as client:
        asked = await ask(client, "elicitation")
        answered = reply(asked, wrong_key=accept(data="wrong"))
        if not with_state:
            del answered["requestState"]
        assert methods(await ask(client, "elicitation", **answered)) == {"user_name": "elicitation/create"}


async def test_answers_that_nobody_asked_for_are_ignored(autojump_clock: MockClock) -> None:
    responses = {"user_name": accept(name="Alice"), "unknown": accept(foo="bar"), "another": accept(baz=123)}
    async with connect() as client:
        assert text(await ask(client, "elicitation", inputResponses=responses)) == "Hello, Alice!"


@pytest.mark.parametrize("responses", [7, [], {"user_name": 12345}, {"user_name": ROOTS}], ids=str)
async def test_answers_of_the_wrong_shape_are_refused(responses: Any, autojump_clock: MockClock) -> None:
    async with connect() as client:
        with pytest.raises(Refusal, match="-32602"):
            await ask(client, "elicitation", inputResponses=responses)
        asked = await ask(client, "elicitation")
        with pytest.raises(Refusal, match="-3260"):
            await ask(client, "elicitation", inputResponses=responses, requestState=asked["requestState"])
        done = await ask(client, "elicitation", **reply(asked, user_name=accept(name="Alice")))
        assert text(done) == "Hello, Alice!"


@pytest.mark.parametrize("tool", ["tampered_state", "request_state"])
async def test_a_state_that_was_tampered_with_is_refused(tool: str, autojump_clock: MockClock) -> None:
    async with connect() as client:
        good = reply(await ask(client, tool), confirm=accept(ok=True))
        with pytest.raises(Refusal, match="-32602"):
            await ask(client, tool, **{**good, "requestState": good["requestState"] + "-TAMPERED"})
        assert "resultType" in await ask(client, tool, **good)


async def test_only_what_the_client_can_answer_is_asked(autojump_clock: MockClock) -> None:
    async with connect(capabilities={"sampling": {}}) as client:
        assert methods(await ask(client, "capabilities")) == {"model_name": "sampling/createMessage"}
    async with connect(capabilities={"elicitation": {}}) as client:
        assert methods(await ask(client, "capabilities")) == {"user_name": "elicitation/create"}


async def test_a_prompt_asks_too(autojump_clock: MockClock) -> None:
    async with connect() as client:
        get = partial(client.request, "prompts/get", name="test_input_required_result_prompt")
        asked = await get()
        assert methods(asked) == {"user_context": "elicitation/create"}
        form = asked["inputRequests"]["user_context"]["params"]["requestedSchema"]
        assert form["properties"] == {"context": {"type": "string"}}
        done = await get(**reply(asked, user_context=accept(context="testing")))
        assert "testing" in done["messages"][0]["content"]["text"]


@WITH_FORMS
async def test_every_tool_that_asks_by_name_serves_every_revision_with_forms(
    revision: Revision, autojump_clock: MockClock
) -> None:
    by_field = {"name": "Ada", "colour": "blue", "ok": True, "context": "testing"}

    def fill_in(params: Json) -> Json:
        return accept(**{name: by_field[name] for name in params["requestedSchema"]["properties"]})

    said = {
        "elicitation": "Hello, Ada!",
        "sampling": "The model says: Paris",
        "list_roots": "Roots: file:///test/root",
        "request_state": "state-ok",
        "multiple_inputs": "Paris Ada works in 1 folders.",
        "multi_round": "Ada likes blue.",
        "tampered_state": "Confirmed",
        "capabilities": "Hello, Paris!",
    }
    async with connect(revision, answers={**ANSWERS, "elicitation/create": fill_in}) as client:
        assert {tool: text(await client.call(ASK + tool)) for tool in said} == said
