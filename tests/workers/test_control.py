"""News that wait for a worker: those of one thing are one, and too many are everything."""

import socket

import msgspec
import trio

from callboard.workers.control import MAX_TOLD, Control
from callboard.workers.messages import FromParent, Told

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
    await messages.aclose()  # type: ignore[attr-defined]
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
