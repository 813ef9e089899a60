"""Fair shares of new connections: workers accept on one socket, and one that has more than others lets them go first.

The kernel wakes whichever worker it likes. With SO_REUSEPORT it would spread them evenly, but a worker that hangs or
ends would take the connections in its queue along.
"""

import mmap
import os
from collections.abc import Callable
from typing import Final, Self

import attrs
import trio

SLOTS: Final = 256
"""Processes of one server at once: those that begin, those that serve, and those that end."""

AHEAD: Final = 2
"""Connections and sessions that a worker may have more than the one that has least."""

WAIT: Final = 0.002
"""Seconds that one with more waits before it accepts: once, for the others may hang."""

FULL_WAIT: Final = 0.1
"""Seconds that one without room for a connection waits while others have some. What it accepts it closes: so it leaves
the connection to them, and refuses it only if they do not take it, for they may hang."""

_UNUSED: Final = 0xFFFFFFFF
_FULL: Final = _UNUSED - 1
_SIZE: Final = SLOTS * 4


@attrs.define(eq=False)
class LoadPage:
    """A page of memory that all workers see: the load of each, by its slot."""

    descriptor: int
    _page: mmap.mmap = attrs.field(init=False)
    _loads: memoryview = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._page = mmap.mmap(self.descriptor, _SIZE)
        self._loads = memoryview(self._page).cast("I")

    @classmethod
    def create(cls) -> Self:
        descriptor = os.memfd_create("callboard-load")
        os.ftruncate(descriptor, _SIZE)
        page = cls(descriptor)
        for slot in range(SLOTS):
            page.release(slot)
        return page

    def release(self, slot: int) -> None:
        """No worker has this slot."""
        self._loads[slot] = _UNUSED

    def say(self, slot: int, load: int, *, is_full: bool = False) -> None:
        self._loads[slot] = _FULL if is_full else min(load, _FULL - 1)

    def least(self) -> int:
        """The load of the worker that has least."""
        return min(self._loads)

    def load(self, slot: int) -> int | None:
        """The load of one worker; None if there is none."""
        load = self._loads[slot]
        return None if load == _UNUSED else load

    def is_full(self, slot: int) -> bool:
        """Whether a worker has no room for another connection."""
        return self._loads[slot] == _FULL

    def close(self) -> None:
        self._loads.release()
        self._page.close()
        os.close(self.descriptor)


@attrs.define(eq=False)
class FairShare:
    """The share of one worker: of all its addresses together."""

    page: LoadPage
    slot: int
    sessions: Callable[[], int] = attrs.field(default=lambda: 0)
    """How many sessions it has. They count, too: else all sessions that are opened one after the other, each on a
    connection that ends, could begin in one worker."""
    _doors: list["DoorShare"] = attrs.field(factory=list, init=False)

    def door(self) -> "DoorShare":
        """The part of one address, whose connections are counted apart."""
        door = DoorShare(self)
        self._doors.append(door)
        return door

    @property
    def connections(self) -> int:
        return sum(door.connections for door in self._doors)

    @property
    def load(self) -> int:
        return self.connections + self.sessions()

    def said(self) -> None:
        """One of the addresses has more connections, or less. One without room counts for all: others go first."""
        self.page.say(self.slot, self.load, is_full=any(door.is_full for door in self._doors))


@attrs.define(eq=False)
class DoorShare:
    """The connections of one address of a worker."""

    share: FairShare
    connections: int = attrs.field(default=0, init=False)
    is_full: bool = attrs.field(default=False, init=False)

    async def wait_turn(self) -> None:
        """Before accepting: let others go first if this worker has more than they have, or no room here."""
        page = self.share.page
        if self.is_full:
            if page.least() < _FULL:
                await trio.sleep(FULL_WAIT)
        elif self.share.load > page.least() + AHEAD:
            await trio.sleep(WAIT)

    def say(self, connections: int, *, is_full: bool = False) -> None:
        self.connections, self.is_full = connections, is_full
        self.share.said()
