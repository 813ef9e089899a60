"""One client that follows very much makes nothing slower for the others."""

import time
from typing import Any

import attrs
import msgspec
import pytest

from callboard.actors.broker.leases import SHARED
from callboard.actors.broker.upstream_subscriptions import MAX_GUESSED, UpstreamSubscription, UpstreamSubscriptions
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4

MANY = 20_000


@attrs.define(eq=False)
class FakeLeg:
    """What `UpstreamSubscriptions` asks of a connection."""

    key: Any = SHARED
    revision: Revision = R4
    is_process: bool = True
    is_over: bool = False


@attrs.define(eq=False)
class FakeBackend:
    told: list[tuple[str, str]] = attrs.field(factory=list)

    def on_updated(self, uri: str, followed: str, _: object) -> None:
        self.told.append((uri, followed))


def following(count: int, leg: FakeLeg) -> tuple[UpstreamSubscriptions, FakeBackend]:
    backend = FakeBackend()
    interests = UpstreamSubscriptions(backend, None)  # type: ignore[arg-type]  # neither is more than asked for
    for number in range(count):
        one = UpstreamSubscription(f"notes://{number}", SHARED.whose, count=1, is_granted=True)
        interests._keep(one)
        interests._note(one)
        interests._hear_on(one, leg)  # type: ignore[arg-type]
    return interests, backend


def updated(uri: str) -> dict[str, Any]:
    return {"uri": msgspec.Raw(msgspec.json.encode(uri))}


@pytest.mark.finding("security-11")
def test_an_update_and_a_call_look_at_no_more_than_concerns_them() -> None:
    leg: Any = FakeLeg()
    interests, backend = following(MANY, leg)
    began = time.thread_time()
    for _ in range(100):
        assert not interests.misses(leg)
        assert interests.needs(leg)
        interests.heard(leg, "notifications/resources/updated", updated("notes://7/part"))
        interests.heard(leg, "notifications/resources/updated", updated("other://7"))
    assert time.thread_time() - began < 0.1  # 1 ms each, where looking at all takes 5
    assert backend.told == [("notes://7/part", "notes://7")] * 100


def test_an_update_that_names_nothing_known_is_told_of_all_if_these_are_few() -> None:
    leg: Any = FakeLeg()
    interests, backend = following(MAX_GUESSED, leg)
    interests.heard(leg, "notifications/resources/updated", updated("other://7"))
    assert len(backend.told) == MAX_GUESSED


def test_another_process_misses_what_is_followed_until_it_tells_of_it() -> None:
    leg, other = FakeLeg(), FakeLeg()
    first: Any = leg
    second: Any = other
    interests, _ = following(3, leg)
    assert not interests.misses(first)
    assert interests.misses(second)
    assert len(list(interests._missed(second))) == 3
    for one in list(interests._missed(second)):
        one.others[second] = None
        interests._told_on.setdefault(second, {})[one] = None
    assert not interests.misses(second)
    interests.lost(second)
    assert interests.misses(second)
    interests.lost(first)
    assert not interests._told_on
