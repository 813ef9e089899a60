"""Corner cases of the bridge by their numbers in BRIDGING.md, section 18, as far as no other test has them."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R4, R5
from tests.broker.back import SUBSCRIPTION, Back, form, named, text
from tests.broker.front import brokered, peer, ways_in
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {"day": "fri"}}
ANSWERS = {"elicitation/create": lambda _: named("ada")}


@pytest.mark.parametrize("behind", [R4, R5])
@pytest.mark.parametrize("subscription", [7, "7", "abc"])
async def test_18_a_subscription_has_the_very_id_that_the_client_gave(
    subscription: int | str, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host) as client:
        wanted = {"notifications": {"resourceSubscriptions": ["notes://one"]}, "_meta": client._meta()}
        await client.say({"id": subscription, "method": "subscriptions/listen", "params": wanted})
        about = (await client.hear())["params"]["_meta"]
        assert about[SUBSCRIPTION] == subscription
        assert type(about[SUBSCRIPTION]) is type(subscription)


@pytest.mark.parametrize("behind", [R4, R5])
async def test_19_an_id_may_be_used_again_and_backends_see_ids_of_the_brokers(
    behind: Revision, autojump_clock: MockClock
) -> None:
    back, seen = Back(behind), []
    async with brokered(back.ways) as host, peer(host) as client:
        for _ in range(3):
            await client.say({"id": "same", "method": "tools/call", "params": {**BOOK, "_meta": client._meta()}})
            line, request = await back.hear()
            seen.append(request["id"])
            await line.answer(request, **text("done"))
            assert (await client.hear())["id"] == "same"
    assert len(set(seen)) == 3


async def test_27_a_legacy_child_that_says_nothing_to_what_it_does_not_know_is_met_all_the_same(
    autojump_clock: MockClock,
) -> None:
    back = Back(R1, hangs=True)
    async with brokered(back.ways) as host, peer(host, capabilities={}) as client:
        assert trio.current_time() == 5
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, **text("done"))
        await client.finish(begun)


async def test_28_a_legacy_child_that_dies_of_what_it_does_not_know_is_not_asked_again(
    autojump_clock: MockClock,
) -> None:
    back = Back(R1, dies=True, key="mortal")
    async with brokered(back.ways) as host, peer(host, R4) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, **text("done"))
        await client.finish(begun)
        assert len(back.told("server/discover")) == 1


@pytest.mark.parametrize("front", [R4, R5])
@pytest.mark.parametrize("middle", [R4, R5])
@pytest.mark.parametrize("behind", [R4, R5])
async def test_30_two_brokers_in_a_row_ask_as_one_does(
    front: Revision, middle: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with (
        brokered(back.ways, name="inner", revisions=frozenset({middle})) as inner,
        brokered(ways_in(inner), name="outer") as outer,
        peer(outer, front, answers=ANSWERS) as client,
        trio.open_nursery() as nursery,
    ):

        async def play() -> None:
            line, request = await back.hear()
            if behind is R5:
                asked = {"who": {"method": "elicitation/create", "params": {"mode": "form", **form()}}}
                state = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
                await line.say(id=request["id"], result=state)
                line, request = await back.hear()
                assert request["params"]["requestState"] == "s"
                assert request["params"]["inputResponses"] == {"who": named("ada")}
            else:
                answer = await line.answered(await line.ask("elicitation/create", **form()))
                assert answer["result"] == named("ada")
            await line.answer(request, **text("booked"))

        nursery.start_soon(play)
        assert (await client.call("book", day="fri"))["content"][0]["text"] == "booked"
