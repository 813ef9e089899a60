"""Changes for many subscribers: a burst costs a prompt reader nothing, and a slow or absent one only itself."""

import time
import tracemalloc
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import fan_out
from callboard.actors.changes import MORE, ListChanged, News, ResourceUpdated
from callboard.actors.fan_out import BEHIND, HELD, PATIENCE, SLICE, SOURCE_WAITS, FanOut, SubscriberPace
from callboard.actors.frames import notification_frame
from callboard.actors.server import session_changes as hearing
from callboard.actors.server.session_changes import MAX_WAITING
from callboard.actors.subscribers import Subscribers
from callboard.codecs.revisions.revision import R4, R5
from callboard.supervisor import Lost, SupervisorSpec, open_tree
from callboard.testing.peer import Peer, Refusal
from tests.actors.server.stage import Stage, stage

MANY = 3000
FOLDER = "file:///folder"
UPDATED = "notifications/resources/updated"
MORE_CHANGED = "notifications/resources/list_changed"


async def follow(peer: Peer) -> None:
    if peer.revision is R5:
        await peer.begin("subscriptions/listen", notifications={"resourceSubscriptions": [FOLDER]})
        assert (await peer.hear())["method"] == "notifications/subscriptions/acknowledged"
    else:
        await peer.request("resources/subscribe", uri=FOLDER)


def publish(here: Stage, number: int) -> None:
    here.host.topics.publish(ResourceUpdated(f"{FOLDER}/{number}"))


async def heard(peer: Peer, within: float = 10) -> list[dict[str, Any]]:
    """All that a client hears until nothing has come for a while."""
    messages = []
    while True:
        with trio.move_on_after(within) as scope:
            messages.append(await peer.hear())
        if scope.cancelled_caught:
            return messages


def uris(messages: list[dict[str, Any]]) -> list[str]:
    return [message["params"]["uri"] for message in messages if message["method"] == UPDATED]


@pytest.mark.finding("faults-H3")
@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_a_burst_of_different_updates_reaches_a_prompt_reader_whole(
    revision: Any, autojump_clock: MockClock
) -> None:
    async with stage({}) as here:
        peer = await here.peer(revision)
        await follow(peer)
        for number in range(MANY):  # in one breath
            publish(here, number)
        assert uris(await heard(peer)) == [f"{FOLDER}/{number}" for number in range(MANY)]
        assert here.root.dead_letters.total == 0


@pytest.mark.finding("faults-H3")
@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_a_slow_neighbour_costs_a_prompt_reader_nothing(revision: Any, autojump_clock: MockClock) -> None:
    async with stage({}) as here:
        prompt = await here.peer(revision)
        slow = [await here.peer(one) for one in (R4, R5, R4)]
        for peer in (prompt, *slow):
            await follow(peer)
        messages: list[dict[str, Any]] = []

        async def read() -> None:
            messages.extend(await heard(prompt))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for number in range(MANY):
                publish(here, number)
                if number % 100 == 0:
                    await trio.sleep(0.01)
        assert uris(messages) == [f"{FOLDER}/{number}" for number in range(MANY)]


@pytest.mark.finding("faults-H3", "faults-C2")
async def test_a_legacy_client_that_did_not_read_is_told_once_that_more_has_changed(autojump_clock: MockClock) -> None:
    async with stage({}) as here:
        slow = await here.peer(R4)
        await follow(slow)
        for number in range(MANY):
            publish(here, number)
        await trio.sleep(1)
        counts = here.root.dead_letters.counts
        lost = counts["ResourceUpdated", Lost.OVERFLOWED]
        messages = await heard(slow)
        told = uris(messages)
        assert MAX_WAITING <= len(told) <= MAX_WAITING + 20
        assert told == [f"{FOLDER}/{number}" for number in range(len(told))]
        assert len(told) + lost == MANY
        assert [message["method"] for message in messages].count(MORE_CHANGED) == 1
        publish(here, 1)  # and then it hears again as before
        assert uris(await heard(slow)) == [f"{FOLDER}/1"]


@pytest.mark.finding("faults-C2")
async def test_an_absent_client_hoards_little_and_one_more_change_builds_nothing(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    written = count()

    def counted(*args: Any) -> bytes:
        next(written)
        return notification_frame(*args)

    monkeypatch.setattr(hearing, "notification_frame", counted)
    monkeypatch.setattr("callboard.actors.server.session.Session.is_attached", False)
    async with stage({}) as here:
        gone = await here.peer(R4)
        await follow(gone)
        for number in range(MANY):
            publish(here, number)
            if number % 100 == 0:
                await wait_all_tasks_blocked()
        assert next(written) < 100


@pytest.mark.finding("faults-M1")
async def test_a_change_for_thousands_leaves_others_their_turns(autojump_clock: MockClock) -> None:
    async with open_tree(SupervisorSpec("tree")) as root:
        topics = Subscribers(FanOut(root))
        told: list[int] = []
        for number in range(MANY):
            topics.join(lambda _, number=number: told.append(number), [ListChanged("tools")])  # type: ignore[misc]
        most = 0
        assert topics.publish(ListChanged("tools")) == MANY
        while len(told) < MANY:
            before = len(told)
            await trio.lowlevel.checkpoint()
            most = max(most, len(told) - before)
        assert told == list(range(MANY))
        assert most <= 2 * SLICE  # Trio shuffles the tasks of a turn


async def test_a_change_for_a_few_is_told_at_once() -> None:
    topics = Subscribers()
    told: list[News] = []
    topics.join(told.append, [ListChanged("tools")])
    assert topics.publish(ListChanged("tools")) == 1
    assert told == [ListChanged("tools")]


async def test_changes_keep_their_order_through_the_queue(autojump_clock: MockClock) -> None:
    async with open_tree(SupervisorSpec("tree")) as root:
        topics = Subscribers(FanOut(root))
        told: list[News] = []
        topics.join(told.append, [ResourceUpdated(FOLDER)])
        pace = SubscriberPace(topics.fan_out)
        topics.publish(ResourceUpdated(f"{FOLDER}/0"))
        pace.fall_behind()
        for number in (1, 2, 1, 3):
            topics.publish(ResourceUpdated(f"{FOLDER}/{number}"))
        assert len(told) == 1
        pace.catch_up()
        topics.publish(ResourceUpdated(f"{FOLDER}/4"))  # nobody is behind, but others are before it
        await wait_all_tasks_blocked()
        assert told == [ResourceUpdated(f"{FOLDER}/{number}") for number in (0, 1, 2, 3, 4)]


async def test_more_changes_than_are_held_are_told_as_one(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(fan_out, "HELD", 10)
    async with open_tree(SupervisorSpec("tree")) as root:
        topics = Subscribers(FanOut(root))
        told: list[News] = []
        topics.join(told.append, [ResourceUpdated(FOLDER), ListChanged("tools")])
        SubscriberPace(topics.fan_out).fall_behind()
        for number in range(25):
            topics.publish(ResourceUpdated(f"{FOLDER}/{number}"))
        await trio.sleep(1)
        assert told == [*(ResourceUpdated(f"{FOLDER}/{number}") for number in range(10)), MORE]
        assert root.dead_letters.counts["ResourceUpdated", Lost.OVERFLOWED] == 15
        assert HELD == 10_000


async def test_who_is_waited_for_in_vain_is_not_waited_for_again(autojump_clock: MockClock) -> None:
    async with open_tree(SupervisorSpec("tree")) as root:
        topics = Subscribers(FanOut(root))
        told: list[News] = []
        topics.join(told.append, [ResourceUpdated(FOLDER)])
        stuck = SubscriberPace(topics.fan_out)
        for number in range(100):
            stuck.fall_behind()
            topics.publish(ResourceUpdated(f"{FOLDER}/{number}"))
            await wait_all_tasks_blocked()
        await trio.sleep(2 * PATIENCE)
        assert len(told) == 100
        stuck.fall_behind()
        assert topics.fan_out.is_idle


@pytest.mark.finding("faults-H3")
async def test_a_source_of_changes_waits_while_many_are_not_told_but_not_for_long(autojump_clock: MockClock) -> None:
    async with open_tree(SupervisorSpec("tree")) as root:
        topics = Subscribers(FanOut(root))
        topics.join(lambda _: None, [ResourceUpdated(FOLDER)])
        behind = SubscriberPace(topics.fan_out)
        behind.fall_behind()
        began = trio.current_time()
        for number in range(2 * SOURCE_WAITS):
            topics.publish(ResourceUpdated(f"{FOLDER}/{number}"))
            await topics.fan_out.wait_source()
        assert 0 < trio.current_time() - began <= 2 * PATIENCE
        assert BEHIND < MAX_WAITING


@pytest.mark.finding("security-2")
@pytest.mark.parametrize("slashes", [40_000, 2_000_000])
def test_a_change_of_a_resource_with_many_slashes_costs_little(slashes: int) -> None:
    topics = Subscribers()
    told: list[News] = []
    topics.join(told.append, [ResourceUpdated("x://a/a"), ResourceUpdated("x://a/" * 2)])
    uri = "x://" + "a/" * slashes
    tracemalloc.start()
    began = time.perf_counter()
    topics.publish(ResourceUpdated(uri))
    took, (_, peak) = time.perf_counter() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 0.05
    assert peak < 100_000


@pytest.mark.finding("security-2")
def test_a_follower_of_every_folder_of_a_deep_resource_makes_few_lookups() -> None:
    topics = Subscribers()
    told: list[News] = []
    deep = "x://" + "a/" * 3000
    ends = [end for end, letter in enumerate(deep) if letter == "/" and end > 5]
    topics.join(told.append, [ResourceUpdated(deep[:end]) for end in ends])
    assert len(list(topics._wider(ResourceUpdated(deep)))) == 32
    assert topics.publish(ResourceUpdated(deep)) == 1


def test_a_file_is_news_to_those_who_watch_its_folder_with_or_without_its_slash() -> None:
    topics = Subscribers()
    for watched in ("file:///a", "file:///a/", "file:///a/b", "file:///"):
        told: list[News] = []
        topics.join(told.append, [ResourceUpdated(watched)])
        assert topics.publish(ResourceUpdated("file:///a/b/c")) == 1
        topics.leave(told.append, [ResourceUpdated(watched)])
        assert topics.publish(ResourceUpdated("file:///a/b/c")) == 0
        assert not topics._lengths


# How much one client may follow.


def listening(count: int, length: int = 10) -> dict[str, Any]:
    return {"resourceSubscriptions": [f"file:///{number}/".ljust(length, "x") for number in range(count)]}


@pytest.mark.finding("security-11")
async def test_one_client_that_follows_much_leaves_the_others_their_share(autojump_clock: MockClock) -> None:
    async with stage({}) as here:
        shares = here.host.followed
        shares.allow(100_000, 25_000)
        alice, bob = await here.peer(R5, principal="alice"), await here.peer(R4, principal="bob")
        begun = await alice.begin("subscriptions/listen", notifications=listening(20))
        await alice.hear()
        with pytest.raises(Refusal, match="-31003"):
            await alice.request("subscriptions/listen", notifications=listening(20))
        for number in range(24):
            await bob.request("resources/subscribe", uri=f"file:///{number}")
        with pytest.raises(Refusal, match="-31003"):
            await bob.request("resources/subscribe", uri="file:///24")
        await bob.request("resources/unsubscribe", uri="file:///0")
        await bob.request("resources/subscribe", uri="file:///30")
        await alice.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        bob.connection.close()
        await trio.sleep(1)
        assert (shares.total, len(shares)) == (0, 0)  # with its clients all of it is given back


@pytest.mark.finding("security-22")
async def test_a_uri_that_is_too_long_is_not_followed(autojump_clock: MockClock) -> None:
    async with stage({}) as here:
        modern, legacy = await here.peer(R5), await here.peer(R4)
        with pytest.raises(Refusal, match="-32602"):
            await modern.request("subscriptions/listen", notifications=listening(1, 9000))
        with pytest.raises(Refusal, match="-32602"):
            await legacy.request("resources/subscribe", uri="file:///" + "x" * 9000)
        assert here.host.followed.total == 0
        assert len(here.host.topics) == 2  # the lists of the legacy session
