"""What is followed stays followed, and no longer than somebody wants it: whoever leaves, breaks or comes back."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.testing import Peer, Refusal
from tests.broker.back import Back
from tests.broker.front import STUCK, backend, brokered, peer
from tests.broker.test_following import BEHIND, ONE, follow, followed, touch, unfollow, updates
from tests.client.stage import Json

TWO = "notes://two"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"


async def begin(client: Peer, *uris: str) -> int:
    """Have a modern client follow, without waiting for what comes of it."""
    begun = await client.begin("subscriptions/listen", notifications={"resourceSubscriptions": list(uris)})
    await wait_all_tasks_blocked()
    return begun


async def granted(client: Peer) -> Json:
    """What the client is told that it will hear of."""
    acknowledged = await client.hear()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    found: Json = acknowledged["params"]["notifications"]
    return found


async def test_a_subscriber_hears_although_another_of_the_same_principal_left_while_it_began(
    autojump_clock: MockClock,
) -> None:
    back = Back(R4, holds={SUBSCRIBE})
    async with brokered(back.ways) as host, peer(host, principal="ann") as client:
        await begin(client, ONE)
        async with peer(host, R4, principal="ann"):
            pass
        line, request = await back.hear(SUBSCRIBE)
        await line.answer(request)
        assert await granted(client) == {"resourceSubscriptions": [ONE]}
        await touch(back, ONE)
        assert len(await updates(client)) == 1


async def test_who_leaves_before_all_is_followed_follows_nothing(autojump_clock: MockClock) -> None:
    back = Back(R4, holds={SUBSCRIBE}, resources=[{"uri": uri, "name": uri} for uri in (ONE, TWO)])
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await begin(client, ONE, TWO)
        line, request = await back.hear(SUBSCRIBE)
        await line.answer(request)
        await wait_all_tasks_blocked()
        await unfollow(client, begun)
        assert sorted(one["uri"] for one in back.told(UNSUBSCRIBE)) == [ONE, TWO]


async def test_who_leaves_while_another_begins_is_not_counted(autojump_clock: MockClock) -> None:
    back = Back(R4, holds={SUBSCRIBE})
    async with brokered(back.ways) as host, peer(host) as first, peer(host) as second:
        begun = [await begin(client, ONE) for client in (first, second)]
        await unfollow(second, begun[1])
        line, request = await back.hear(SUBSCRIBE)
        await line.answer(request)
        await granted(first)
        await unfollow(first, begun[0])
        assert followed(back) == (1, 1)


async def test_who_began_and_leaves_takes_nothing_from_who_waits(autojump_clock: MockClock) -> None:
    back = Back(R4, holds={SUBSCRIBE})
    async with brokered(back.ways) as host, peer(host) as first, peer(host) as second:
        begun = [await begin(client, ONE) for client in (first, second)]
        await back.hear(SUBSCRIBE)
        await unfollow(first, begun[0])
        line, request = await back.hear(SUBSCRIBE)
        await line.answer(request)
        assert await granted(second) == {"resourceSubscriptions": [ONE]}


async def test_nobody_listens_to_a_backend_that_has_granted_nothing(autojump_clock: MockClock) -> None:
    back = Back(R5, refused={ONE})
    async with brokered(back.ways) as host, peer(host) as client:
        await begin(client, ONE)
        assert await granted(client) == {}
        await wait_all_tasks_blocked()
        assert followed(back) == (1, 1)


async def test_a_connection_of_ones_own_that_breaks_is_followed_on_anew_and_told_of_once(
    autojump_clock: MockClock,
) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, principal="ann") as client:
        await follow(client, ONE)
        [line] = [line for line in back.lines if line.told(SUBSCRIBE)]
        line.hang_up()
        with trio.fail_after(30):
            while followed(back)[0] < 2:
                await back.wait_news()
        await wait_all_tasks_blocked()
        assert [told["uri"] for told in await updates(client)] == [ONE]
        assert [line for line in back.lines if line.told("tools/list")] == back.lines[:1]


async def test_a_connection_on_which_something_is_heard_makes_no_room_for_others(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with (
        brokered(backend(back.ways, max_connections=2)) as host,
        peer(host, principal="ann") as ann,
        peer(host, principal="bob") as bob,
    ):
        await follow(ann, ONE)
        with pytest.raises(Refusal, match="in use"):
            await bob.request("tools/call", name="book", arguments={})
        await touch(back, ONE)
        assert len(await updates(ann)) == 1


async def test_a_stream_that_the_backend_breaks_off_with_an_error_is_opened_anew(autojump_clock: MockClock) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host) as client:
        await follow(client, ONE)
        line = back.lines[-1]
        [begun] = [begun for begun, wanted in line.listens.items() if "resourceSubscriptions" in wanted]
        await line.refuse({"id": begun}, -32000, "too many changes for this subscriber")
        with trio.fail_after(30):
            while followed(back)[0] < 2:
                await back.wait_news()
        await wait_all_tasks_blocked()
        assert [told["uri"] for told in await updates(client)] == [ONE]


@BEHIND
async def test_what_is_followed_outlasts_a_change_of_how_its_backend_is_configured(
    behind: Revision, autojump_clock: MockClock
) -> None:
    before, after = Back(behind), Back(behind)
    broker = Broker([backend(before.ways)])
    with trio.fail_after(STUCK):
        async with broker.host(parking=Parking("broker")) as host, peer(host) as client:
            begun = await follow(client, ONE)
            await broker.reload([backend(after.ways, timeout=5.0)])
            while not followed(after)[0]:
                await after.wait_news()
            await wait_all_tasks_blocked()
            assert len(await updates(client)) == 1
            await touch(after, ONE)
            assert [told["uri"] for told in await updates(client)] == [ONE, ONE]
            await unfollow(client, begun)
            assert followed(after) == (1, 1)


async def test_the_time_that_a_request_may_take_is_that_of_the_configuration_as_it_is_now(
    autojump_clock: MockClock,
) -> None:
    before, after = Back(R4), Back(R4)
    broker = Broker([backend(before.ways, cap=100.0)])
    with trio.fail_after(STUCK):
        async with broker.host(parking=Parking("broker")) as host, peer(host, R4) as client:
            await broker.reload([backend(after.ways, cap=1000.0, timeout=1000.0)])
            begun = await client.begin("tools/call", name="book", arguments={})
            line, request = await after.hear()
            await trio.sleep(500)
            await line.answer(request, content=[])
            assert (await client.finish(begun))["content"] == []


async def test_what_was_given_up_while_it_was_followed_again_is_ended(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await follow(client, ONE)
        back.holds.add(SUBSCRIBE)
        back.lines[0].hang_up()
        line, request = await back.hear(SUBSCRIBE)
        await unfollow(client, begun)
        await line.answer(request)
        await wait_all_tasks_blocked()
        assert line.told(UNSUBSCRIBE) == [{"uri": ONE}]


async def test_who_follows_anew_does_not_overtake_the_farewell_of_the_last(autojump_clock: MockClock) -> None:
    back = Back(R4, holds={UNSUBSCRIBE})
    async with brokered(back.ways) as host, peer(host) as first, peer(host) as second:
        await unfollow(first, await follow(first, ONE))
        await begin(second, ONE)
        assert followed(back) == (1, 1)
        line, request = await back.hear(UNSUBSCRIBE)
        await line.answer(request)
        assert await granted(second) == {"resourceSubscriptions": [ONE]}
        assert followed(back) == (2, 1)
