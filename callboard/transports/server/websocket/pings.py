"""Pings that find WebSockets with a vanished peer."""

from typing import Final, Never

import attrs
import trio

from callboard.actors.due_queue import DueQueue
from callboard.supervisor import Actor, Fact, get_logger
from callboard.transports.server.websocket.socket import WebSocketConnection

log = get_logger("callboard.transports")

BREATH: Final = 0.5
"""Seconds by which a ping may come early, so that many are sent at once: a wake-up for each would cost more."""

BURST: Final = 128
"""Pings that are sent before others get a turn."""

ANSWER: Final = 1 / 6
"""Share of the time between two pings within which one is answered. Else it is sent again, once."""


@attrs.define(eq=False, repr=False)
class Pings(Actor[Never]):
    """Pings all sockets of a listener, each in its own time."""

    mailbox = None

    every: float
    silent: int = attrs.field(default=0, init=False)
    _asked: DueQueue[WebSocketConnection] = attrs.field(factory=DueQueue, init=False)  # due: by when it has answered
    _quiet: DueQueue[WebSocketConnection] = attrs.field(factory=DueQueue, init=False)  # due: when it is pinged

    def add(self, link: WebSocketConnection) -> None:
        """A socket has opened, which is as good as an answer."""
        self._asked.put(link, trio.current_time() + self._answer_time)

    def discard(self, link: WebSocketConnection) -> None:
        """A socket has closed. Harmless for one that is not here."""
        self._asked.discard(link)
        self._quiet.discard(link)

    @property
    def _answer_time(self) -> float:
        return self.every * ANSWER

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                if not self._quiet:
                    await self._asked.wait_filled()
                await trio.sleep_until(min(self._asked.first, self._quiet.first))
                await self._beat(nursery)

    async def _beat(self, nursery: trio.Nursery) -> None:
        until = trio.current_time() + min(BREATH, self._answer_time / 2)
        seen = silent = 0
        for queue in (self._asked, self._quiet):
            for link, due in queue.pop_due(until):
                self._look(link, due, until, nursery, is_asked=queue is self._asked)
                silent += link.is_silent
                seen += 1
                if seen % BURST == 0:
                    await trio.lowlevel.checkpoint()
        if silent:  # a network that fails loses many at once
            self.silent += silent
            log.info("websocket_pings_timed_out", actor=self.path, count=silent)

    def _look(
        self, link: WebSocketConnection, due: float, now: float, nursery: trio.Nursery, *, is_asked: bool
    ) -> None:
        if not link.beat(now, is_asked=is_asked):
            return
        if is_asked and link.is_heard:
            self._quiet.put(link, due + self.every - self._answer_time)
            return
        self._asked.put(link, due + self._answer_time)
        if not link.ping_nowait():  # TLS, or another task is writing
            nursery.start_soon(link.ping)

    def facts(self) -> dict[str, Fact]:
        return {"sockets": len(self._asked) + len(self._quiet), "silent": self.silent}
