"""Hearing of changes: by one stream in both eras, each for whoever asked for it."""

from typing import Any, Final

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Server
from callboard.actors.changes import ListChanged, ResourceUpdated
from callboard.client import connect
from callboard.client.subscriptions import ACKNOWLEDGED, FAREWELL, MAX_CHANGES
from callboard.codecs.revisions import Revision, meta
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5
from callboard.errors import RequestTimedOut, ServerRefused
from tests.client.stage import Json, Puppet, played

EVERY: Final = [R1, R2, R3, R4, R5]
every_revision = pytest.mark.parametrize("revision", EVERY)


def house() -> Server:
    server = Server("house", version="1")

    @server.resource("house://{room}")
    async def room(room: str) -> str:
        return room

    @server.tool
    async def stir(uris: list[str]) -> str:
        for uri in uris:
            server.notify_updated(uri)
        server.notify_changed("tools")
        return "stirred"

    return server


async def acknowledge(puppet: Puppet, request: Json, **granted: Any) -> None:
    params = {"_meta": {meta.SUBSCRIPTION_ID: request["id"]}, "notifications": granted}
    await puppet.say(method="notifications/subscriptions/acknowledged", params=params)


async def tell(puppet: Puppet, request: Json | None, method: str, **params: Any) -> None:
    extra = {} if request is None else {"_meta": {meta.SUBSCRIPTION_ID: request["id"]}}
    await puppet.say(method=f"notifications/{method}", params={**params, **extra})


@every_revision
async def test_changes_are_heard_the_same_way_in_every_revision(revision: Revision, autojump_clock: MockClock) -> None:
    async with (
        connect(house(), revision=revision) as client,
        client.listen(tools=True, resources=["house://hall", "house://attic"]) as changes,
    ):
        await client.call("stir", uris=["house://hall", "house://cellar", "house://attic"])
        heard = {await anext(changes) for _ in range(3)}
    assert heard == {ListChanged("tools"), ResourceUpdated("house://hall"), ResourceUpdated("house://attic")}


@every_revision
async def test_iterating_at_once_subscribes_too(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(house(), revision=revision) as client, trio.open_nursery() as nursery:
        heard: list[object] = []

        async def listen() -> None:
            async for change in client.listen(resources=["house://hall"]):
                heard.append(change)  # noqa: PERF401 - it is looked at meanwhile

        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        await client.call("stir", uris=["house://hall"])
        await wait_all_tasks_blocked()
        assert heard == [ResourceUpdated("house://hall")]
        nursery.cancel_scope.cancel()


@every_revision
async def test_leaving_ends_the_subscription_at_the_server(revision: Revision, autojump_clock: MockClock) -> None:
    heard: list[Json] = []

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear()
            heard.append(request)
            if request["method"] == "subscriptions/listen":
                await acknowledge(puppet, request, resourceSubscriptions=["x://a"])
            elif "id" in request:
                await puppet.answer(request)

    async with connect(played(play, revision)) as client:
        async with client.listen(resources=["x://a", "x://a"]):
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
    begun, ended = heard
    if revision == R5:
        assert begun["params"]["notifications"] == {"resourceSubscriptions": ["x://a"]}
        assert (ended["method"], ended["params"]["requestId"]) == ("notifications/cancelled", begun["id"])
    else:
        assert (begun["method"], begun["params"]["uri"]) == ("resources/subscribe", "x://a")
        assert (ended["method"], ended["params"]["uri"]) == ("resources/unsubscribe", "x://a")


@pytest.mark.parametrize("revision", [R1, R4])
async def test_two_who_listen_to_the_same_subscribe_once_and_the_last_one_ends_it(
    revision: Revision, autojump_clock: MockClock
) -> None:
    heard: list[str] = []

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear()
            heard.append(request["method"])
            await puppet.answer(request)
            if request["method"] == "resources/subscribe":
                await tell(puppet, None, "resources/updated", uri="x://a")

    async with connect(played(play, revision)) as client:
        async with client.listen(resources=["x://a"]) as first:
            async with client.listen(resources=["x://a"]):
                pass
            assert await anext(first) == ResourceUpdated("x://a")
        await client.ping()
    assert heard == ["resources/subscribe", "resources/unsubscribe", "ping"]


@pytest.mark.parametrize("revision", [R1, R4])
async def test_leaving_by_a_cancelled_scope_ends_the_subscription_too(
    revision: Revision, autojump_clock: MockClock
) -> None:
    heard: list[str] = []

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear()
            heard.append(request["method"])
            await puppet.answer(request)

    async with connect(played(play, revision)) as client:
        with trio.move_on_after(5):
            async with client.listen(resources=["x://a", "x://b"]) as changes:
                await anext(changes)
        assert heard == ["resources/subscribe"] * 2 + ["resources/unsubscribe"] * 2


async def test_a_server_that_does_not_answer_does_not_hold_whoever_leaves(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.answer(await puppet.hear("resources/subscribe"))
        await puppet.hear("never")

    async with connect(played(play, R4)) as client:
        async with client.listen(resources=["x://a"]):
            pass
        assert trio.current_time() <= 2 * FAREWELL


async def test_what_was_subscribed_before_one_was_refused_is_ended(autojump_clock: MockClock) -> None:
    heard: list[tuple[str, str]] = []

    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear()
            heard.append((request["method"], request["params"]["uri"]))
            if request["params"]["uri"] == "x://b":
                await puppet.refuse(request, -32602, "no such resource")
            else:
                await puppet.answer(request)

    async with connect(played(play, R4)) as client:
        with pytest.raises(ServerRefused, match="no such resource"):
            async with client.listen(resources=["x://a", "x://b"]):
                pass
    assert heard == [
        ("resources/subscribe", "x://a"),
        ("resources/subscribe", "x://b"),
        ("resources/unsubscribe", "x://a"),
    ]


@every_revision
async def test_a_server_that_refuses_is_heard_at_once_and_may_be_asked_again(
    revision: Revision, autojump_clock: MockClock
) -> None:
    asked = 0

    async def play(puppet: Puppet) -> None:
        nonlocal asked
        while True:
            request = await puppet.hear()
            if "id" in request:
                asked += 1
                await puppet.refuse(request, -32602, "no such resource")

    async with connect(played(play, revision)) as client:
        for number in (1, 2):
            with pytest.raises(ServerRefused, match="no such resource"):
                async with client.listen(resources=["x://a"]):
                    pass
            assert asked == number


# 2026-07-28.


@pytest.mark.requirement("M076", "M205")
async def test_each_subscription_hears_what_is_its_own(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        first = await puppet.hear("subscriptions/listen")
        await acknowledge(puppet, first, toolsListChanged=True)
        second = await puppet.hear("subscriptions/listen")
        await acknowledge(puppet, second, toolsListChanged=True, promptsListChanged=True)
        await tell(puppet, second, "tools/list_changed")
        await tell(puppet, second, "prompts/list_changed")
        await tell(puppet, {"id": 999}, "tools/list_changed")

    async with (
        connect(played(play)) as client,
        client.listen(tools=True) as one,
        client.listen(tools=True, prompts=True) as two,
    ):
        assert [await anext(two), await anext(two)] == [ListChanged("tools"), ListChanged("prompts")]
        with trio.move_on_after(5):
            # What belongs to no subscription is for whoever asked for such a thing, once.
            assert await anext(one) == ListChanged("tools")
            assert await anext(two) == ListChanged("tools")
            raise AssertionError(await anext(one))


@pytest.mark.requirement("M203")
async def test_what_the_server_does_not_grant_is_said_so(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("subscriptions/listen")
        await acknowledge(puppet, request, toolsListChanged=True, resourceSubscriptions=["x://a"])
        await puppet.hear("never")

    with structlog.testing.capture_logs() as logs:
        async with (
            connect(played(play)) as client,
            client.listen(tools=True, prompts=True, resources=["x://a", "x://b"]) as changes,
        ):
            assert changes.granted is not None
            assert changes.granted.tools_list_changed is True
    [line] = [line for line in logs if line["event"] == "subscription_not_granted"]
    assert line["what"] == ["prompts", "x://b"]


async def test_a_subscription_that_is_never_acknowledged_ends_in_bounded_time(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.hear("subscriptions/listen")
        await puppet.hear("never")

    async with connect(played(play)) as client:
        with pytest.raises(RequestTimedOut):
            async with client.listen(tools=True):
                pass
        assert trio.current_time() == ACKNOWLEDGED


async def test_what_a_server_names_on_a_subscription_belongs_to_it_however_it_is_spelled(
    autojump_clock: MockClock,
) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("subscriptions/listen")
        await acknowledge(puppet, request, resourceSubscriptions=["x://a"])
        await tell(puppet, request, "resources/updated", uri="x://a#part")
        await puppet.hear("never")

    async with connect(played(play)) as client, client.listen(resources=["x://a"]) as changes:
        with trio.fail_after(60):
            assert await anext(changes) == ResourceUpdated("x://a#part")


@pytest.mark.parametrize("by", ["result", "cancelled", "both"])
async def test_a_server_may_end_a_subscription_by_its_result_or_by_cancelling_it(
    by: str, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("subscriptions/listen")
        await acknowledge(puppet, request, toolsListChanged=True)
        await tell(puppet, request, "tools/list_changed")
        if by != "cancelled":
            await puppet.answer(request, _meta={meta.SUBSCRIPTION_ID: request["id"]})
        if by != "result":
            params = {"requestId": request["id"], "reason": "the server ends"}
            await puppet.say(method="notifications/cancelled", params=params)
        await puppet.hear("never")

    async with connect(played(play)) as client, client.listen(tools=True) as changes:
        assert [change async for change in changes] == [ListChanged("tools")]


async def test_changes_that_nobody_looks_at_pile_up_to_a_bound_and_each_once(autojump_clock: MockClock) -> None:
    done = trio.Event()

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("subscriptions/listen")
        await acknowledge(puppet, request, resourceSubscriptions=["x://"])
        for _ in range(2):
            for number in range(MAX_CHANGES + 10):
                await tell(puppet, request, "resources/updated", uri=f"x:///{number}")
        done.set()
        await puppet.hear("never")

    async with connect(played(play)) as client, client.listen(resources=["x://"]) as changes:
        await done.wait()
        await wait_all_tasks_blocked()
        assert len(changes._waiting) == MAX_CHANGES
