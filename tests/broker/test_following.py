"""Who hears of which change: many clients, one subscription at the backend, of either era (BRIDGING.md, 6)."""

from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing
from trio.testing import MockClock

from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R4, R5
from callboard.testing import Peer, Refusal
from tests.broker.back import SUBSCRIPTION, Back, Line
from tests.broker.front import backend, brokered, peer
from tests.client.stage import EVERYTHING, Json

ONE = "notes://one"
UPDATED = "notifications/resources/updated"
PAIRS = pytest.mark.parametrize(("front", "behind"), [(a, b) for a in (R1, R4, R5) for b in (R4, R5)])
BEHIND = pytest.mark.parametrize("behind", [R4, R5])


async def follow(client: Peer, *uris: str, **flags: Any) -> object:
    """Have *client* follow, and take in what it is told at first. Returns the id of a modern subscription."""
    if client.revision is not R5:
        for uri in uris:
            await client.request("resources/subscribe", uri=uri)
        return None
    begun = await client.begin("subscriptions/listen", notifications={"resourceSubscriptions": list(uris), **flags})
    acknowledged = await client.hear()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    client.heard.append(acknowledged)
    return begun


async def unfollow(client: Peer, begun: object, *uris: str) -> None:
    if client.revision is R5:
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
    for uri in uris if client.revision is not R5 else ():
        assert await client.request("resources/unsubscribe", uri=uri) == {}
    await trio.testing.wait_all_tasks_blocked()


async def touch(back: Back, uri: str) -> None:
    """Tell of a change, as a server does, to each who follows."""
    for line in back.lines:
        if not back.is_modern and line.told("resources/subscribe"):
            await line.tell(UPDATED, uri=uri)
        for begun, wanted in list(line.listens.items()):
            if any(uri.startswith(one) for one in wanted.get("resourceSubscriptions", ())):
                await line.tell(UPDATED, uri=uri, _meta={SUBSCRIPTION: begun})
    await trio.testing.wait_all_tasks_blocked()


async def updates(client: Peer) -> list[Json]:
    """What the client was told so far."""
    await trio.testing.wait_all_tasks_blocked()
    while client.connection._incoming.statistics().current_buffer_used:
        await client._deal_with(await client.hear())
    return client.notifications(UPDATED)


def followed(back: Back) -> tuple[int, int]:
    """How often the backend was asked to tell of a resource, and to stop."""
    if not back.is_modern:
        return len(back.told("resources/subscribe")), len(back.told("resources/unsubscribe"))
    asked = [one for one in back.told("subscriptions/listen") if "resourceSubscriptions" in one["notifications"]]
    return len(asked), len(back.told("notifications/cancelled"))


@PAIRS
async def test_many_clients_are_one_subscription_which_ends_with_the_last(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front) as one, peer(host, front) as two:
        begun = [await follow(client, ONE) for client in (one, two)]
        assert followed(back) == (1, 0)
        await touch(back, ONE)
        for client, subscription in zip((one, two), begun, strict=True):
            [told] = await updates(client)
            assert told["uri"] == ONE
            assert told.get("_meta", {}).get(SUBSCRIPTION) == subscription
        await unfollow(one, begun[0], ONE)
        assert followed(back) == (1, 0)
        await touch(back, ONE)
        assert (len(await updates(one)), len(await updates(two))) == (1, 2)
        await unfollow(two, begun[1], ONE)
        assert followed(back) == (1, 1)


@PAIRS
async def test_a_client_that_leaves_follows_no_more(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host:
        async with peer(host, front) as client:
            await follow(client, ONE)
        await trio.testing.wait_all_tasks_blocked()
        assert followed(back) == (1, 1)


@PAIRS
async def test_what_the_backend_does_not_tell_of_is_not_promised(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind, refused={"notes://secret"})
    async with brokered(back.ways) as host, peer(host, front) as client:
        if front is R5:
            await follow(client, ONE, "notes://secret")
            [granted] = client.notifications("notifications/subscriptions/acknowledged")
            assert granted["notifications"] == {"resourceSubscriptions": [ONE]}
        else:
            with pytest.raises(Refusal) as refused:
                await follow(client, "notes://secret")
            assert refused.value.code in (-32602, -32002)


@BEHIND
async def test_a_backend_that_tells_of_nothing_has_no_method_for_it(
    behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind, capabilities={**EVERYTHING, "resources": {}})
    async with brokered(back.ways) as host:
        async with peer(host, R4) as client:
            assert not client.agreed["capabilities"]["resources"].get("subscribe")
            with pytest.raises(Refusal, match="-32601"):
                await follow(client, ONE)
        async with peer(host, R5) as client:
            await follow(client, ONE)
            [granted] = client.notifications("notifications/subscriptions/acknowledged")
            assert granted["notifications"] == {}
        assert followed(back)[0] == 0


@PAIRS
async def test_a_part_of_what_is_followed_is_told_by_its_own_name(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front) as client:
        await follow(client, ONE)
        await touch(back, f"{ONE}/page/2")
        assert [told["uri"] for told in await updates(client)] == [f"{ONE}/page/2"]


async def test_a_part_that_is_named_otherwise_is_not_dropped(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        await follow(client, ONE)
        await touch(back, "other://names/of/it")
        assert [told["uri"] for told in await updates(client)] == ["other://names/of/it"]


@PAIRS
async def test_a_backend_that_comes_back_is_followed_again_and_told_of_once(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front) as client:
        await follow(client, ONE)
        back.lines[0].hang_up()
        with trio.fail_after(30):
            while followed(back)[0] < 2:
                await back.wait_news()
        assert [told["uri"] for told in await updates(client)] == [ONE]
        await touch_last(back)
        assert [told["uri"] for told in await updates(client)] == [ONE, ONE]


async def touch_last(back: Back) -> None:
    """As `touch`, on the latest connection alone: the others are gone."""
    line: Line = back.lines[-1]
    if not back.is_modern:
        await line.tell(UPDATED, uri=ONE)
    for begun, wanted in line.listens.items():
        if "resourceSubscriptions" in wanted:
            await line.tell(UPDATED, uri=ONE, _meta={SUBSCRIPTION: begun})


async def test_a_stream_that_the_backend_ends_is_opened_anew_and_told_of_once(autojump_clock: MockClock) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        await follow(client, ONE)
        line = back.lines[0]
        [begun] = [one for one, wanted in line.listens.items() if "resourceSubscriptions" in wanted]
        await line.answer({"id": begun}, _meta={SUBSCRIPTION: begun})
        with trio.fail_after(30):
            while followed(back)[0] < 2:
                await back.wait_news()
        assert [told["uri"] for told in await updates(client)] == [ONE]


@BEHIND
async def test_principals_do_not_hear_each_others_resources(behind: Revision, autojump_clock: MockClock) -> None:
    back = Back(behind)
    async with (
        brokered(backend(back.ways)) as host,
        peer(host, R4, principal="ada") as ada,
        peer(host, R4, principal="bob") as bob,
    ):
        await follow(ada, ONE)
        await follow(bob, ONE)
        assert followed(back) == (2, 0)  # each on his own, for a backend that knows whom it tells
        if behind is R4:
            [line] = [one for one in back.lines if len(one.told("resources/subscribe")) == 1][:1]
            await line.tell(UPDATED, uri=ONE)
            told = (len(await updates(ada)), len(await updates(bob)))
            assert sorted(told) == [0, 1]


# Lists.


@PAIRS
async def test_a_changed_list_is_read_anew_and_told_of_once(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front, capabilities={}) as client:
        if front is R5:
            await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
            await client.hear()
        before = await client.request("tools/list")
        back.tools = [*back.tools, {"name": "extra", "inputSchema": {"type": "object"}}]
        line = back.lines[0]
        about = [{"_meta": {SUBSCRIPTION: begun}} for begun in line.listens] if back.is_modern else [{}]
        for _ in range(3):
            await line.tell("notifications/tools/list_changed", **about[0])
        assert (await client.hear())["method"] == "notifications/tools/list_changed"
        after = await client.request("tools/list")
        assert [one["name"] for one in after["tools"]] == [*(one["name"] for one in before["tools"]), "extra"]
        await trio.sleep(1)
        assert not await updates(client)
        assert not client.notifications("notifications/tools/list_changed")  # they were gathered
        assert len(back.told("tools/list")) == 2


async def test_a_list_that_could_not_be_read_anew_is_read_again(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        back.tools = [*back.tools, {"name": "extra", "inputSchema": {"type": "object"}}]
        back.holds.add("tools/list")
        await back.lines[0].tell("notifications/tools/list_changed")
        line, asked = await back.hear("tools/list")
        back.holds.clear()
        await line.refuse(asked, -32603, "not now")
        assert (await client.hear())["method"] == "notifications/tools/list_changed"
        assert "extra" in [one["name"] for one in (await client.request("tools/list"))["tools"]]


@PAIRS
async def test_a_broker_that_is_cancelled_takes_no_subscription_for_a_fault(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(revision=behind)
    with structlog.testing.capture_logs() as logged, trio.CancelScope() as all_of_it:
        async with brokered(back.ways) as host, peer(host, front) as client:
            await follow(client, ONE)
            all_of_it.cancel()
            await trio.lowlevel.checkpoint()
    assert "actor_crashed" not in [line["event"] for line in logged]
