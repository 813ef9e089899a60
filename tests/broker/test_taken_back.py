"""A question of a backend's, when the call that it belongs to is over: nobody has to answer it any more."""

import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R3, R4
from callboard.testing import Peer
from tests.broker.back import Back, Line, form, text
from tests.broker.front import brokered, peer
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {}}


async def asked(back: Back, client: Peer) -> tuple[Line, Json, str, Json]:
    """A call of a legacy client's which was asked a question: where, the call there, the question's id, and how the
    client got it."""
    await client.begin("tools/call", **BOOK)
    line, request = await back.hear()
    question = await line.ask("elicitation/create", **form())
    heard = await client.hear()
    assert heard["method"] == "elicitation/create"
    return line, request, question, heard


@pytest.mark.parametrize("behind", [R3, R4])
async def test_a_client_that_cancels_its_call_need_not_answer_what_it_was_asked(
    behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        line, _, question, heard = await asked(back, client)
        await client.say({"method": "notifications/cancelled", "params": {"requestId": 2}})
        with trio.fail_after(1):
            assert (await line.answered(question))["result"] == {"action": "cancel"}
            taken_back = await client.hear()
        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"]["requestId"] == heard["id"]


async def test_a_client_that_leaves_keeps_no_question_open(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host:
        async with peer(host, R4) as client:
            line, _, question, _ = await asked(back, client)
        with trio.fail_after(1):
            assert (await line.answered(question))["result"] == {"action": "cancel"}


async def test_a_call_that_ends_without_its_answer_takes_the_question_back(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        line, request, _, heard = await asked(back, client)
        await line.answer(request, **text("never mind"))
        with trio.fail_after(1):
            told = [await client.hear(), await client.hear()]
        assert {"method": "notifications/cancelled", "id": heard["id"]} in [
            {"method": one.get("method"), "id": one.get("params", {}).get("requestId")} for one in told
        ]
