"""How fast one server is heard: what it says unasked may take a small part of the event loop, and no more.

A server may send unsolicited messages in a loop. Each is cheap, but a reader that handles them all leaves the others
waiting. So many a second are heard at once; beyond that the reader rests after every few, nine times as long as they
took, with all that they brought about. The pipe fills up meanwhile, and the server waits.
"""

import time
from typing import Final

import attrs
import trio

from callboard.actors.rate import Rate, RateLimit

FREE: Final = Rate(1000)
"""Messages unasked that a server may send in a second before its reader rests."""

FEW: Final = 8
"""Messages that are heard between two rests."""

WEIGHT: Final = 16_384
"""Bytes of a message that count as one more message: a message of four MiB takes milliseconds by itself."""

REST: Final = 9.0
"""How much longer a rest is than what was heard before took: a tenth of the loop is the server's."""

LONGEST: Final = 0.1
"""Seconds of the longest rest."""


@attrs.define(eq=False)
class ReadPace:
    """The pace of one connection."""

    _meters: RateLimit = attrs.field(factory=lambda: RateLimit(FREE), init=False)
    _heard: int = attrs.field(default=0, init=False)
    _began: float = attrs.field(default=0.0, init=False)

    async def keep(self, size: int = 0) -> None:
        """Called for each message that was not asked for, before it is dealt with. *size*: its bytes."""
        weight = 1 + size // WEIGHT
        if self._meters.allow(None, trio.current_time(), weight):
            self._heard = 0
            return
        if self._heard == 0:
            self._began = time.perf_counter()
        self._heard += weight
        if self._heard > FEW:
            self._heard = 0
            await trio.lowlevel.checkpoint()  # what they brought about counts, too
            took = time.perf_counter() - self._began
            await trio.sleep(min(REST * took, LONGEST))
