"""How much is kept for all peers that may come back. Pure: no clock, no tasks."""

from heapq import heapify, heapreplace
from typing import Final, Protocol

import attrs

SLACK: Final = 256
"""Part of the budget that is made free beyond need, so that not each message looks through all keepers."""


class Keeper(Protocol):
    """Store of the messages of one session, in order."""

    @property
    def kept_bytes(self) -> int:
        """Bytes that it keeps."""

    def forget_oldest(self) -> None:
        """Let go of the oldest message, and of its bytes in the budget."""


@attrs.define(eq=False)
class ReplayBudget:
    """Counts the bytes that all sessions keep. When they are too many, the session with the most loses its oldest: one
    that is told much costs itself, and not the others.

    Keepers count `total` up and down themselves: each message of a busy session is kept, and a call would cost more
    than the sum.
    """

    most: int
    total: int = attrs.field(default=0, init=False)
    _keepers: dict[Keeper, None] = attrs.field(factory=dict, init=False)  # that keep anything, the first one first

    def join(self, keeper: Keeper) -> None:
        """*keeper* keeps something from now on."""
        self._keepers[keeper] = None

    def leave(self, keeper: Keeper) -> None:
        """*keeper* keeps nothing any more."""
        self._keepers.pop(keeper, None)

    def trim(self) -> None:
        """Have those with the most forget until the rest fits, with a little room."""
        if self.total <= self.most:
            return
        goal = self.most - self.most // SLACK
        ranked = [(-keeper.kept_bytes, place, keeper) for place, keeper in enumerate(self._keepers)]
        heapify(ranked)
        while self.total > goal and ranked and ranked[0][0] < 0:
            _, place, keeper = ranked[0]
            keeper.forget_oldest()
            heapreplace(ranked, (-keeper.kept_bytes, place, keeper))

    def __len__(self) -> int:
        return len(self._keepers)
