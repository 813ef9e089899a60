"""A hosted `Server` that any number of clients may visit, in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import attrs
import msgspec
import pytest
import trio

from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.server.session_tree import open_session
from callboard.codecs.revisions import LEGACY, Revision
from callboard.server import Server
from callboard.testing import Peer
from callboard.transports.memory import MemoryConnection, memory_pair

EVERY = pytest.mark.parametrize("revision", list(Revision), ids=str)
EACH_LEGACY = pytest.mark.parametrize("revision", sorted(LEGACY), ids=str)


@attrs.frozen(eq=False)
class Recorder(MemoryConnection):
    """A client's end that remembers every frame which came in."""

    frames: list[Any] = attrs.field(factory=list, init=False)

    async def receive(self) -> bytes:
        frame = await super().receive()
        self.frames.append(msgspec.json.decode(frame))
        return frame


def recorded(peer: Peer) -> list[Any]:
    """All that the server ever said to *peer*."""
    assert isinstance(peer.connection, Recorder)
    return peer.connection.frames


@attrs.define(eq=False)
class House:
    host: Host
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def stranger(self, revision: Revision, *, principal: str = "anonymous", **more: Any) -> Peer:
        """A client that has said nothing yet."""
        there, here = memory_pair()
        await open_session(self.host, here, f"s-{next(self._names)}", principal)
        return Peer(Recorder(there._outgoing, there._incoming), revision, **more)

    async def peer(self, revision: Revision, **more: Any) -> Peer:
        """A client that is ready to ask."""
        peer = await self.stranger(revision, **more)
        if revision in LEGACY:
            await peer.initialize()
        return peer


@asynccontextmanager
async def open_house(server: Server) -> AsyncIterator[House]:
    async with server.host(parking=Parking(server.info.name)) as host:
        yield House(host)


async def say_raw(peer: Peer, text: str) -> None:
    await peer.connection.send(text.encode())


async def hear_raw(peer: Peer) -> Any:
    """The next frame, which may be an array."""
    return msgspec.json.decode(await peer.connection.receive())


async def hears_nothing(peer: Peer, seconds: float = 60) -> None:
    """Virtual seconds in which no frame comes."""
    with trio.move_on_after(seconds):
        pytest.fail(f"heard {await peer.connection.receive()!r}")


def text(result: dict[str, Any]) -> str:
    """The words of a tool result."""
    words: str = result["content"][0]["text"]
    return words
