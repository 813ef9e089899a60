"""Visits of users to URLs: which of them a backend says are over, and which requests wait for that."""

from collections.abc import Sequence
from typing import Final

import attrs
import msgspec
import trio
from msgspec import Raw
from trio.lowlevel import ParkingLot

MAX_VISITS: Final = 1024
"""Visits to URLs that one connection remembers: the latest."""

MAX_VISIT_ID: Final = 1024
"""Longest id of a visit that is remembered, in bytes. Servers commonly use random ids of 36."""


@attrs.define(eq=False)
class UrlVisits:
    """The visits that one backend has said are over, on one connection."""

    _over: dict[str, None] = attrs.field(factory=dict, init=False)
    _changed: ParkingLot = attrs.field(factory=ParkingLot, init=False)

    def add(self, said: Raw | None) -> None:
        """The backend says so of a visit, by this id."""
        if said is None or len(said) > MAX_VISIT_ID:
            return
        found = msgspec.json.decode(said)
        if isinstance(found, str):
            self._over[found] = None
            if len(self._over) > MAX_VISITS:
                del self._over[next(iter(self._over))]
            self._changed.unpark_all()

    async def wait(self, ids: Sequence[str], within: float) -> None:
        """Wait until all these are over, but not for long."""
        with trio.move_on_after(within):
            while not self._over.keys() >= set(ids):
                await self._changed.park()
