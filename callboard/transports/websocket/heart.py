"""Finds sockets whose peer has vanished: a ping for each, now and then."""

from collections import OrderedDict
from typing import Final, Never

import attrs
import trio

from callboard.supervisor import Actor, Fact, get_logger
from callboard.transports.websocket.link import Link

log = get_logger("callboard.transports")

BREATH: Final = 0.5
"""Seconds by which a ping may come early, so that many are sent at once: a wake-up for each would cost more."""

BURST: Final = 128
"""Pings that are sent before others get a turn."""


@attrs.define(eq=False, repr=False)
class Heart(Actor[Never]):
    """Beats for all sockets of a door, for each in its own time. All beat equally fast: one queue, one task."""

    mailbox = None

    every: float
    silent: int = attrs.field(default=0, init=False)
    _due: OrderedDict[Link, float] = attrs.field(factory=OrderedDict, init=False)
    _woken: trio.Event = attrs.field(factory=trio.Event, init=False)

    def add(self, link: Link) -> None:
        """A socket has opened."""
        self._due[link] = trio.current_time() + self.every
        self._woken.set()

    def discard(self, link: Link) -> None:
        """A socket has closed. Harmless for one that is not here."""
        self._due.pop(link, None)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                if not self._due:
                    self._woken = trio.Event()
                    await self._woken.wait()
                await trio.sleep_until(next(iter(self._due.values()), 0))
                await self._beat(nursery)

    async def _beat(self, nursery: trio.Nursery) -> None:
        until = trio.current_time() + BREATH
        seen = silent = 0
        while self._due and (due := next(iter(self._due.values()))) <= until:
            link, _ = self._due.popitem(last=False)
            if link.beat(until):
                self._due[link] = due + self.every
                if not link.ping_nowait():  # TLS, or somebody is writing
                    nursery.start_soon(link.ping)
            silent += link.is_silent
            seen += 1
            if seen % BURST == 0:
                await trio.lowlevel.checkpoint()
        if silent:  # a network that fails loses many at once
            self.silent += silent
            log.info("websockets_silent", heart=self.path, count=silent)

    def facts(self) -> dict[str, Fact]:
        return {"sockets": len(self._due), "silent": self.silent}
