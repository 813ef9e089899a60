"""News that wait for a worker: those of one thing are one, and too many are everything."""

import socket

import msgspec
import pytest
import trio

from callboard.actors.server.session_record import read_record
from callboard.workers.control import MAX_TOLD, Control
from callboard.workers.messages import FromParent, Leave, PeerWorkers, Told

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
