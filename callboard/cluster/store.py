"""What nodes need of a store that they share: two small protocols, which Redis or Valkey fulfil (`cluster/redis.py`).

A store is for the list of nodes and for small records. No request waits for it, and none goes through it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import attrs

ANSWER_TIME: Final = 1.0
"""Seconds for the answer to a command, to get a connection, and to connect, each."""


class StoreAway(Exception):
    """The store did not answer. Whether it did what it was asked is not known."""


@attrs.frozen
class View:
    """What a node knows of workers."""

    own: frozenset[bytes]
    others: frozenset[bytes]
    """Living workers of other nodes."""
    gone: frozenset[bytes]
    """Workers that are dead for sure."""


@attrs.frozen
class NotListed:
    """A worker has the session that is not known: it is new, or dead."""

    home: bytes


@attrs.frozen
class Owned:
    """A session, its owner, and its sealed record; without one, if another worker has it."""

    home: bytes
    record: str | None = None


class Directory(Protocol):
    """Where nodes announce themselves, and tell each other what has changed. All of it raises `StoreAway`."""

    @property
    def is_there(self) -> bool: ...

    def connected(self) -> AbstractAsyncContextManager[None]:
        """Everything else can be used in the block. It is cancelled when the store does not answer."""

    async def announce(self, name: str, entry: str, message: str) -> Sequence[bytes]:
        """This node lives, for so long as entries are good for; tell all listeners. Returns what all have
        announced."""

    async def leave(self, name: str, message: str) -> None:
        """It ends; tell all listeners."""

    async def publish(self, message: str) -> None:
        """Tell all listeners. It may be lost."""

    def subscribed(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[bytes]]]:
        """In the block, the next message each time. It must be read at once: what waits may not be bounded."""


class SharedBook(Protocol):
    """The book of sessions that all nodes read. All of it raises `StoreAway`."""

    async def write(self, values: Mapping[str, tuple[bytes | None, str] | None], others: Iterable[bytes]) -> None:
        """Write records down with their owners; without one, remove them. What one of *others* has is left alone."""

    async def touch(self, owners: Mapping[str, bytes]) -> list[str]:
        """Keep what these owners have. Returns what is not there."""

    async def take(self, key: str, taker: bytes, view: View, *, is_sure: bool) -> Owned | NotListed | None:
        """Give a session that no living worker has to *taker*, with its record; else say which has it. Of two takers,
        one gets it. *is_sure*: whether owners that are not in *view* are dead."""
