"""The book of sessions: what is kept of each, and which worker has it. The parent keeps it, so it outlives workers."""

import hashlib
from collections import OrderedDict
from collections.abc import Container
from typing import Final, Protocol

import attrs

MAX_BYTES: Final = 256 * 1024 * 1024
"""Bytes of all records together. Beyond that, the sessions that were written down longest ago are forgotten."""

RECORD_WEIGHT: Final = 300
"""Bytes that an entry takes beside its record: measured."""


def key_of(name: str) -> str:
    """What a session is known by in the book: from this, no one can tell its id."""
    return hashlib.blake2s(name.encode(), digest_size=16).hexdigest()


@attrs.frozen
class Found:
    """Where a session is: the *home* that has it; and its *record*, if the one that asked is to open it again."""

    home: bytes
    record: bytes | None = None


class SessionBook(Protocol):
    """The book, as a worker uses it."""

    def keep(self, key: str, record: bytes) -> None:
        """A session of this worker is like that from now on."""

    def drop(self, key: str) -> None:
        """It has ended: it will not be opened again."""

    def release(self, key: str) -> None:
        """This worker has it no longer: another one may open it."""

    async def take(self, key: str) -> Found | None:
        """Where it is; None if there is none such."""


@attrs.define
class BookEntry:
    """A session: its record, and the worker that has it, or since when none has."""

    record: bytes
    home: bytes | None
    free_since: float = 0.0


@attrs.define(eq=False)
class Book:
    """The entries of all workers of one parent."""

    ttl: float
    """Seconds that a session may be without a worker: as long as one may be idle."""
    _entries: OrderedDict[str, BookEntry] = attrs.field(factory=OrderedDict, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    _unsaid: dict[bytes, set[str]] = attrs.field(factory=dict, init=False)  # of workers that say all anew

    def keep(self, key: str, record: bytes, home: bytes) -> None:
        self.drop(key)
        if self._unsaid:
            self._unsaid.get(home, set()).discard(key)
        self._entries[key] = BookEntry(record, home)
        self._bytes += len(record) + RECORD_WEIGHT
        while self._bytes > MAX_BYTES:
            self.drop(next(iter(self._entries)))

    def drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= len(entry.record) + RECORD_WEIGHT

    def release(self, key: str, home: bytes, now: float) -> None:
        """Harmless if another worker has it by now."""
        entry = self._entries.get(key)
        if entry is not None and entry.home == home:
            entry.home, entry.free_since = None, now

    def begin_anew(self, home: bytes) -> None:
        """A worker says all its sessions anew."""
        self._unsaid[home] = {key for key, entry in self._entries.items() if entry.home == home}

    def end_anew(self, home: bytes) -> list[str]:
        """It has said all. Returns those that it did not say, which have ended."""
        ended = [key for key in self._unsaid.pop(home, set()) if (at := self._entries.get(key)) and at.home == home]
        for key in ended:
            self.drop(key)
        return ended

    def free_all_of(self, home: bytes, now: float) -> list[str]:
        """A worker has ended. Returns the sessions that it had."""
        self._unsaid.pop(home, None)
        freed = [key for key, entry in self._entries.items() if entry.home == home]
        for key in freed:
            self.release(key, home, now)
        return freed

    def entry(self, key: str) -> BookEntry | None:
        return self._entries.get(key)

    def owned(self, homes: Container[bytes]) -> list[tuple[str, bytes]]:
        """The sessions that *homes* have."""
        return [(key, entry.home) for key, entry in self._entries.items() if entry.home in homes and entry.home]

    def take(self, key: str, taker: bytes, living: Container[bytes], now: float) -> Found | None:
        """Give a session that no living worker has to *taker*; else say which has it. One that was without a worker
        for too long is forgotten."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.home is not None and entry.home != taker and entry.home in living:
            return Found(entry.home)
        if entry.home is None and now - entry.free_since > self.ttl:
            self.drop(key)
            return None
        entry.home = taker
        return Found(taker, entry.record)

    def forget_old(self, now: float) -> None:
        """Forget sessions that no client has come back for."""
        old = [key for key, entry in self._entries.items() if entry.home is None and now - entry.free_since > self.ttl]
        for key in old:
            self.drop(key)

    def __len__(self) -> int:
        return len(self._entries)
