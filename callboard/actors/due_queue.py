"""Items that all wait equally long before each falls due: one queue and one sleeping task for thousands of them."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

import attrs
import trio

T = TypeVar("T")


@attrs.define(eq=False)
class DueQueue(Generic[T]):
    """Items in the order in which they were put, which is that in which they fall due. One task waits for all."""

    _due: OrderedDict[T, float] = attrs.field(factory=OrderedDict, init=False)
    _filled: trio.Event = attrs.field(factory=trio.Event, init=False)

    def put(self, item: T, due: float) -> None:
        """Let *item*, which is not in the queue, fall due at *due*: not earlier than those before it."""
        self._due[item] = due
        self._filled.set()

    def discard(self, item: T) -> None:
        """Take *item* out. Harmless for one that is not in the queue."""
        self._due.pop(item, None)

    def pop_due(self, until: float) -> Iterator[tuple[T, float]]:
        """Take out the items that are due at *until*, and when each was: one at a time, so between two the caller may
        wait."""
        while self._due and self.first <= until:
            yield self._due.popitem(last=False)

    @property
    def first(self) -> float:
        """When the first item falls due; never if there is none."""
        return next(iter(self._due.values()), math.inf)

    async def wait_filled(self) -> None:
        """Wait until there is an item."""
        while not self._due:
            self._filled = trio.Event()
            await self._filled.wait()

    def __len__(self) -> int:
        return len(self._due)
