"""A modern backend asks in its results: a legacy client is asked by requests, a modern one as it is (5.1, 18.31)."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.revisions import Revision, meta
from callboard.codecs.revisions.revision import R1, R3, R4, R5
from callboard.testing import Answer, Peer, Refusal
from tests.broker.back import Back, Line, form, named, text
from tests.broker.front import brokered, peer
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {"day": "fri"}}
FORM: Json = {"method": "elicitation/create", "params": {"mode": "form", **form()}}
SAMPLE: Json = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}
ROOTS: Json = {"method": "roots/list", "params": {}}
SAID: Json = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hm"}}
HOME: Json = {"roots": [{"uri": "file:///home"}]}
ANSWERS: Mapping[str, Answer] = {
    "elicitation/create": lambda _: named("ada"),
    "sampling/createMessage": lambda _: SAID,
    "roots/list": lambda _: HOME,
}


def url(where: str = "https://example.com/in") -> Json:
    return {"method": "elicitation/create", "params": {"mode": "url", "message": "Log in", "url": where}}


def noting(seen: list[Json], answer: Json) -> Answer:
    """Answers, and keeps what was asked."""

    def note(params: Json) -> Json:
        seen.append(params)
        return answer

    return note


def refusing(code: int = -1) -> Answer:
    def refuse(_: Json) -> Json:
        raise Refusal(code, "I would rather not")

    return refuse


async def ask(line: Line, request: Json, state: str | None = "s1", **questions: Json) -> None:
    """Answer a call by questions."""
    asked: Json = {"resultType": "input_required"}
    if questions:
        asked["inputRequests"] = questions
    if state is not None:
        asked["requestState"] = state
    await line.say(id=request["id"], result=asked)


async def in_step(client: Peer, begun: int, nursery: trio.Nursery) -> trio.MemoryReceiveChannel[Any]:
    """Have the client answer what it is asked, while the test plays the backend."""
    send, receive = trio.open_memory_channel[Any](1)

    async def finish() -> None:
        try:
            await send.send(await client.finish(begun))
        except Refusal as refusal:
            await send.send(refusal)

    nursery.start_soon(finish)
    return receive


async def play(client: Peer, back: Back, *rounds: Any, method: str = "tools/call", **params: Any) -> Any:
    """One request through as many *rounds* as the backend has; what the client gets. Each is a pair of state and
    questions, or the result. Returns what the client got; what the backend heard is in `back.told(method)`."""
    begun = await client.begin(method, **(params or BOOK))
    async with trio.open_nursery() as nursery:
        got = await in_step(client, begun, nursery)
        for one in rounds:
            line, request = await back.hear(method)
            if isinstance(one, tuple):
                await ask(line, request, one[0], **one[1])
            else:
                await line.answer(request, **one)
        return await got.receive()


# Legacy clients.


@pytest.mark.parametrize("revision", [R3, R4])
async def test_questions_become_requests_and_the_answers_the_next_round(
    revision: Revision, autojump_clock: MockClock
) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, revision, answers=ANSWERS) as client:
        done = await play(client, back, ("xyz", {"when": FORM, "model": SAMPLE, "where": ROOTS}), text("booked"))
        assert done["content"][0]["text"] == "booked"
        assert "resultType" not in done
        first, second = back.told("tools/call")
        assert {key: second[key] for key in BOOK} == {key: first[key] for key in BOOK} == BOOK
        assert second["requestState"] == "xyz"
        assert second["inputResponses"] == {"when": named("ada"), "model": SAID, "where": HOME}
        assert first["_meta"][meta.CLIENT_CAPABILITIES] == second["_meta"][meta.CLIENT_CAPABILITIES]
        assert "requestState" not in first


async def test_questions_of_one_round_are_asked_at_once(autojump_clock: MockClock) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        questions = {name: {**FORM, "params": {"mode": "form", **form(name)}} for name in ("one", "two")}
        await ask(line, request, "s1", **questions)
        for asked in (await client.hear(), await client.hear()):
            await client.say({"id": asked["id"], "result": named(asked["params"]["message"])})
        line, request = await back.hear()
        assert request["params"]["inputResponses"] == {"one": named("one"), "two": named("two")}
        await line.answer(request, **text("done"))
        await client.finish(begun)


async def test_the_oldest_clients_are_asked_what_they_have_words_for(autojump_clock: MockClock) -> None:
    back = Back(R5)
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    sample = {**SAMPLE, "params": {"messages": [{"role": "user", "content": blocks}], "maxTokens": 9}}
    seen: list[Json] = []
    answers = {**ANSWERS, "sampling/createMessage": noting(seen, SAID)}
    async with brokered(back.ways) as host:
        async with peer(host, R1, answers=answers, capabilities={"sampling": {}, "roots": {}}) as client:
            await play(client, back, ("s", {"model": sample}), text("done"))
        [params] = seen
        assert [one["content"]["text"] for one in params["messages"]] == ["a", "b"]
        assert back.told("tools/call")[0]["_meta"][meta.CLIENT_CAPABILITIES] == {"sampling": {}, "roots": {}}


async def test_what_a_client_has_no_words_for_is_answered_in_its_place(autojump_clock: MockClock) -> None:
    back = Back(R5)
    many = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    choice = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"of": many}}}
    audio = {"role": "user", "content": {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}}
    async with brokered(back.ways) as host:
        async with peer(host, R3, answers=ANSWERS) as client:
            question = {"method": "elicitation/create", "params": {"mode": "form", **choice}}
            await play(client, back, ("s", {"which": question}), text("done"))
            assert back.told("tools/call")[-1]["inputResponses"] == {"which": {"action": "cancel"}}
        async with peer(host, R1, answers=ANSWERS) as client:
            sample = {**SAMPLE, "params": {"messages": [audio], "maxTokens": 9}}
            refused = await play(client, back, ("s", {"model": sample}))
            assert refused["isError"] is True


async def test_an_elicitation_that_the_client_refuses_is_a_cancel(autojump_clock: MockClock) -> None:
    back = Back(R5)
    answers = {**ANSWERS, "elicitation/create": refusing(-32603)}
    async with brokered(back.ways) as host, peer(host, R4, answers=answers) as client:
        await play(client, back, ("s", {"who": FORM}), text("done"))
        assert back.told("tools/call")[-1]["inputResponses"] == {"who": {"action": "cancel"}}


@pytest.mark.parametrize("question", [SAMPLE, ROOTS])
async def test_sampling_or_roots_that_the_client_refuses_end_its_request(
    question: Json, autojump_clock: MockClock
) -> None:
    back = Back(R5)
    answers = dict.fromkeys(ANSWERS, refusing())
    async with brokered(back.ways) as host, peer(host, R4, answers=answers) as client:
        refused = await play(client, back, ("s", {"it": question}))
        assert refused["isError"] is True
        assert question["method"] in refused["content"][0]["text"]
        error = await play(client, back, ("s", {"it": question}), method="resources/read", uri="notes://one")
        assert error.code == -32603
        assert error.data["input"] == "it"
        assert error.data["cause"]["code"] == -1
        error = await play(client, back, ("s", {"it": question}), method="prompts/get", name="brief")
        assert error.code == -32603
        assert len(back.told("tools/call")) == 1  # it would only ask again


async def test_a_backend_that_only_wants_to_be_asked_again_is_after_a_while(autojump_clock: MockClock) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        started = trio.current_time()
        done = await play(client, back, *[(f"s{number}", {}) for number in range(8)], text("done"))
        assert done["content"][0]["text"] == "done"
        assert 5 < trio.current_time() - started < 60
        assert [one.get("requestState") for one in back.told("tools/call")] == [None, *(f"s{n}" for n in range(8))]
        assert not any("inputResponses" in one for one in back.told("tools/call"))
        assert not client.heard


async def test_rounds_have_an_end(autojump_clock: MockClock) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, R4, answers=ANSWERS) as client:
        error = await play(client, back, *[("s", {"who": FORM})] * 16)
        assert isinstance(error, Refusal)
        assert "16" in error.message
        assert len(back.told("tools/call")) == 16


@pytest.mark.parametrize(("revision", "code"), [(R4, -32603), (R5, -32021)])
async def test_a_question_that_the_client_did_not_say_it_answers_is_the_backends_fault(
    revision: Revision, code: int, autojump_clock: MockClock
) -> None:
    back = Back(R5)
    declared: list[Json] = [{}, {"roots": {}}]
    for capabilities in declared:
        async with brokered(back.ways) as host, peer(host, revision, capabilities=capabilities) as client:
            error = await play(client, back, ("s", {"model": SAMPLE}))
            assert isinstance(error, Refusal)
            assert error.code == code
            if revision is R5:
                assert error.data["requiredCapabilities"] == {"sampling": {}}


async def test_a_client_that_cancels_is_not_asked_any_more_and_nothing_runs_at_the_backend(
    autojump_clock: MockClock,
) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await ask(line, request, who=FORM)
        question = await client.hear()
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        cancelled = await client.hear()
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == question["id"]
        await trio.testing.wait_all_tasks_blocked()
        assert len(back.told("tools/call")) == 1
        assert not back.told("notifications/cancelled")


async def test_progress_of_all_rounds_rises(autojump_clock: MockClock) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, R4, answers=ANSWERS) as client:
        begun = await client.begin("tools/call", **BOOK, meta={"progressToken": "t"})
        async with trio.open_nursery() as nursery:
            got = await in_step(client, begun, nursery)
            for values in ((1, 2), (1, 3)):
                line, request = await back.hear()
                for value in values:
                    token = request["params"]["_meta"]["progressToken"]
                    await line.tell("notifications/progress", progressToken=token, progress=value)
                    await trio.sleep(1)
                if values == (1, 2):
                    await ask(line, request, who=FORM)
            await line.answer(request, **text("done"))
            await got.receive()
        assert [one["progress"] for one in client.notifications("notifications/progress")] == [1, 2, 3]


# A URL (13).


async def test_a_url_gets_an_id_of_ours_which_is_complete_when_the_call_is(autojump_clock: MockClock) -> None:
    back, seen = Back(R5), list[Json]()
    answers = {"elicitation/create": noting(seen, {"action": "accept"})}
    async with brokered(back.ways) as host, peer(host, R4, answers=answers) as client:
        other = url("https://example.com/other")
        done = await play(
            client, back, ("s", {"go": url()}), ("s", {"go": url()}), ("s", {"to": other}), text("you are in")
        )
        assert done["content"][0]["text"] == "you are in"
        assert [one["url"] for one in seen] == [url()["params"]["url"], other["params"]["url"]]  # no URL twice
        ids = [one["elicitationId"] for one in seen]
        told = client.notifications("notifications/elicitation/complete")
        assert [one["elicitationId"] for one in told] == ids
        assert back.told("tools/call")[2]["inputResponses"] == {"go": {"action": "accept"}}


# Modern clients.


async def test_questions_reach_a_modern_client_as_they_are_and_the_state_is_sealed(autojump_clock: MockClock) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, principal="ada") as ada, peer(host, principal="eve") as eve:
        asked = await play(ada, back, ("secret", {"when": FORM, "go": url()}))
        assert asked["inputRequests"] == {"when": FORM, "go": url()}
        assert "secret" not in asked["requestState"]
        given = {
            "inputResponses": {"when": named("ada"), "go": {"action": "accept"}},
            "requestState": asked["requestState"],
        }
        for client, params in ((eve, BOOK), (ada, {**BOOK, "arguments": {}})):
            with pytest.raises(Refusal, match="Invalid or expired requestState") as refused:
                await client.request("tools/call", **params, **given)
            assert refused.value.code == -32602
        done = await play(ada, back, text("done"), **BOOK, **given)
        assert done["content"][0]["text"] == "done"
        assert back.told("tools/call")[-1]["requestState"] == "secret"
        assert back.told("tools/call")[-1]["inputResponses"] == given["inputResponses"]
        assert len(back.told("tools/call")) == 2


async def test_a_result_of_a_kind_that_nobody_knows_is_the_backends_fault(autojump_clock: MockClock) -> None:
    back = Back(R5)
    for revision in (R4, R5):
        async with brokered(back.ways) as host, peer(host, revision) as client:
            error = await play(client, back, {"resultType": "surprise"})
            assert isinstance(error, Refusal)
            assert error.code == -32603


async def test_a_question_in_answer_to_what_may_not_ask_is_the_backends_fault(autojump_clock: MockClock) -> None:
    back = Back(R5)
    params = {"ref": {"type": "ref/prompt", "name": "brief"}, "argument": {"name": "x", "value": ""}}
    for revision in (R4, R5):
        async with brokered(back.ways) as host, peer(host, revision, answers=ANSWERS) as client:
            error = await play(client, back, ("s", {"who": FORM}), method="completion/complete", **params)
            assert isinstance(error, Refusal)
            assert error.code == -32603
            assert error.data["reason"] == "invalid_backend_result"
