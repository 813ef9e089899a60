"""The stage clock: a resource that is another every second, and ticks only while it has subscribers."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Never

import attrs
import trio

from callboard.actors.changes import Hear, ResourceUpdated
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.subscribers import Following, HostedAudience
from callboard.codecs.revisions import ToolAnnotations
from callboard.server import Server
from callboard.supervisor import Actor, Fact

CLOCK: Final = "clock://stage"
CURTAIN: Final = 15 * 60
"""Seconds between two curtains: short plays."""


@attrs.frozen(eq=False)
class Watchers(HostedAudience):
    """An audience that counts its followers."""

    _followed: Counter[str] = attrs.field(factory=Counter, init=False)
    _come: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    async def follow(self, uris: Sequence[str], principal: str, hear: Hear) -> Following:
        following = await super().follow(uris, principal, hear)
        self._followed.update(following.keys())
        self._come.unpark_all()
        return following

    def unfollow(self, following: Following, hear: Hear) -> None:
        super().unfollow(following, hear)
        self._followed.subtract(following.keys())

    def count(self, uri: str) -> int:
        return self._followed[uri]

    async def wait_any(self, uri: str) -> None:
        """Wait for the first subscriber of *uri*."""
        while self.count(uri) <= 0:
            await self._come.park()


@attrs.define(eq=False)
class Ticker(Actor[Never]):
    """Tells of every second, as long as there are subscribers; else it sleeps."""

    mailbox = None

    watchers: Watchers
    ticks: int = attrs.field(default=0, init=False)

    async def run(self) -> None:
        while True:
            await self.watchers.wait_any(CLOCK)
            await trio.sleep(1 - time.time() % 1)
            self.ticks += 1
            self.watchers.lists.publish(ResourceUpdated(CLOCK))

    def facts(self) -> dict[str, Fact]:
        return {"watched_by": self.watchers.count(CLOCK), "ticks": self.ticks}


class StageClock(Server):
    """A server that knows its subscribers."""

    @asynccontextmanager
    async def host(self, *, parking: Parking | None = None) -> AsyncIterator[Host]:
        async with super().host(parking=parking) as host:
            watchers = Watchers(host.topics)
            host.audience = watchers
            host.root.spawn(Ticker(watchers), name="ticker", shutdown=0)
            yield host


server = StageClock("stage clock", version="1.0", instructions=f"Subscribe to {CLOCK}: it ticks.")


@server.resource(CLOCK, mime_type="text/plain")
async def clock() -> str:
    """The time on stage. Subscribe to it, and hear of every second."""
    return time.strftime("%H:%M:%S")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
async def time_to_curtain() -> str:
    """How long it is until the curtain rises."""
    minutes, seconds = divmod(CURTAIN - int(time.time()) % CURTAIN, 60)
    return f"{minutes} min {seconds} s"
