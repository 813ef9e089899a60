"""Rates that are exact over all workers: their meters lie in memory that all of them share.

A meter is one number (`RateLimit`), so it needs no message to another process: a lock of a few microseconds is enough.
"""

import fcntl
import hashlib
import mmap
import os
import struct
import time
from collections.abc import Hashable
from typing import Final

import attrs

from callboard.actors.rate import Rate, RateLimit

METERS: Final = 65_536
"""Meters of all workers together. When all near a key's place are in use, the one that is empty first is given up."""

PROBES: Final = 16
"""Places that are looked at for one key."""

TRIES: Final = 50
"""Times that the lock is tried for at once: it is held for microseconds."""

LOCK_WAIT: Final = 0.25
"""Seconds that the lock is waited for then: a busy machine may have taken the core from the worker that holds it. After
that the holder hangs, and the own meter has to do."""

LOCK_STEP: Final = 0.0005
"""Seconds between two attempts."""

HOLDER_HANGS: Final = 1.0
"""Seconds for which nothing waits for a holder that hangs."""

_METER: Final = struct.Struct("=Qd")
_SIZE: Final = METERS * _METER.size


def create_meters() -> int:
    """The descriptor of a page of meters, all empty."""
    descriptor = os.memfd_create("callboard-rates")
    os.ftruncate(descriptor, _SIZE)
    return descriptor


@attrs.define(eq=False)
class MeterPage:
    """The page, in one worker."""

    descriptor: int
    _page: mmap.mmap = attrs.field(init=False)
    _hangs_until: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._page = mmap.mmap(self.descriptor, _SIZE)

    def lock(self) -> bool:
        for _ in range(TRIES):
            if self._try_lock():
                return True
            os.sched_yield()
        now = time.monotonic()
        until = 0.0 if now < self._hangs_until else now + LOCK_WAIT
        while now < until:
            time.sleep(LOCK_STEP)
            if self._try_lock():
                return True
            now = time.monotonic()
        if until:
            self._hangs_until = now + HOLDER_HANGS
        return False

    def _try_lock(self) -> bool:
        try:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def find(self, key: int) -> tuple[int, float]:
        """The offset of a key's meter, and when it will be empty: 0 for one that is new."""
        best, least = 0, float("inf")
        for probe in range(PROBES):
            offset = (key + probe) % METERS * _METER.size
            found, empty_at = _METER.unpack_from(self._page, offset)
            if found == key:
                return offset, empty_at
            if empty_at < least:
                best, least = offset, empty_at
        return best, 0.0

    def put(self, offset: int, key: int, empty_at: float) -> None:
        _METER.pack_into(self._page, offset, key, empty_at)


@attrs.define(eq=False)
class SharedRateLimit(RateLimit):
    """As `RateLimit`, over all workers. The clock is the machine's, which they have in common."""

    page: MeterPage = attrs.field(kw_only=True)
    purpose: str = attrs.field(kw_only=True)

    @classmethod
    def of(cls, rate: Rate, page: MeterPage, purpose: str) -> "SharedRateLimit":
        return cls(rate, page=page, purpose=purpose)

    def allow(self, who: Hashable, now: float, count: int = 1) -> bool:
        if not self.page.lock():
            return super().allow(who, now, count)
        try:
            key, now = self._key(who), time.monotonic()
            offset, empty_at = self.page.find(key)
            empty_at = max(empty_at, now) + self.rate.interval * count
            if empty_at - now > self.rate.per + self.rate.interval / 2:
                return False
            self.page.put(offset, key, empty_at)
            return True
        finally:
            self.page.unlock()

    def _key(self, who: Hashable) -> int:
        digest = hashlib.blake2s(f"{self.purpose}\0{who}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big")
