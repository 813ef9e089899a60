"""News that wait for a worker: those of one thing are one, and too many are everything."""

import socket
from collections.abc import Callable, Iterable

import msgspec
import pytest
import trio
import trio.testing

from callboard.actors.server.session_record import read_record
from callboard.workers.book import Book
from callboard.workers.control import MAX_NOTED, MAX_TOLD, MAX_WAITING, Control
from callboard.workers.messages import (
    AllSessions,
    AreYouThere,
    Drop,
    FromParent,
    FromWorker,
    Keep,
    Leave,
    PeerWorker,
    PeerWorkers,
    Release,
    Take,
    Taken,
    Told,
)

_decoder = msgspec.json.Decoder[FromParent](FromParent)


async def told_after(*news: Told) -> Told:
    """What the other end hears of *news* that came before it could be written."""
    ours, theirs = socket.socketpair()
    writing, reading = Control(ours, _decoder), Control(theirs, _decoder)
    for one in news:
        writing.tell(one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writing.write)
        messages = aiter(reading)
        found = await anext(messages)
        nursery.cancel_scope.cancel()
    await messages.aclose()
    await writing.close()
    await reading.close()
    assert isinstance(found, Told)
    return found


async def test_news_of_one_thing_are_one() -> None:
    assert await told_after(Told(["tools"], ["a://b"]), Told(["tools"], ["a://c"])) == Told(
        ["tools"], ["a://b", "a://c"]
    )


async def test_too_many_news_are_everything() -> None:
    uris = [f"a://{number}" for number in range(MAX_TOLD)]
    assert (await told_after(Told(resources=uris))).resources == uris
    assert await told_after(Told(["tools"], uris), Told(resources=["a://more"])) == Told(everything=True)
    assert await told_after(Told(everything=True), Told(["tools"])) == Told(everything=True)


async def heard_of(*lines: bytes) -> list[FromParent]:
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(b"".join(line + b"\n" for line in lines))
    reading = Control(theirs, _decoder)
    try:
        return [message async for message in reading]
    finally:
        await reading.close()


async def test_what_a_newer_release_says_beyond_what_is_known_is_ignored() -> None:
    """Kinds of messages, and members of known kinds: the parent may be older than its workers, for SIGHUP renews only
    them."""
    newer = b'{"kind":"leave","linger":2.5,"because":{"of":["reasons"]}}'
    assert await heard_of(b'{"kind":"cheer","loud":true}', newer) == [Leave(2.5)]
    worker = b'{"kind":"peerworkers","workers":[{"name":"AAAA","number":1,"generation":2,"mood":"good"}]}'
    (peers,) = await heard_of(worker)
    assert isinstance(peers, PeerWorkers)
    assert (peers.workers[0].number, peers.workers[0].is_leaving) == (1, False)


@pytest.mark.parametrize("line", [b'{"kind":"leave","linger":"long"}', b'{"linger":1}', b"[]", b"{"])
async def test_what_is_no_message_is_not_ignored(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        await heard_of(line)


def test_a_record_of_a_newer_release_is_read_without_what_is_new() -> None:
    known: dict[str, object] = {"revision": "2025-06-18", "principal": "ada", "capabilities": {}, "client": None}
    record = read_record(msgspec.json.encode({**known, "mood": ["good"], "is_ready": True}))
    assert (record.terms().principal, record.is_ready, record.followed) == ("ada", True, [])


# What waits while the other end does not read.


async def read_by_the_other_end(
    say: Callable[[Control[FromParent]], None], sessions: Callable[[], Iterable[Keep]] = lambda: ()
) -> list[object]:
    """What is said before the other end reads."""
    ours, theirs = socket.socketpair()
    decoder = msgspec.json.Decoder[FromParent | FromWorker](FromParent | FromWorker)
    writing, reading = Control(ours, _decoder, None, sessions), Control(theirs, decoder)
    say(writing)
    heard: list[object] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writing.write)

        async def read() -> None:
            async for message in reading:
                heard.append(message)  # noqa: PERF401  # as they come

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked(0.02)
        nursery.cancel_scope.cancel()
    await writing.close()
    await reading.close()
    return heard


async def test_no_order_is_lost_however_much_waits() -> None:
    peers = [PeerWorkers([PeerWorker(b"%d" % number, number, 1)]) for number in range(3 * MAX_WAITING)]

    def say(control: Control[FromParent]) -> None:
        control.say(Leave(1.0))
        for number, one in enumerate(peers):
            control.say(Taken(number))
            control.say(one)
            control.say(AreYouThere(number))

    leave, *others = await read_by_the_other_end(say)
    assert leave == Leave(1.0)
    assert [one for one in others if not isinstance(one, Taken)] == [peers[-1], AreYouThere(len(peers) - 1)]
    assert [one.number for one in others if isinstance(one, Taken)] == list(range(len(peers)))


async def test_the_answer_that_a_worker_is_there_means_that_it_has_read_what_was_said_before() -> None:
    def say(control: Control[FromParent]) -> None:
        control.say(AreYouThere(1))
        control.say(PeerWorkers([]))
        control.say(AreYouThere(2))
        control.say(PeerWorkers([PeerWorker(b"x", 1, 1)]))

    assert await read_by_the_other_end(say) == [PeerWorkers([PeerWorker(b"x", 1, 1)]), AreYouThere(2)]


async def test_a_question_is_refused_at_once_when_too_many_wait() -> None:
    def say(control: Control[FromParent]) -> None:
        assert [control.say(Take("key", number)) for number in range(MAX_WAITING + 2)].count(False) == 2
        assert control.say(Leave(1.0))

    assert len(await read_by_the_other_end(say)) == MAX_WAITING + 1


async def test_notes_that_take_too_much_are_dropped_and_all_sessions_are_said_anew() -> None:
    record = b"x" * 300_000

    def say(control: Control[FromParent]) -> None:
        for number in range(100):
            control.note(f"{number}", Keep(f"{number}", record), is_all=True)
            assert control._noted <= MAX_NOTED
        control.note("3", Keep("3", b"older"), is_all=True)
        control.note("4", Drop("4"), is_all=True)

    living = [Keep("2", b"2"), Keep("3", b"3")]
    first, *others = await read_by_the_other_end(say, lambda: living)
    assert first == AllSessions(is_over=False)
    assert others[:3] == [*living, AllSessions(is_over=True)]
    keys = [one.key for one in others[3:] if isinstance(one, Keep | Drop)]
    assert "3" not in keys  # which was said as it is
    assert keys[-1] == "4"


async def test_the_size_of_notes_is_that_of_those_that_wait() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        control = Control(ours, _decoder)
        for number in range(9):
            control.note("a", Keep("a", b"x" * number), is_all=True)
            control.note("a", Release("a"), is_all=False)
        assert control._noted == sum(map(len, control._notes["a"]))
        await control.close()


def test_sessions_that_a_worker_does_not_say_anew_have_ended() -> None:
    book = Book(ttl=60.0)
    for key, home in (("a", b"1"), ("b", b"1"), ("c", b"2"), ("d", b"1")):
        book.keep(key, b"record", home)
    book.begin_anew(b"1")
    book.keep("a", b"newer", b"1")
    book.keep("d", b"record", b"2")  # it has moved meanwhile
    book.keep("e", b"record", b"1")
    assert book.entry("b") is not None  # until all are said
    assert book.end_anew(b"1") == ["b"]
    assert [key for key in "abcde" if book.entry(key) is not None] == ["a", "c", "d", "e"]
