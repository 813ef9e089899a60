"""Requests that need nothing but their arguments, run by the task that brought them: no task, no scope of their own."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from callboard.actors.frames import error_frame
from callboard.actors.lifecycle import RequestEvent
from callboard.actors.outlet import Adopt, InlinePolicy
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.terms import Terms
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.revisions import Model


class InFlight(Protocol):
    """A request of a session, as long as it can still be cancelled."""

    @property
    def terms(self) -> Terms: ...

    def cancel(self, event: RequestEvent, reason: str = "") -> bool:
        """The request is no longer wanted, for this *reason*. True if that ended it: then nothing more is sent."""

    async def give_up(self) -> None:
        """After that: tell its way that there will be no answer."""


@attrs.frozen(eq=False)
class InlineRequest:
    """An inline call that waits."""

    slot: ReplySlot
    end: Callable[[], None]

    @property
    def terms(self) -> Terms:
        return self.slot.terms

    def cancel(self, _: RequestEvent, reason: str = "") -> bool:
        if not self.slot.is_open:
            return False
        self.slot.reason = reason
        self.slot.close()
        self.end()
        return True

    async def give_up(self) -> None:
        await trio.lowlevel.checkpoint()  # the task that ran it says so


async def run_adopted(
    errand: Coroutine[Any, Any, Model | Forwarded | str],
    slot: ReplySlot,
    adopt: Adopt,
    cap: float,
    note: Callable[[ReplySlot, InFlight], None],
) -> None:
    """Have an inline call of a legacy session run by the connection that read it, and answer.

    It goes on when its client leaves, for *cap* seconds at most. If it waits, *note* is told: then it can be cancelled.
    """

    def waits(end: Callable[[], None]) -> None:
        note(slot, InlineRequest(slot, end))

    failed = partial(error_frame, slot.request_id, slot.terms.revision)
    try:
        outcome = await adopt(errand, InlinePolicy(cap, failed, ends_with_client=False, on_wait=waits))
    except BaseException as error:
        if not isinstance(error, Exception):
            slot.close()  # the connection that ran it ends, and nothing else would give back its share
        raise
    await slot.answer(outcome)
