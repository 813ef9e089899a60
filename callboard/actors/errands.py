"""Requests that need nothing but their arguments, run by the task that brought them: no task, no scope of their own."""

from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from callboard.actors.life import Event
from callboard.actors.slot import Slot
from callboard.actors.terms import Terms


class InFlight(Protocol):
    """A request of a session, as long as it can still be cancelled."""

    @property
    def terms(self) -> Terms: ...

    def cancel(self, event: Event, reason: str = "") -> bool:
        """Somebody no longer wants it, for this *reason*. True if that ended it: then nothing more is sent."""

    async def give_up(self) -> None:
        """After that: tell its way that there will be no answer."""


@attrs.frozen(eq=False)
class Adopted:
    """An errand that waits."""

    slot: Slot
    end: Callable[[], None]

    @property
    def terms(self) -> Terms:
        return self.slot.terms

    def cancel(self, _: Event, reason: str = "") -> bool:
        if not self.slot.is_open:
            return False
        self.slot.reason = reason
        self.slot.close()
        self.end()
        return True

    async def give_up(self) -> None:
        await trio.lowlevel.checkpoint()  # whoever ran it says so
