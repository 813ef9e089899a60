"""What all nodes know of sessions: a record of each, sealed, and which worker has it. Written behind, never waited for
by a request whose session has a living home."""

import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import attrs
import trio

from callboard.cluster.store import NotListed, SharedBook, StoreAway, View
from callboard.codecs.seal import KeyRing, Seal
from callboard.errors import FrameTooLarge
from callboard.supervisor import get_logger
from callboard.workers.book import Book, Found

MAX_UNWRITTEN: Final = 100_000
"""Sessions whose changes may wait for the store. Beyond that, those that wait longest are forgotten there."""

TOGETHER: Final = 64
"""Records that are written by one command."""

TOUCHED_TOGETHER: Final = 256

TOUCHED_EVERY: Final = 300.0
"""Seconds between two touches of the records that this node's workers have; less, if sessions are idle for less."""

log = get_logger("callboard.cluster")


@attrs.define(eq=False)
class SharedRecords:
    """This node's sessions as the other nodes read of them, beside its own book."""

    store: SharedBook
    local: Book
    ring: Callable[[], KeyRing]
    view: Callable[[], View]
    ttl: float
    is_written: bool = attrs.field(default=False, init=False)
    """Whether the store has what this node has: not yet, after it was away."""
    _unwritten: dict[str, None] = attrs.field(factory=dict, init=False)
    _filled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def changed(self, key: str) -> None:
        self._unwritten.pop(key, None)
        self._unwritten[key] = None
        if len(self._unwritten) > MAX_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]
        self._filled.set()

    @property
    def unwritten(self) -> int:
        return len(self._unwritten)

    async def run(self) -> None:
        """Write what changes, and touch what does not. Raises `StoreAway`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._touch_all)
            while True:
                await self._filled.wait()
                self._filled = trio.Event()
                await self.flush()

    async def flush(self) -> None:
        """Write all that has changed. Raises `StoreAway`."""
        while self._unwritten:
            await self._write(list(islice(self._unwritten, TOGETHER)))

    async def _write(self, keys: list[str]) -> None:
        async with self._lock:
            values = {key: self._value(key) for key in keys if key in self._unwritten}
            for key in values:
                del self._unwritten[key]
            if not values:
                return
            try:
                await self.store.write(values, self.view().others)
            except BaseException:
                self._unwritten = {**dict.fromkeys(values), **self._unwritten}
                raise

    def _value(self, key: str) -> tuple[bytes | None, str] | None:
        """The owner and the sealed record; None if there is none (any more)."""
        entry = self.local.entry(key)
        if entry is None:
            return None
        try:
            sealed = Seal(self.ring(), "record").close(entry.record, (key.encode(),), expires=math.inf)
        except FrameTooLarge:
            return None  # it is this node's alone
        return entry.home, sealed

    async def _touch_all(self) -> None:
        while True:
            await self._touch(self.local.owned(self.view().own))
            self.is_written = True
            await trio.sleep(min(TOUCHED_EVERY, self.ttl / 3))

    async def _touch(self, owned: Iterable[tuple[str, bytes]]) -> None:
        """Have the store keep them; write again what it has lost."""
        left = list(owned)
        for start in range(0, len(left), TOUCHED_TOGETHER):
            for key in await self.store.touch(dict(left[start : start + TOUCHED_TOGETHER])):
                self.changed(key)
        await self.flush()

    async def take(self, key: str, taker: bytes, view: View, *, is_sure: bool) -> Found | NotListed | None:
        if key in self._unwritten or self._lock.locked():
            await self._write([key])  # after what is being written, too
        if not self.is_written:
            raise StoreAway("what this node has is not written yet")
        found = await self.store.take(key, taker, view, is_sure=is_sure)
        if found is None or isinstance(found, NotListed):
            return found
        if found.record is None:
            return Found(found.home)
        opened = Seal(self.ring(), "record").open(found.record, (key.encode(),), now=0.0)
        if opened is None:
            log.warning("record_not_ours", session=key)
            return None
        return Found(found.home, opened.payload)
