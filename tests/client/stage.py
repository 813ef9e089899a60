"""Servers that are played by a test: they hear what a client says, and say what the test wants, right or wrong."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import pytest
import trio

from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.revisions import LATEST, MODERN, Revision
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5
from callboard.transports.memory import MemoryConnection, memory_pair

Json: TypeAlias = dict[str, Any]

EVERYTHING: Final[Json] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}
EVERY: Final = [R1, R2, R3, R4, R5]
every_revision = pytest.mark.parametrize("revision", EVERY)
INFO: Final = {"name": "puppet", "version": "1"}
CACHED: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@attrs.define(eq=False)
class Puppet:
    """A server's end of a connection, in the hands of a test."""

    connection: MemoryConnection
    revision: Revision = LATEST
    heard: list[Json] = attrs.field(factory=list)
    """Everything that came in."""

    @property
    def is_modern(self) -> bool:
        return self.revision in MODERN

    async def hear(self, *methods: str) -> Json:
        """The next message; of these methods, if any are named: others are passed over."""
        while True:
            message: Json = msgspec.json.decode(await self.connection.receive())
            self.heard.append(message)
            if not methods or message.get("method") in methods:
                return message

    async def say(self, **message: Any) -> None:
        await self.write(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    async def write(self, frame: bytes) -> None:
        await self.connection.send(frame)

    async def answer(self, request: Json, **result: Any) -> None:
        """A result, with whatever the revision wants in one."""
        extra = {"resultType": "complete"} if self.is_modern else {}
        await self.say(id=request["id"], result={**extra, **result})

    async def refuse(self, request: Json, code: int, message: str = "no", **data: Any) -> None:
        await self.say(id=request["id"], error={"code": code, "message": message, **({"data": data} if data else {})})

    async def meet(self) -> None:
        """Agree on the revision, whichever way the client begins."""
        while True:
            request = await self.hear("server/discover", "initialize")
            if request["method"] == "initialize":
                agreed = {"protocolVersion": self.revision.value, "capabilities": EVERYTHING, "serverInfo": INFO}
                await self.answer(request, **agreed)
                await self.hear("notifications/initialized")
                return
            if self.is_modern:
                await self.answer(
                    request,
                    supportedVersions=[self.revision.value],
                    capabilities=EVERYTHING,
                    ttlMs=0,
                    cacheScope="public",
                )
                return
            await self.refuse(request, -32601, "Method not found")


Play: TypeAlias = Callable[[Puppet], Awaitable[None]]


def played(play: Play, revision: Revision = LATEST, *, meets: bool = True) -> TransportRoutes:
    """A target whose server is *play*. Unless it *meets* the client first, that is the play's to do."""

    async def perform(puppet: Puppet) -> None:
        try:
            if meets:
                await puppet.meet()
            await play(puppet)
        except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has left

    @asynccontextmanager
    async def open_way() -> AsyncIterator[Link]:
        there, here = memory_pair()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(perform, Puppet(here, revision))
                yield DuplexLink(there)
                there.close()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None

    return TransportRoutes(None, (TransportRoute("played", open_way),))


def text(result: Any) -> str:
    """What a tool has said."""
    words: str = result.content[0].text
    return words
