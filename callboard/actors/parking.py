"""Parked exchanges: handlers that wait for input while no request of the client is open."""

import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio
from msgspec import UNSET

from callboard.actors.exchange import Exchange, given_in
from callboard.actors.life import Act, Event
from callboard.actors.life import State as Stage
from callboard.actors.questions import Question, check_declared, check_may_ask
from callboard.actors.rounds import Rounds
from callboard.actors.slot import Slot
from callboard.actors.terms import ANYBODY
from callboard.codecs.envelope import Request
from callboard.codecs.revisions import InputRequiredResult
from callboard.codecs.seal import KeyRing
from callboard.codecs.state import STATE_TTL, Binding, State, open_, salient_digest, seal
from callboard.errors import Draining, InvalidState, Overloaded
from callboard.supervisor import Actor, Fact

MAX_PARKED: Final = 10_000
"""Most parked exchanges in all. Each holds a task and what its handler holds."""

MAX_PARKED_EACH: Final = 64
"""Most parked exchanges of one principal: what one client may have in flight."""

MAX_SPENT: Final = 100_000
"""Most states that are remembered as used, until they expire. About 20 MiB."""

# What a sealed state begins with: the name of a parked exchange follows, or what a handler gave to be kept.
PARKED: Final = b"p"
HANDED_OVER: Final = b"h"


@attrs.define(eq=False)
class Parking(Actor[None]):
    """Finds the exchange that a retry belongs to, and ends those that are not retried in time.

    All wait equally long, so they fall due in the order in which they were parked: one queue, one task.
    """

    audience: str
    ring: KeyRing = attrs.field(factory=KeyRing.generate)
    ttl: float = STATE_TTL
    most: int = MAX_PARKED
    most_each: int = MAX_PARKED_EACH
    wall: Callable[[], float] = time.time
    is_closed: bool = attrs.field(default=False, init=False)
    _parked: dict[str, Exchange] = attrs.field(factory=dict, init=False)
    _principals: Counter[str] = attrs.field(factory=Counter, init=False)
    _due: OrderedDict[str, float] = attrs.field(factory=OrderedDict, init=False)
    _names: dict[Exchange, str] = attrs.field(factory=dict, init=False)
    _spent: OrderedDict[bytes, float] = attrs.field(factory=OrderedDict, init=False)
    _woken: trio.Event = attrs.field(factory=trio.Event, init=False)

    mailbox = None

    async def run(self) -> None:
        while True:
            if not self._due:
                self._woken = trio.Event()
                await self._woken.wait()
            name, deadline = next(iter(self._due.items()))
            await trio.sleep_until(deadline)
            if self._due.get(name) == deadline:  # nobody has come for it meanwhile
                del self._due[name]
                self._expire(self._parked[name])

    async def park(self, exchange: Exchange) -> None:
        """Answer the front request with what is asked for, and let go of it.

        Raises `Overloaded` if too many are parked already, and `Draining` if nobody could come back for it.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.is_closed:
            raise Draining
        name = self._names.get(exchange) or self._admit(exchange)
        rounds = exchange.rounds
        rounds.number += 1
        state = self._seal(exchange, PARKED + name.encode())
        if exchange.life.meet(Event.ASKED) is Act.ANSWER_INPUT_REQUIRED:
            exchange.pause()
            deadline = self._due[name] = trio.current_time() + self.ttl
            self._woken.set()
            # Whoever asked may give up now, but the client waits: it is told, as long as it could still answer.
            with trio.CancelScope(shield=True, deadline=deadline):
                await exchange.answer(InputRequiredResult(input_requests=rounds.requests(), request_state=state))

    def hand_over(self, exchange: Exchange, questions: Sequence[Question], payload: bytes) -> InputRequiredResult:
        """Ask, and forget: the client keeps *payload*, sealed, and the retry is a fresh run that gets it back.

        Raises `MissingCapability`, as `Exchange.ask` does.
        """
        check_may_ask(exchange.request.method)
        for question in questions:
            check_declared(question, exchange.terms)
        asked = Rounds()
        asked.add(questions)
        return InputRequiredResult(input_requests=asked.requests() or UNSET, request_state=self.wrap(exchange, payload))

    def wrap(self, exchange: Exchange, payload: bytes) -> str:
        """A state for the client to keep: the retry is a fresh run that gets *payload* back."""
        exchange.rounds.number += 1
        return self._seal(exchange, HANDED_OVER + payload)

    def open(self, request: Request, text: str, slot: Slot) -> State:
        """Open what a retry brought along, once. Raises `InvalidState`, one text for every cause, or `Overloaded`."""
        now = self.wall()
        state = open_(self.ring, text, self._binding(request, slot), now=now)
        while self._spent and next(iter(self._spent.values())) <= now:
            self._spent.popitem(last=False)
        if state.serial in self._spent:
            raise InvalidState
        if state.payload.startswith(HANDED_OVER):
            if len(self._spent) >= MAX_SPENT:
                raise Overloaded("too many rounds were answered", for_all=True)
            self._spent[state.serial] = state.expires
        return state

    async def retry(self, request: Request, state: State, slot: Slot) -> Exchange:
        """Go on where *state* leads, and return what goes on.

        Raises `InvalidState`; `InvalidParams` for answers of the wrong shape and `MissingCapability` for questions that
        the client no longer declares to answer, and then it may try again.
        """
        exchange = self._parked.get(state.payload.removeprefix(PARKED).decode())
        if exchange is None or exchange.rounds.number != state.round:
            raise InvalidState
        if exchange.outcome is not None:  # it ended while it was parked
            self.leave(exchange)
            exchange.slot = slot
            await exchange.answer(exchange.outcome)
            return exchange
        if exchange.life.state is not Stage.PARKED:
            raise InvalidState
        answers = exchange.rounds.read(slot.terms.revision, given_in(request))
        for question in exchange.rounds.missing(answers):
            check_declared(question, slot.terms)
        del self._due[state.payload.removeprefix(PARKED).decode()]
        exchange.life.meet(Event.RETRIED)
        exchange.attach(slot, request)
        if not exchange.rounds.take(answers):
            await self.park(exchange)
        return exchange

    def leave(self, exchange: Exchange) -> None:
        """The exchange is over, or was never parked."""
        name = self._names.pop(exchange, None)
        if name is not None:
            del self._parked[name]
            self._due.pop(name, None)
            principal = exchange.terms.principal
            self._principals[principal] -= 1
            if not self._principals[principal]:
                del self._principals[principal]

    def __len__(self) -> int:
        return len(self._parked)

    def facts(self) -> dict[str, Fact]:
        return {"parked": len(self)}

    def _admit(self, exchange: Exchange) -> str:
        principal = exchange.terms.principal
        is_full = len(self._parked) >= self.most
        # Strangers who come by HTTP, each on his own, are not one peer.
        is_one = principal != ANYBODY or exchange.slot.is_shared
        if is_full or (is_one and self._principals[principal] >= self.most_each):
            raise Overloaded("too many requests wait for input", for_all=is_full)
        name = self._names[exchange] = secrets.token_urlsafe(9)
        self._parked[name] = exchange
        self._principals[principal] += 1
        return name

    def _expire(self, exchange: Exchange) -> None:
        if exchange.outcome is not None or exchange.cancel(Event.EXPIRED):
            self.leave(exchange)

    def _seal(self, exchange: Exchange, payload: bytes) -> str:
        binding = self._binding(exchange.request, exchange.slot)
        number = exchange.rounds.number
        return seal(self.ring, binding, payload, round_number=number, now=self.wall(), ttl=self.ttl)

    def _binding(self, request: Request, slot: Slot) -> Binding:
        digest = salient_digest(request.method, request.params)
        return Binding(slot.terms.principal, self.audience, request.method, digest)
