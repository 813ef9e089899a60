"""One in-flight request: runs its handler, and sees to it that there is exactly one outcome."""

from collections.abc import Awaitable, Callable
from typing import Final, Never, TypeAlias

import attrs

from callboard.actors.exchange import Exchange
from callboard.actors.life import Event, State
from callboard.codecs.revisions import Model
from callboard.errors import RequestTimedOut
from callboard.supervisor import Actor

HARD_CAP: Final = 600.0
"""Seconds a hosted request may take in all, the time that it is parked not counted."""

Handler: TypeAlias = Callable[[Exchange], Awaitable[Model]]


@attrs.define(eq=False)
class RequestActor(Actor[Never]):
    """Own one request: its handler's task, its deadline and its single answer."""

    mailbox = None

    exchange: Exchange
    handler: Handler
    cap: float = HARD_CAP

    async def run(self) -> None:
        try:
            outcome, event = await self._outcome()
            await self.exchange.settle(outcome, event)
        finally:
            self.exchange.leave()

    async def _outcome(self) -> tuple[Model | Exception, Event]:
        try:
            with self.exchange.under_cap(self.cap):
                return await self.handler(self.exchange), Event.RESULT
        # The handler's own: answered, whatever it is. Outside the scope, which lets through what broke at the deadline.
        except Exception as error:
            return sole(error), Event.FAILURE
        return RequestTimedOut(after=self.cap), Event.DEADLINE

    def facts(self) -> dict[str, str | int]:
        exchange = self.exchange
        shown: dict[str, str | int] = {"method": exchange.request.method, "revision": exchange.terms.revision.value}
        if exchange.life.state is State.PARKED:
            shown |= {"state": "parked", "round": exchange.rounds.number}
        return shown


def sole(error: Exception) -> Exception:
    """The one exception in a group of one: a handler with a nursery raises groups, and means what is inside."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
