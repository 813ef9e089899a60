"""How much is kept for all peers that may come back. Pure: no clock, no tasks."""

from collections import OrderedDict
from itertools import count
from typing import Protocol

import attrs


class Keeper(Protocol):
    """Store of the messages of one session, in order."""

    def forget_oldest(self) -> None:
        """Let go of the oldest message, and give its ticket back."""


@attrs.define(eq=False)
class ReplayBudget:
    """Counts the bytes that all sessions keep. When they are too many, the oldest go, whosever they are."""

    most: int
    total: int = attrs.field(default=0, init=False)
    _kept: "OrderedDict[int, tuple[Keeper, int]]" = attrs.field(factory=OrderedDict, init=False)
    _tickets: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    def add(self, keeper: Keeper, size: int) -> int:
        """*keeper* keeps *size* bytes more; the ticket is to be given back when they are gone."""
        ticket = next(self._tickets)
        self._kept[ticket] = keeper, size
        self.total += size
        return ticket

    def trim(self) -> None:
        """Have the oldest go until the rest fits."""
        while self.total > self.most:
            keeper, _ = next(iter(self._kept.values()))
            keeper.forget_oldest()

    def give_back(self, ticket: int) -> None:
        """Release the ticket: its message is no longer kept."""
        _, size = self._kept.pop(ticket)
        self.total -= size

    def __len__(self) -> int:
        return len(self._kept)
