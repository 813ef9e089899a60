"""One in-flight request: runs its handler, and sees to it that there is exactly one outcome."""

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Never, TypeAlias

import attrs

from callboard.actors.lifecycle import Consequence, RequestEvent, RequestState
from callboard.actors.server.exchange import Exchange
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.revisions import Model
from callboard.errors import Draining, RequestTimedOut
from callboard.supervisor import WHY_DEADLINE, WHY_DRAIN, Actor, Unfinished
from callboard.supervisor.groups import sole

HARD_CAP: Final = 600.0
"""Seconds a hosted request may take in all, the time that it is parked not counted."""

Handler: TypeAlias = Callable[[Exchange], Awaitable[Model | Forwarded]]


@attrs.define(eq=False)
class RequestActor(Actor[Never]):
    """Own one request: its handler's task, its deadline and its single answer."""

    mailbox = None

    exchange: Exchange
    handler: Handler
    cap: float = HARD_CAP

    async def run(self) -> None:
        exchange = self.exchange
        exchange.give_time(self.cap, self.expire)
        try:
            try:
                outcome: Model | Forwarded | Exception = await self.handler(exchange)
                event = RequestEvent.RESULT
            except Exception as error:  # the handler's own: answered, of any type
                outcome, event = sole(error), RequestEvent.FAILURE
            exchange.give_time(math.inf, self.expire)  # an answer is not torn by the deadline of the work
            try:
                await exchange.settle(outcome, event)
            except Exception as error:  # a fault of ours: the client is answered, and the supervisor hears of it
                await exchange.slot.fail(error)
                raise
        finally:
            exchange.forget_time()
            if exchange.life.state is RequestState.WAITING and self.why_cut == WHY_DEADLINE:
                # This task can say nothing more: its own scope is what the deadline cancelled.
                exchange.supervisor.spawn(RequestEnd(exchange, self.cap), name=f"{exchange.name}.late")
            else:
                exchange.leave()

    # How it is drained.

    begin_stop = None

    def unfinished(self) -> Iterable[Unfinished]:
        return (self,) if self.exchange.life.state is RequestState.WAITING else ()

    async def wait_over(self) -> None:
        await self.address.wait_ended()

    def cut_short(self) -> bool:
        return self.exchange.life.meet(RequestEvent.DEADLINE) is Consequence.ANSWER

    async def part(self) -> None:
        try:
            await self.exchange.slot.fail(Draining())
        finally:
            self.exchange.kill(WHY_DRAIN)

    def facts(self) -> dict[str, str | int]:
        exchange = self.exchange
        shown: dict[str, str | int] = {"method": exchange.request.method, "revision": exchange.terms.revision.value}
        if exchange.life.state is RequestState.PARKED:
            shown |= {"state": "parked", "round": exchange.rounds.number}
        return shown


@attrs.define(eq=False)
class RequestEnd(Actor[Never]):
    """Answers a request after its deadline."""

    mailbox = None

    exchange: Exchange
    cap: float

    async def run(self) -> None:
        try:
            await self.exchange.settle(RequestTimedOut(after=self.cap), RequestEvent.DEADLINE)
        finally:
            self.exchange.leave()
