"""Keeps quiet streams alive: proxies and clients take a long silence for a dead connection."""

from collections import OrderedDict
from typing import Final, Never

import attrs
import trio

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
    """Writes a comment to every open stream, each at its own beat. All beat equally fast: one queue, one task."""

    mailbox = None

    every: float
    _due: OrderedDict[Response, float] = attrs.field(factory=OrderedDict, init=False)
    _woken: trio.Event = attrs.field(factory=trio.Event, init=False)

    def add(self, response: Response) -> None:
        """A stream has begun."""
        self._due[response] = trio.current_time() + self.every
        self._woken.set()

    def discard(self, response: Response) -> None:
        """A stream has ended. Harmless for one that is not here."""
        self._due.pop(response, None)

    async def run(self) -> None:
        while True:
            if not self._due:
                self._woken = trio.Event()
                await self._woken.wait()
            await trio.sleep(max(BREATH, next(iter(self._due.values()), 0) - trio.current_time()))
            await self._beat(trio.current_time())

    async def _beat(self, now: float) -> None:
        written = 0
        while self._due:
            written += 1
            if written % BURST == 0:
                await trio.lowlevel.checkpoint()
            response, due = next(iter(self._due.items()), (None, now + 1))
            if response is None or due > now:
                return
            del self._due[response]
            if not response.is_over:
                response.write_nowait(COMMENT)
                self._due[response] = now + self.every

    def facts(self) -> dict[str, Fact]:
        return {"streams": len(self._due)}
