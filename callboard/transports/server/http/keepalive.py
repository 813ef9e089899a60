"""Keeps quiet streams alive: proxies and clients take a long silence for a dead connection."""

from typing import Final, Never

import attrs
import trio

from callboard.actors.due_queue import DueQueue
from callboard.codecs.sse import encode_comment
from callboard.supervisor import Actor, Fact
from callboard.transports.server.http.response import Response

COMMENT: Final = encode_comment()

BREATH: Final = 0.5
"""Seconds between two looks for streams that are due: ten thousand cost two wake-ups a second, not ten thousand."""


BURST: Final = 128
"""Comments that are written before others get a turn: thousands of streams may have begun at once."""


@attrs.define(eq=False)
class KeepAlive(Actor[Never]):
    """Writes a comment to every open stream, each at its own beat. All beat equally fast."""

    mailbox = None

    every: float
    _due: DueQueue[Response] = attrs.field(factory=DueQueue, init=False)

    def add(self, response: Response) -> None:
        """A stream has begun."""
        self._due.put(response, trio.current_time() + self.every)

    def discard(self, response: Response) -> None:
        """A stream has ended. Harmless for one that is not here."""
        self._due.discard(response)

    async def run(self) -> None:
        while True:
            await self._due.wait_filled()
            await trio.sleep(max(BREATH, self._due.first - trio.current_time()))
            await self._beat(trio.current_time())

    async def _beat(self, now: float) -> None:
        for written, (response, _) in enumerate(self._due.pop_due(now), 1):
            if not response.is_over:
                response.try_write(COMMENT)
                self._due.put(response, now + self.every)
            if written % BURST == 0:
                await trio.lowlevel.checkpoint()

    def facts(self) -> dict[str, Fact]:
        return {"streams": len(self._due)}
