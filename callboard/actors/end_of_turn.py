"""The end of a turn of the event loop: what the tasks of one turn have to say to a peer is then written together.

A busy broker forwards many requests in one turn. Written one by one, each wakes the server, which finds nothing more to
read and sleeps again: that costs 12 us of the 116 us that a forwarded call took. All but the first wait, for one that
is alone need not; and only a few, for if all waited the two programs would take turns, and use one core.
"""

from collections.abc import Callable
from typing import Final

from trio.lowlevel import Abort, RaiseCancelT, Task, current_task, reschedule, wait_task_rescheduled

SMALL: Final = 16_384
"""Bytes of a request that waits for the end of the turn. A larger one fills a pipe, and saves nothing."""

FEW: Final = 8
"""Requests that wait at most: then they are written, turn or no turn."""

ALONE: Final = 3
"""Requests that are thought to be alone in their turn after one that was: to find out takes 6 us."""


class EndOfTurn:
    """Calls *act* after a turn in which anything asked whether it can wait so long. It returns whether anything did."""

    __slots__ = ("_act", "_alone", "_is_near", "_sleeper")

    def __init__(self, act: Callable[[], bool]) -> None:
        self._act = act
        self._sleeper: Task | None = None
        self._is_near = False
        self._alone = 0

    def is_near(self) -> bool:
        """Whether *act* is about to be called. False for the first that asks in a turn."""
        if self._alone:
            self._alone -= 1
        elif self._sleeper is not None:
            task, self._sleeper, self._is_near = self._sleeper, None, True
            reschedule(task)
        else:
            return self._is_near
        return False

    async def run(self) -> None:
        try:
            while True:
                self._sleeper = current_task()
                await wait_task_rescheduled(self._abort)
                self._is_near = False
                self._alone = 0 if self._act() else ALONE
        finally:
            self._is_near = False

    def _abort(self, _: RaiseCancelT) -> Abort:
        self._sleeper = None
        return Abort.SUCCEEDED
