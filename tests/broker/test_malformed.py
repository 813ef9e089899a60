"""What a backend may not say: its client gets an error at once, and nothing else is harmed."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.codecs.revisions import Revision, meta
from callboard.codecs.revisions.revision import R4, R5
from callboard.testing import Refusal
from tests.broker.back import Back, form, text
from tests.broker.front import brokered, peer, texts
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {}}
QUESTION: Json = {"who": {"method": "elicitation/create", "params": form()}}

MALFORMED: list[Json] = [
    {"requestState": "s", "inputRequests": []},
    {"requestState": "s", "inputRequests": None},
    {"requestState": "s", "inputRequests": {"who": 1}},
    {"requestState": "s", "inputRequests": {"who": {"method": "tools/call", "params": {}}}},
    {"requestState": 5},
    {"requestState": None, "inputRequests": QUESTION},
    {"requestState": {"a": 1}, "inputRequests": QUESTION},
    {},
    {"inputRequests": {f"q{number}": QUESTION["who"] for number in range(65)}},
]


@pytest.mark.finding("security-21")
@pytest.mark.parametrize("said", MALFORMED, ids=lambda said: str(said)[:60])
@pytest.mark.parametrize("front", [R4, R5])
async def test_malformed_questions_are_an_error_at_once(said: Json, front: Revision, autojump_clock: MockClock) -> None:
    back = Back()
    async with brokered(back.ways) as host, peer(host, front) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.say(id=request["id"], result={"resultType": "input_required", **said})
        with trio.fail_after(1), pytest.raises(Refusal) as refused:
            await client.finish(begun)
        assert refused.value.code == -32603


@pytest.mark.finding("security-21")
@pytest.mark.parametrize("said", [[1], None, "x", 5, {"ok": True}], ids=str)
async def test_questions_with_a_meta_of_any_shape_are_asked(said: Any, autojump_clock: MockClock) -> None:
    back = Back()
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        asked = {"resultType": "input_required", "requestState": "s", "inputRequests": {}, "_meta": said}
        await line.say(id=request["id"], result=asked)
        with trio.fail_after(1):
            result = await client.finish(begun)
        assert result["resultType"] == "input_required"
        assert result["_meta"]["dev.callboard/backend"] == "back"


@pytest.mark.finding("security-21")
@pytest.mark.parametrize("granted", [5, "notes://one", {"notes://one": 1}, None, [5]], ids=str)
async def test_an_acknowledgement_of_any_shape_does_not_end_the_connection(
    granted: Any, autojump_clock: MockClock
) -> None:
    back = Back(holds={"subscriptions/listen"})
    async with brokered(back.ways) as host, peer(host) as client:
        await client.begin("subscriptions/listen", notifications={"resourceSubscriptions": ["notes://one"]})
        await wait_all_tasks_blocked()
        while True:
            line, request = await back.hear("subscriptions/listen")
            if "resourceSubscriptions" in request["params"]["notifications"]:
                break
        about = {meta.SUBSCRIPTION_ID: request["id"]}
        acknowledged = {"resourceSubscriptions": granted}
        await line.tell("notifications/subscriptions/acknowledged", notifications=acknowledged, _meta=about)
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, **text("still here"))
        assert texts([await client.finish(begun)]) == ["still here"]
        assert len(back.lines) == 1


@pytest.mark.finding("security-24")
async def test_a_backend_cannot_say_that_another_server_answers(autojump_clock: MockClock) -> None:
    back = Back()
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, **text("x"), _meta={meta.SERVER_INFO: {"name": "bank", "version": "1"}, "own": 1})
        said = (await client.finish(begun))["_meta"]
        assert said[meta.SERVER_INFO]["name"] == "callboard"
        assert said["own"] == 1


@pytest.mark.finding("security-14")
@pytest.mark.parametrize(
    ("mine", "others", "hears"), [("ann", "bob", 0), ("ann", "ann", 1), ("anonymous", "anonymous", 0)]
)
@pytest.mark.parametrize("capabilities", [None, {}], ids=["may be asked", "plain"])
async def test_log_messages_of_a_shared_connection_reach_no_other_client(
    mine: str, others: str, hears: int, capabilities: Json | None, autojump_clock: MockClock
) -> None:
    back = Back()
    async with (
        brokered(back.ways) as host,
        peer(host, principal=mine, log_level="debug") as listening,
        peer(host, principal=others, capabilities=capabilities) as silent,
    ):
        begun = await listening.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await silent.begin("tools/call", name="other", arguments={"secret": 42})
        await back.hear()
        await line.tell("notifications/message", level="info", data="42")
        await wait_all_tasks_blocked()
        await line.answer(request, **text("done"))
        heard = [await listening.hear()]
        while heard[-1].get("id") != begun:
            heard.append(await listening.hear())
        assert len(heard) - 1 == hears
