"""What is kept of a session's streams, and for how long, without a socket: a response that waits when told to."""

from collections.abc import Callable, Iterable

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from callboard.actors.outlet import Carrier, Outbound
from callboard.actors.shares import LOCAL
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.replay_budget import ReplayBudget
from callboard.codecs.sse import Event, EventDecoder
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.keepalive import KeepAlive
from callboard.transports.server.http.legacy_streams import EventStore, LegacyStream
from callboard.transports.server.http.response import ScopeHeaders


@attrs.define(eq=False)
class Paper:
    """A response that keeps what it is sent, and takes its time if it is `slow`."""

    slow: bool = False
    on_lost: Callable[[], None] = lambda: None
    extra: tuple[tuple[bytes, bytes], ...] = ()
    carrier: Carrier | None = None
    scope_headers: ScopeHeaders | None = None
    peer: str = LOCAL
    held: HeldBytes | None = None
    is_lost: bool = False
    is_over: bool = False
    is_forwarded: bool = False
    how: str = ""
    turned: trio.Event = attrs.field(factory=trio.Event)
    _line: trio.Lock = attrs.field(factory=trio.Lock)  # as on a wire: one after the other
    _decoder: EventDecoder = attrs.field(factory=EventDecoder)
    events: list[Event] = attrs.field(factory=list)

    async def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        self.how, self.is_over = f"{status} {body.decode()}", True

    async def answer_json(self, body: bytes) -> None:
        await self.answer(200, (), body)

    async def begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes = b"") -> None:
        await self.write(data)

    async def write(self, data: bytes) -> None:
        async with self._line:
            if self.slow:
                await self.turned.wait()
            if not self.is_over:
                self.try_write(data)

    def try_json(self, body: bytes) -> bool:
        return False

    def try_end(self, data: bytes) -> bool:
        return False

    def try_begin(self, headers: Iterable[tuple[bytes, bytes]], data: bytes) -> bool:
        return self.try_write(data)

    def try_write(self, data: bytes) -> bool:
        self.events += [event for event in self._decoder.feed(data) if isinstance(event, Event)]
        return True

    async def end(self, data: bytes = b"") -> None:
        if data:
            await self.write(data)
        self.how, self.is_over = "ended", True

    def cut(self) -> None:
        self.how, self.is_over = "cut", True

    @property
    def words(self) -> list[bytes]:
        return [event.data for event in self.events if event.data]


def stream(
    store: EventStore, response: Paper | None = None, *, number: int = 1, is_polled: bool = False
) -> LegacyStream:
    return LegacyStream(number, store, KeepAlive(15.0), response, retry=1.0, is_polled=is_polled)


def store(most: int = 100, most_bytes: int = 100_000) -> EventStore:
    return EventStore(most, most_bytes, ReplayBudget(1_000_000))


async def say(way: LegacyStream, *words: bytes, ends: bool = False) -> None:
    for word in words[:-1] if ends else words:
        await way.send(Outbound(word))
    if ends:
        await way.answer(words[-1])


@given(
    st.integers(1, 6),
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20)), max_size=30),
)
def test_the_latest_events_are_kept_within_both_bounds_and_the_very_latest_always(
    most: int, most_bytes: int, added: list[tuple[int, int]]
) -> None:
    kept = store(most, most_bytes)
    streams = {number: stream(kept, number=number) for number in (1, 2, 3)}
    history: list[tuple[int, int, bytes]] = []
    for number, size in added:
        position = sum(1 for whose, *_ in history if whose == number) + 1
        history.append((number, position, b"x" * size))
        kept.add(streams[number], position, b"x" * size)
    expected: list[tuple[int, int, bytes]] = []
    for entry in reversed(history):
        size = sum(len(data) for *_, data in expected) + len(entry[2])
        if len(expected) == most or size > most_bytes:
            break
        expected.insert(0, entry)
    gone = history[: len(history) - len(expected)]
    for number, whose in streams.items():
        forgotten = max((position for owner, position, _ in gone if owner == number), default=0)
        mine = [(position, data) for owner, position, data in expected if owner == number]
        for last in range(len(history) + 1):
            if last < forgotten:
                with pytest.raises(HttpRefusal):
                    kept.after(whose, last)
            else:
                assert kept.after(whose, last) == [entry for entry in mine if entry[0] > last]


async def test_a_single_answer_is_plain_and_nothing_of_it_is_kept() -> None:
    kept, paper = store(), Paper()
    ended: list[bool] = []
    way = stream(kept, paper)
    way.on_plain_end = lambda: ended.append(True)
    await say(way, b"answer", ends=True)
    assert (paper.how, ended, kept.after(way, 0)) == ("200 answer", [True], [])


async def test_what_is_said_while_a_client_is_told_what_it_missed_comes_after_it_and_once() -> None:
    way = stream(store())
    way._is_stream = True
    await say(way, b"1", b"2")
    paper = Paper(slow=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(way.resume, paper, 0)
        await wait_all_tasks_blocked()
        await say(way, b"3")
        paper.slow = False
        paper.turned.set()
    await say(way, b"4", ends=True)
    assert paper.words == [b"1", b"2", b"3", b"4"]
    assert paper.how == "ended"


async def test_a_client_that_is_too_slow_for_what_is_said_meanwhile_is_sent_away() -> None:
    """What it would miss is gone. It must not be answered in the middle of a stream, nor left with a gap."""
    way = stream(store(most=3))
    way._is_stream = True
    await say(way, b"1", b"2", b"3")
    paper = Paper(slow=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(way.resume, paper, 0)
        await wait_all_tasks_blocked()
        await say(way, b"4", b"5", b"6", b"7", b"8")
        paper.slow = False
        paper.turned.set()
    assert paper.words == [b"1", b"2", b"3"]
    assert paper.how == "cut"
    await say(way, b"9", ends=True)
    assert paper.words == [b"1", b"2", b"3"]


async def test_the_event_to_come_back_by_is_the_first_however_slow_the_client_is() -> None:
    paper = Paper(slow=True)
    way = stream(store(), paper, is_polled=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(say, way, b"1")
        await wait_all_tasks_blocked()
        nursery.start_soon(say, way, b"2")
        await wait_all_tasks_blocked()
        paper.turned.set()
    assert sorted(paper.words) == [b"1", b"2"]
    assert paper.events[0].data == b""
    assert paper.events[0].id == "1-1"


async def test_of_two_that_come_back_the_first_is_sent_away_in_the_middle() -> None:
    way = stream(store())
    way._is_stream = True
    await say(way, b"1", b"2")
    first, second = Paper(slow=True), Paper()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(way.resume, first, 0)
        await wait_all_tasks_blocked()
        await way.resume(second, 0)
        first.turned.set()
    assert first.how == "cut"
    await say(way, b"3", ends=True)
    assert (second.words, second.how) == ([b"1", b"2", b"3"], "ended")
    assert way.pulse.facts() == {"streams": 0}


async def test_a_session_that_ends_takes_along_who_is_being_told_what_it_missed() -> None:
    way = stream(store())
    way._is_stream = True
    await say(way, b"1")
    paper = Paper(slow=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(way.resume, paper, 0)
        await wait_all_tasks_blocked()
        way.cut()
        paper.turned.set()
    assert paper.how == "cut"
    assert way.response is None
