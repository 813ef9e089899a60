"""Parked exchanges: handlers that wait for input while no request of the client is open."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio
from msgspec import UNSET

from callboard.actors.due_queue import DueQueue
from callboard.actors.lifecycle import Consequence, RequestEvent
from callboard.actors.lifecycle import RequestState as Stage
from callboard.actors.server.bounds import MAX_PARKED, MAX_PARKED_EACH
from callboard.actors.server.client_requests import ClientRequest, check_declared, check_may_ask
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.input_rounds import InputRounds, given_in
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.server.spans import KEPT_SIZE
from callboard.actors.shares import Shares
from callboard.actors.undo import undo_unless_done
from callboard.codecs.envelope import Request
from callboard.codecs.home import HOME_SIZE
from callboard.codecs.revisions import InputRequiredResult
from callboard.codecs.routing import Route
from callboard.codecs.seal import KeyRing
from callboard.codecs.state import (
    STATE_TTL,
    Binding,
    SealedState,
    open_unmatched,
    salient_digest,
    salient_size,
    seal,
)
from callboard.errors import Draining, InvalidState, Overloaded
from callboard.supervisor import Actor, Fact

MAX_PARKED_BYTES: Final = 24 * 1024 * 1024
"""Most bytes of the arguments of parked exchanges, in all. A handler holds them as objects too, so the process holds
about twice as much, for as long as a client may take."""

MAX_PARKED_BYTES_EACH: Final = MAX_PARKED_BYTES // 2
"""Most of them for one principal: two calls of the largest size, and room for small ones."""

MAX_SPENT: Final = 100_000
"""Most states that are remembered as used, until they expire. About 20 MiB."""

MAX_SPENT_EACH: Final = 10_000
"""Most states of one account that are remembered as used: 16 rounds a second, for as long as a state lives."""

DIGESTED_HERE: Final = 32 * 1024
"""Bytes of arguments up to which their digest is worked out at once. A thread does it for more: 4 MiB of numbers take
seconds."""

PARKED_WEIGHT: Final = 16 * 1024
"""Bytes that a parked exchange takes up beside its request: measured, with the task that read it."""

# What a sealed state begins with: the name of a parked exchange follows, or what a handler gave to be kept.
PARKED: Final = b"p"
HANDED_OVER: Final = b"h"
HANDED_OVER_TRACED: Final = b"t"  # behind what the span of the next round needs to link to this one

_HANDED_OVER: Final = (HANDED_OVER, HANDED_OVER_TRACED)


@attrs.define(eq=False)
class Parking(Actor[None]):
    """Finds the exchange that a retry belongs to, and ends those that are not retried in time.

    All wait equally long. The clock of states is Trio's, which never goes back, where the keys live no longer than the
    process; workers share theirs, and go by the time of day.
    """

    audience: str
    ring: KeyRing = attrs.field(factory=KeyRing.generate)
    ttl: float = STATE_TTL
    most: int = MAX_PARKED
    most_each: int = MAX_PARKED_EACH
    clock: Callable[[], float] = trio.current_time
    home: bytes = b""
    """The worker that this is, in the states of what is parked here."""
    is_closed: bool = attrs.field(default=False, init=False)
    _parked: dict[str, Exchange] = attrs.field(factory=dict, init=False)
    _shares: Shares = attrs.field(init=False)
    _bytes: Shares = attrs.field(init=False)
    _accounts: dict[Exchange, tuple[str, int]] = attrs.field(factory=dict, init=False)
    _due: DueQueue[str] = attrs.field(factory=DueQueue, init=False)
    _names: dict[Exchange, str] = attrs.field(factory=dict, init=False)
    _spent: OrderedDict[bytes, tuple[float, str]] = attrs.field(factory=OrderedDict, init=False)
    _spenders: Shares = attrs.field(init=False)

    mailbox = None

    def __attrs_post_init__(self) -> None:
        self._shares = Shares("requests that wait for input", self.most, self.most_each)
        self._bytes = Shares("bytes of requests that wait for input", MAX_PARKED_BYTES, MAX_PARKED_BYTES_EACH)
        self._spenders = Shares("answered rounds", MAX_SPENT, MAX_SPENT_EACH)

    def exchanges(self) -> list[Exchange]:
        """All that are parked."""
        return list(self._parked.values())

    def count_in(self, ledger: Shares) -> None:
        """Count what is parked from now on also as memory that its client takes up."""
        self._shares.ledger = self._bytes.ledger = ledger
        self._shares.weight = PARKED_WEIGHT

    async def run(self) -> None:
        while True:
            await self._due.wait_filled()
            await trio.sleep_until(self._due.first)
            for name, _ in self._due.pop_due(trio.current_time()):
                self._expire(self._parked[name])

    async def park(self, exchange: Exchange) -> None:
        """Answer the front request with what is asked for, and let go of it.

        Raises `Overloaded` if too many are parked already, and `Draining` if no retry could come back for it.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.is_closed:
            raise Draining
        name = self._names.get(exchange) or self._admit(exchange)
        rounds = exchange.rounds
        rounds.number += 1
        state = await self._seal(exchange, PARKED + name.encode())
        if exchange.life.meet(RequestEvent.ASKED) is Consequence.ANSWER_INPUT_REQUIRED:
            exchange.pause()
            deadline = trio.current_time() + self.ttl
            self._due.put(name, deadline)
            # The asking task may give up now, but the client waits: it is told, as long as it could still answer.
            with trio.CancelScope(shield=True, deadline=deadline):
                await exchange.answer(InputRequiredResult(input_requests=rounds.requests(), request_state=state))

    async def hand_over(
        self, exchange: Exchange, questions: Sequence[ClientRequest], payload: bytes
    ) -> InputRequiredResult:
        """Ask, and forget: the client keeps *payload*, sealed, and the retry is a fresh run that gets it back.

        Raises `MissingCapability`, as `Exchange.ask` does.
        """
        check_may_ask(exchange.request.method)
        for question in questions:
            check_declared(question, exchange.terms)
        asked = InputRounds()
        asked.add(questions)
        state = await self.wrap(exchange, payload)
        return InputRequiredResult(input_requests=asked.requests() or UNSET, request_state=state)

    async def wrap(self, exchange: Exchange, payload: bytes) -> str:
        """A state for the client to keep: the retry is a fresh run that gets *payload* back."""
        exchange.rounds.number += 1
        trace = exchange.slot.trace
        begin = HANDED_OVER if trace is None else HANDED_OVER_TRACED + trace.to_keep()
        return await self._seal(exchange, begin + payload)

    async def open(self, request: Request, text: str, slot: ReplySlot) -> SealedState:
        """Open what a retry brought along, once. Raises `InvalidState`, one text for every cause, or `Overloaded`."""
        state = open_unmatched(self.ring, text, self._binding(request, slot), now=self.clock())
        self._check_unspent(state)
        if not state.fits(await _digest(request)):
            raise InvalidState
        self._check_unspent(state)  # it may have been brought twice at once
        if state.payload.startswith(_HANDED_OVER):
            self._spenders.take(slot.account)
            self._spent[state.serial] = state.expires, slot.account
        return state

    def home_of(self, request: Request, text: str, principal: str) -> tuple[bytes, bytes] | None:
        """Where a retry belongs: the worker in which its exchange is parked, or b"" and what the state is known by, if
        any worker may run it, but only one of them once. None if the state is invalid."""
        binding = Binding(principal, self.audience, request.method)
        try:
            state = open_unmatched(self.ring, text, binding, now=self.clock())
        except InvalidState:
            return None
        if state.payload.startswith(_HANDED_OVER):
            return b"", state.serial
        return bytes.fromhex(state.payload[len(PARKED) :][: 2 * HOME_SIZE].decode()), state.serial

    def withdraw(self, method: str, text: str, principal: str, reason: str) -> bool:
        """End what is parked under a state, for the client will not retry it. False if there is none such."""
        try:
            state = open_unmatched(self.ring, text, Binding(principal, self.audience, method), now=self.clock())
        except InvalidState:
            return False
        exchange = self._parked.get(state.payload.removeprefix(PARKED).decode(errors="replace"))
        if exchange is None or exchange.rounds.number != state.round or exchange.life.state is not Stage.PARKED:
            return False
        if exchange.cancel(RequestEvent.SESSION_ENDED, reason):
            self.leave(exchange)
        return True

    def _check_unspent(self, state: SealedState) -> None:
        now = self.clock()
        while self._spent and next(iter(self._spent.values()))[0] <= now:
            _, (_, account) = self._spent.popitem(last=False)
            self._spenders.give_back(account)
        if state.serial in self._spent:
            raise InvalidState

    async def retry(self, request: Request, route: Route, state: SealedState, slot: ReplySlot) -> Exchange:
        """Go on where *state* leads, and return what goes on.

        Raises `InvalidState`; `InvalidParams` for answers of the wrong shape and `MissingCapability` for questions that
        the client no longer declares to answer, and then it may try again.
        """
        exchange = self._parked.get(state.payload.removeprefix(PARKED).decode())
        if exchange is None or exchange.rounds.number != state.round:
            raise InvalidState
        if exchange.outcome is not None:  # it ended while it was parked
            self.leave(exchange)
            if slot.trace is not None and exchange.slot.trace is not None:
                slot.trace.follow(exchange.slot.trace)
            exchange.slot = slot
            await exchange.answer(exchange.outcome)
            return exchange
        if exchange.life.state is not Stage.PARKED:
            raise InvalidState
        answers = exchange.rounds.read(slot.terms.revision, given_in(request))
        for question in exchange.rounds.missing(answers):
            check_declared(question, slot.terms)
        self._due.discard(state.payload.removeprefix(PARKED).decode())
        exchange.life.meet(RequestEvent.RETRIED)
        exchange.attach(slot, request, route)
        if not exchange.rounds.take(answers):
            await self.park(exchange)
        return exchange

    def close(self) -> None:
        """Park nothing more, and cancel what is parked: no retry could come back for it."""
        self.is_closed = True
        for exchange in list(self._parked.values()):
            if exchange.life.state is Stage.PARKED:
                exchange.cancel(RequestEvent.SESSION_ENDED)

    def leave(self, exchange: Exchange) -> None:
        """The exchange is over, or was never parked."""
        name = self._names.pop(exchange, None)
        if name is not None:
            del self._parked[name]
            self._due.discard(name)
            account, size = self._accounts.pop(exchange)
            self._shares.give_back(account)
            self._bytes.give_back(account, size)

    def __len__(self) -> int:
        return len(self._parked)

    def facts(self) -> dict[str, Fact]:
        return {"parked": len(self)}

    def _admit(self, exchange: Exchange) -> str:
        account = exchange.slot.account
        # An address may hold more than a principal, since many clients may share it; one connection may not.
        if exchange.slot.is_shared and self._shares.held(account) >= self.most_each:
            raise Overloaded("too many requests wait for input")
        size = 1 + salient_size(exchange.request.params)
        self._bytes.take(account, size)
        with undo_unless_done(lambda: self._bytes.give_back(account, size)):
            self._shares.take(account)
        self._accounts[exchange] = account, size
        name = self._names[exchange] = self.home.hex() + secrets.token_urlsafe(9)
        self._parked[name] = exchange
        return name

    def _expire(self, exchange: Exchange) -> None:
        if exchange.outcome is not None or exchange.cancel(RequestEvent.EXPIRED):
            self.leave(exchange)

    async def _seal(self, exchange: Exchange, payload: bytes) -> str:
        if exchange.digest is None:  # a retry has the same one
            exchange.digest = await _digest(exchange.request)
        binding = self._binding(exchange.request, exchange.slot, exchange.digest)
        now = self.clock()
        return seal(self.ring, binding, payload, round_number=exchange.rounds.number, now=now, ttl=self.ttl)

    def _binding(self, request: Request, slot: ReplySlot, digest: bytes = b"") -> Binding:
        return Binding(slot.terms.principal, self.audience, request.method, digest)


def taken_up(payload: bytes, slot: ReplySlot) -> bytes:
    """What an earlier run gave the client to keep. The span of this one is linked to its span."""
    if payload.startswith(HANDED_OVER):
        return payload[len(HANDED_OVER) :]
    begin = len(HANDED_OVER_TRACED)
    if slot.trace is not None:
        slot.trace.follow_kept(payload[begin : begin + KEPT_SIZE])
    return payload[begin + KEPT_SIZE :]


async def _digest(request: Request) -> bytes:
    """The members that a retry must have in common with its request. Raises `ParseError`."""
    if salient_size(request.params) <= DIGESTED_HERE:
        return salient_digest(request.method, request.params)
    return await trio.to_thread.run_sync(salient_digest, request.method, request.params)
