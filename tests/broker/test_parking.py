"""A modern client, a legacy backend that asks: the call is parked, and goes on with the retry (BRIDGING.md, 5.2)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.server.host import Host
from callboard.codecs.revisions.revision import R3, R4
from callboard.testing import EVERYTHING, Peer, Refusal
from tests.broker.back import Back, Line, form, named, text
from tests.broker.front import brokered, peer
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {"day": "fri"}}
ONE_TEXT = "Invalid or expired requestState"


@asynccontextmanager
async def staged(back: Back | None = None) -> AsyncIterator[tuple[Back, Host, Peer]]:
    back = back or Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        yield back, host, client


async def call(client: Peer, **more: Any) -> Json:
    return await client.request("tools/call", **{**BOOK, **more})


async def asked_once(back: Back, client: Peer, **more: Any) -> tuple[Line, Json, str, Json]:
    """A call that was asked one question: the line, the call as it came there, the question's id, and what the client
    got."""
    begun = await client.begin("tools/call", **{**BOOK, **more})
    line, request = await back.hear()
    question = await line.ask("elicitation/create", **form())
    return line, request, question, await client.finish(begun)


def retry(result: Json, *answers: Json) -> Json:
    return {
        "inputResponses": dict(zip(result["inputRequests"], answers, strict=False)),
        "requestState": result["requestState"],
    }


async def test_a_question_ends_the_request_and_its_answer_lets_the_same_call_go_on(autojump_clock: MockClock) -> None:
    async with staged(Back(R3)) as (back, _, client):
        line, request, question, asked = await asked_once(back, client)
        assert request["params"] == BOOK
        assert line.declared == EVERYTHING
        assert asked["resultType"] == "input_required"
        [entry] = asked["inputRequests"].values()
        assert entry == {"method": "elicitation/create", "params": {"mode": "form", **form()}}
        begun = await client.begin("tools/call", **BOOK, **retry(asked, named("ada")))
        assert (await line.answered(question))["result"] == named("ada")
        await line.answer(request, **text("booked"))
        done = await client.finish(begun)
        assert (done["resultType"], done["content"]) == ("complete", text("booked")["content"])
        assert len(back.told("tools/call")) == 1


async def test_two_questions_at_once_are_one_result_with_two_entries(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        first = await line.ask("elicitation/create", **form("one?"))
        second = await line.ask("roots/list")
        asked = await client.finish(begun)
        assert [entry["method"] for entry in asked["inputRequests"].values()] == ["elicitation/create", "roots/list"]
        roots = {"roots": [{"uri": "file:///home"}]}
        begun = await client.begin("tools/call", **BOOK, **retry(asked, named("ada"), roots))
        assert (await line.answered(first))["result"] == named("ada")
        assert (await line.answered(second))["result"] == roots
        await line.answer(request, **text("both"))
        assert (await client.finish(begun))["content"][0]["text"] == "both"


async def test_questions_in_sequence_are_rounds_with_a_state_each(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        line, request, _, first = await asked_once(back, client)
        begun = await client.begin("tools/call", **BOOK, **retry(first, named("ada")))
        await line.answered("q1")
        question = await line.ask("sampling/createMessage", messages=[], maxTokens=9)
        second = await client.finish(begun)
        assert second["requestState"] != first["requestState"]
        assert not set(first["inputRequests"]) & set(second["inputRequests"])
        with pytest.raises(Refusal, match=ONE_TEXT):  # an older round
            await call(client, **retry(first, named("ada")))
        said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hm"}}
        begun = await client.begin("tools/call", **BOOK, **retry(second, said))
        assert (await line.answered(question))["result"] == said
        await line.answer(request, **text("done"))
        assert (await client.finish(begun))["content"][0]["text"] == "done"


async def test_an_answer_that_is_missing_is_asked_for_again(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        questions = [await line.ask("elicitation/create", **form(which)) for which in ("one?", "two?")]
        asked = await client.finish(begun)
        one, two = asked["inputRequests"]
        given = {"inputResponses": {one: named("ada"), "nobody's": named("x")}, "requestState": asked["requestState"]}
        again = await call(client, **given)
        assert list(again["inputRequests"]) == [two]
        begun = await client.begin("tools/call", **BOOK, **retry(again, named("bob")))
        answers = [(await line.answered(question))["result"] for question in questions]
        assert answers == [named("ada"), named("bob")]
        await line.answer(request, **text("done"))
        await client.finish(begun)


async def test_a_state_is_only_good_for_its_call_and_its_principal(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, principal="ada") as ada, peer(host, principal="eve") as eve:
        line, request, question, asked = await asked_once(back, ada)
        given = retry(asked, named("ada"))
        refusals = []
        for client, more in (
            (ada, {"arguments": {"day": "sat"}}),
            (ada, {"name": "other"}),
            (ada, {"requestState": asked["requestState"][:-2] + "AA"}),
            (eve, {}),
        ):
            with pytest.raises(Refusal) as refused:
                await call(client, **{**given, **more})
            refusals.append((refused.value.code, refused.value.message))
        assert set(refusals) == {(-32602, ONE_TEXT)}
        with pytest.raises(Refusal, match="-32602"):
            await call(ada, **{**given, "inputResponses": {key: {"action": 7} for key in given["inputResponses"]}})
        assert question not in line.answers  # the park is untouched
        begun = await ada.begin("tools/call", **BOOK, **given)
        await line.answered(question)
        await line.answer(request, **text("booked"))
        assert (await ada.finish(begun))["content"][0]["text"] == "booked"


async def test_what_a_server_finishes_while_it_is_parked_is_kept_for_the_retry(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        line, request, question, asked = await asked_once(back, client)
        await line.answer(request, **text("too late"))
        await trio.testing.wait_all_tasks_blocked()
        done = await call(client, **retry(asked, named("ada")))
        assert done["content"][0]["text"] == "too late"
        assert "result" not in line.answers.get(question, {})


async def test_progress_while_the_user_thinks_does_not_cut_his_time_short(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        line, request, question, asked = await asked_once(back, client, meta={"progressToken": 1})
        token = request["params"]["_meta"]["progressToken"]
        await line.tell("notifications/progress", progressToken=token, progress=1, message="waiting for the user")
        await trio.sleep(300)
        begun = await client.begin("tools/call", **BOOK, **retry(asked, named("ada")))
        assert (await line.answered(question))["result"] == named("ada")
        await line.answer(request, **text("booked"))
        assert (await client.finish(begun))["content"][0]["text"] == "booked"


async def test_a_question_that_the_server_takes_back_is_dropped(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        line, request, question, asked = await asked_once(back, client)
        await line.tell("notifications/cancelled", requestId=question, reason="never mind")
        await trio.testing.wait_all_tasks_blocked()
        begun = await client.begin("tools/call", **BOOK, **retry(asked, named("ada")))
        await trio.testing.wait_all_tasks_blocked()
        assert question not in line.answers
        await line.answer(request, **text("without you"))
        assert (await client.finish(begun))["content"][0]["text"] == "without you"


async def test_a_backend_that_dies_while_a_call_is_parked_is_told_to_the_retry(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        line, _, _, asked = await asked_once(back, client)
        line.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Refusal) as lost:
            await call(client, **retry(asked, named("ada")))
        assert lost.value.code == -31001
        assert lost.value.data["reason"] == "server lost"
        assert lost.value.data["origin"] == "broker"


async def test_what_is_never_retried_is_ended_at_the_backend(autojump_clock: MockClock) -> None:
    async with staged() as (back, host, client):
        line, request, question, asked = await asked_once(back, client)
        assert (await line.answered(question))["result"] == {"action": "cancel"}
        assert trio.current_time() == pytest.approx(host.parking.ttl, abs=1)
        _, cancelled = await back.hear("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]
        with pytest.raises(Refusal, match=ONE_TEXT):
            await call(client, **retry(asked, named("ada")))
        begun = await client.begin("tools/call", **BOOK)  # and the way is free again
        free, again = await back.hear()
        assert free is line
        await line.answer(again, **text("anew"))
        await client.finish(begun)


async def test_sampling_and_roots_that_are_never_answered_are_errors_at_the_backend(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        begun = await client.begin("tools/call", **BOOK)
        line, _ = await back.hear()
        model = await line.ask("sampling/createMessage", messages=[], maxTokens=9)
        roots = await line.ask("roots/list")
        await client.finish(begun)
        assert (await line.answered(model))["error"]["code"] == -1
        assert (await line.answered(roots))["error"]["code"] == -32603


async def test_a_retry_that_is_cancelled_cancels_the_call_at_the_backend(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        line, request, question, asked = await asked_once(back, client)
        begun = await client.begin("tools/call", **BOOK, **retry(asked, named("ada")))
        await line.answered(question)
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        _, cancelled = await back.hear("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]
        with pytest.raises(Refusal, match=ONE_TEXT):
            await call(client, **retry(asked, named("ada")))


async def test_a_no_is_an_answer_like_any_other(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        line, request, question, asked = await asked_once(back, client)
        begun = await client.begin("tools/call", **BOOK, **retry(asked, {"action": "decline"}))
        assert (await line.answered(question))["result"] == {"action": "decline"}
        await line.answer(request, **text("as you wish"))
        await client.finish(begun)


async def test_what_came_of_a_retry_may_not_be_kept(autojump_clock: MockClock) -> None:
    async with staged() as (back, _, client):
        begun = await client.begin("resources/read", uri="notes://one")
        line, request = await back.hear("resources/read")
        await line.ask("elicitation/create", **form())
        asked = await client.finish(begun)
        begun = await client.begin("resources/read", uri="notes://one", **retry(asked, named("ada")))
        await line.answered("q1")
        await line.answer(request, contents=[{"uri": "notes://one", "text": "x"}])
        done = await client.finish(begun)
        assert (done["ttlMs"], done["cacheScope"]) == (0, "private")


async def test_too_many_parked_calls_refuse_the_new_question_and_not_the_call(autojump_clock: MockClock) -> None:
    async with staged() as (back, host, client):
        host.parking._shares.allow(1, 1)
        await asked_once(back, client)
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        question = await line.ask("elicitation/create", **form())
        assert (await line.answered(question))["result"] == {"action": "cancel"}
        await line.answer(request, **text("then without"))
        assert (await client.finish(begun))["content"][0]["text"] == "then without"
