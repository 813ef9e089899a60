"""Until when requests may take, kept for all of a connection by one timer.

A cancel scope for each would be simpler, and costs more than all else that is done to ask and to be answered: 30 of 270
microseconds in the broker. Most requests are answered long before; so for each only a number is noted, and one task
sleeps until the first of them is due.
"""

import math
from collections.abc import Callable

import trio


class Deadline:
    """When something is due. It may be moved while it is being kept, by a cancel scope or a `DeadlineTimer`."""

    __slots__ = ("_at", "on_move")

    def __init__(self, at: float) -> None:
        self._at = at
        self.on_move: Callable[[float], None] | None = None

    @property
    def deadline(self) -> float:
        return self._at

    @deadline.setter
    def deadline(self, at: float) -> None:
        self._at = at
        if self.on_move is not None:
            self.on_move(at)

    def pass_time(self) -> None:
        """The time is up: called by a `DeadlineTimer`, once, and not if it was forgotten before."""

    def scope(self) -> trio.CancelScope:
        """A cancel scope that keeps it."""
        scope = trio.CancelScope(deadline=self._at)
        self.on_move = lambda at: setattr(scope, "deadline", at)
        return scope


class DeadlineTimer:
    """Tells each deadline that it has passed."""

    __slots__ = ("_kept", "_nap", "_wakes")

    def __init__(self) -> None:
        self._kept: dict[Deadline, None] = {}
        self._nap = trio.CancelScope()
        self._wakes = math.inf  # when the nap ends: a scope takes five times as long to say so

    def keep(self, limit: Deadline) -> None:
        """Have it `pass_time` when it has passed, unless it is forgotten before."""
        self._kept[limit] = None
        limit.on_move = self._moved
        # One that is due later is looked at when the nap is over: mostly it is gone by then.
        if limit.deadline < self._wakes:
            self._moved(limit.deadline)

    def forget(self, limit: Deadline) -> None:
        """Harmless for one that is not kept."""
        self._kept.pop(limit, None)
        limit.on_move = None

    async def run(self) -> None:
        """Keep the time. What is kept before this begins counts as well."""
        while True:
            self._wakes = min((limit.deadline for limit in self._kept), default=math.inf)
            with trio.CancelScope(deadline=self._wakes) as self._nap:
                await trio.sleep_forever()
            now = trio.current_time()
            for limit in [limit for limit in self._kept if limit.deadline <= now]:
                self.forget(limit)
                limit.pass_time()

    def _moved(self, at: float) -> None:
        if at < self._wakes:
            self._wakes = self._nap.deadline = at
