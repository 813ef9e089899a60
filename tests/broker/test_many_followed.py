"""One client that follows very much makes nothing slower for the others."""

import time
from typing import Any

import attrs
import msgspec
import pytest

from callboard.actors.broker.leases import SHARED
from callboard.actors.broker.upstream_subscriptions import MAX_GUESSED, UpstreamSubscription, UpstreamSubscriptions
from callboard.actors.changes import News, ResourceUpdated
from callboard.actors.fan_out import FanOut
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4

MANY = 20_000


@attrs.define(eq=False)
class FakeConnection:
    """What `UpstreamSubscriptions` asks of a connection."""

    key: Any = SHARED
    revision: Revision = R4
    is_process: bool = True
    is_over: bool = False


@attrs.define(eq=False)
class FakeBackend:
    """A backend, and the one subscriber of everything at it."""

    told: list[News] = attrs.field(factory=list)

    def serves(self, _: str) -> bool:
        return True


def following(count: int, connection: FakeConnection) -> tuple[UpstreamSubscriptions, FakeBackend]:
    backend = FakeBackend()
    subscriptions = UpstreamSubscriptions(backend, None, FanOut())  # type: ignore[arg-type]  # no more than asked for
    for number in range(count):
        one = UpstreamSubscription(f"notes://{number}", SHARED.whose, subscriptions, is_granted=True)
        one.add(one.uri, backend.told.append)
        subscriptions._keep(one)
        subscriptions._note(one)
        subscriptions._hear_on(one, connection)  # type: ignore[arg-type]
    return subscriptions, backend


def updated(uri: str) -> dict[str, Any]:
    return {"uri": msgspec.Raw(msgspec.json.encode(uri))}


@pytest.mark.finding("security-11")
def test_an_update_and_a_call_look_at_no_more_than_concerns_them() -> None:
    connection: Any = FakeConnection()
    subscriptions, backend = following(MANY, connection)
    began = time.thread_time()
    for _ in range(100):
        assert not subscriptions.misses(connection)
        assert subscriptions.needs(connection)
        subscriptions.heard(connection, "notifications/resources/updated", updated("notes://7/part"))
        subscriptions.heard(connection, "notifications/resources/updated", updated("other://7"))
    assert time.thread_time() - began < 0.1  # 1 ms each, where looking at all takes 5
    assert backend.told == [ResourceUpdated("notes://7/part")] * 100


def test_an_update_that_names_nothing_known_is_told_of_all_if_these_are_few() -> None:
    connection: Any = FakeConnection()
    subscriptions, backend = following(MAX_GUESSED, connection)
    subscriptions.heard(connection, "notifications/resources/updated", updated("other://7"))
    assert len(backend.told) == MAX_GUESSED


def test_another_process_misses_what_is_followed_until_it_tells_of_it() -> None:
    connection, other = FakeConnection(), FakeConnection()
    first: Any = connection
    second: Any = other
    subscriptions, _ = following(3, connection)
    assert not subscriptions.misses(first)
    assert subscriptions.misses(second)
    assert len(list(subscriptions._missed(second))) == 3
    for one in list(subscriptions._missed(second)):
        one.others[second] = None
        subscriptions._told_on.setdefault(second, {})[one] = None
    assert not subscriptions.misses(second)
    subscriptions.lost(second)
    assert subscriptions.misses(second)
    subscriptions.lost(first)
    assert not subscriptions._told_on
