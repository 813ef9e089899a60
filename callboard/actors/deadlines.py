"""Until when requests may take, kept for all of a connection by one timer.

A cancel scope for each would be simpler, and costs more than all else that is done to ask and to be answered: 30 of 270
microseconds in the broker. Most requests are answered long before; so for each only a number is noted, and one task
sleeps until the first of them is due.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import attrs
import trio

OnPassed: TypeAlias = Callable[[], None]


class Deadline:
    """When something is due. It may be moved while it is being kept, by a cancel scope or a `DeadlineTimer`."""

    __slots__ = ("_at", "on_move", "on_passed")

    def __init__(self, at: float) -> None:
        self._at = at
        self.on_move: Callable[[float], None] | None = None
        self.on_passed: OnPassed | None = None

    @property
    def deadline(self) -> float:
        return self._at

    @deadline.setter
    def deadline(self, at: float) -> None:
        self._at = at
        if self.on_move is not None:
            self.on_move(at)

    def scope(self) -> trio.CancelScope:
        """A cancel scope that keeps it."""
        scope = trio.CancelScope(deadline=self._at)
        self.on_move = lambda at: setattr(scope, "deadline", at)
        return scope


@attrs.define(eq=False)
class DeadlineTimer:
    """Calls back for each deadline that has passed."""

    _limits: dict[Deadline, None] = attrs.field(factory=dict, init=False)
    _nap: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def keep(self, limit: Deadline, on_passed: OnPassed) -> None:
        """Call *on_passed* when *limit* has passed, unless it is forgotten before."""
        limit.on_passed, limit.on_move = on_passed, self._moved
        self._limits[limit] = None
        self._moved(limit.deadline)

    def forget(self, limit: Deadline) -> None:
        """Harmless for one that is not kept."""
        self._limits.pop(limit, None)
        limit.on_move = None

    async def run(self) -> None:
        """Keep the time. What is kept before this begins counts as well."""
        while True:
            with trio.CancelScope(deadline=min((limit.deadline for limit in self._limits), default=math.inf)) as nap:
                self._nap = nap
                await trio.sleep_forever()
            now = trio.current_time()
            for limit in [limit for limit in self._limits if limit.deadline <= now]:
                self.forget(limit)
                if limit.on_passed is not None:
                    limit.on_passed()

    def _moved(self, at: float) -> None:
        # One that is due later is looked at when the nap is over: mostly it is gone by then.
        if at < self._nap.deadline:
            self._nap.deadline = at
