"""One in-flight request: runs its handler, and sees to it that there is exactly one outcome.

It runs in the task that read it. As long as it does not wait it is nothing but a call. When it waits for the first time
it becomes an actor: it gets a name and a place in the tree, it is counted as in flight, and it can be cancelled. The
task stays with it, and another task reads on (`Carrier`); so it may outlive its connection, and it may park.
"""

import math
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar

import trio

from callboard.actors.frames import Outcome
from callboard.actors.lifecycle import Consequence, RequestEvent, RequestState
from callboard.actors.outlet import Carrier
from callboard.actors.server.exchange import Exchange, Handler, Running
from callboard.actors.server.progress import Progress
from callboard.errors import Draining, RequestFailed, RequestTimedOut, SupervisorClosed
from callboard.supervisor import (
    WHY_DEADLINE,
    WHY_DRAIN,
    WHY_KILLED,
    WHY_SUPERVISOR,
    Fact,
    Lifetime,
    Snapshot,
    Unfinished,
)
from callboard.supervisor.groups import sole

S = TypeVar("S")
T = TypeVar("T")

HARD_CAP: Final = 600.0
"""Seconds a hosted request may take in all, the time that it is parked not counted."""

_WAITING: Final = RequestState.WAITING

LAST_WORD: Final = 1.0
"""Seconds in which a request that was cut short is answered so. Mostly that needs no waiting at all."""


def run_request(exchange: Exchange, handler: Handler) -> Awaitable[None]:
    """Run the handler of a request in this task, and answer."""
    context = exchange.engine.context.copy()
    if exchange.slot.trace is not None:
        exchange.slot.trace.enter(context)
    return run_noticing(_run(exchange, handler), context, _begin_waiting, exchange)


def start_request(exchange: Exchange, handler: Handler) -> None:
    """Run it in a task of its own: where the task that read it has others to begin, or must end with the answer."""
    actor = RequestActor(exchange, None)
    run = _run if exchange.slot.trace is None else _run_traced
    lifetime = exchange.supervisor.carry(partial(run, exchange, handler), name=actor.name)
    actor.begin()
    actor.own(lifetime)
    exchange.slot.admit()
    exchange.slot.follow(exchange)


def _begin_waiting(exchange: Exchange) -> None:
    """Never raises: the request runs."""
    carrier, has_place = exchange.carrier, True
    actor = RequestActor(exchange, carrier)
    exchange.slot.admit()
    exchange.slot.follow(exchange)
    try:
        actor.begin()
    except SupervisorClosed:
        has_place = False
    if carrier is not None:
        carrier.carry(actor)
    if not has_place:  # its session or its server ends, and would not find it later
        exchange.cancel(RequestEvent.SESSION_ENDED)


async def _run_traced(exchange: Exchange, handler: Handler) -> None:
    if exchange.slot.trace is not None:
        exchange.slot.trace.enter()
    await _run(exchange, handler)


async def _run(exchange: Exchange, handler: Handler) -> None:
    try:
        try:
            outcome: Outcome | Exception = await handler(exchange)
        except Exception as error:  # the handler's own: answered, of any type
            outcome = sole(error)
        try:
            if (rest := exchange.begin_settling(outcome)) is not None:
                if exchange.actor is not None:
                    exchange.actor.expire(math.inf)  # an answer is not torn by the deadline of the work
                await rest
        except Exception as error:  # a fault of ours: the client is answered, and the supervisor hears of it
            await exchange.slot.fail(error)
            raise
    finally:
        if (actor := exchange.actor) is not None:  # it has waited
            try:
                if exchange.state is _WAITING:
                    await _answer_cut_short(exchange, actor)
            finally:
                exchange.leave()
                actor.leave()


async def _answer_cut_short(exchange: Exchange, actor: Running) -> None:
    """It was cancelled, and not by its client, which waits for an answer."""
    error: Exception = RequestFailed("the request was ended by the server")
    if actor.why_cut == WHY_DEADLINE:
        error = RequestTimedOut(after=exchange.engine.cap)
    elif actor.why_cut in (WHY_DRAIN, WHY_SUPERVISOR):
        error = Draining()
    with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_WORD):
        await exchange.settle(error, RequestEvent.DEADLINE)


class RequestActor:
    """One request that waits: its place in the tree, its deadline, and the lifetime of its task."""

    __slots__ = ("_carrier", "_lifetime", "_number", "_over", "exchange", "left", "started_at", "until")

    begin_stop = None

    def __init__(self, exchange: Exchange, carrier: Carrier | None) -> None:
        self.exchange = exchange
        self._number = next(exchange.engine.numbers)
        self.started_at = trio.current_time()
        self._carrier = carrier
        self._lifetime: Lifetime | None = None
        self._over: trio.Event | None = None
        self.left = exchange.engine.cap
        runs = exchange.state is _WAITING  # else it is parked, or its answer waits to be read
        self.until = self.started_at + self.left if runs else math.inf

    def begin(self) -> None:
        """Take the place in the tree. Raises `SupervisorClosed`."""
        exchange = self.exchange
        exchange.actor, exchange.kill = self, self.cancel
        exchange.supervisor.take_in(self)

    def leave(self) -> None:
        """Its task ends."""
        exchange = self.exchange
        exchange.supervisor.let_go(self)
        exchange.actor, exchange.kill = None, _is_over
        if self._carrier is not None:
            self._carrier.drop(self)
        if self._over is not None:
            self._over.set()

    # How long it lives.

    def own(self, lifetime: Lifetime) -> None:
        """From now on *lifetime* is the request's alone."""
        self._lifetime = lifetime
        lifetime.expire(self.until)

    def _own(self) -> Lifetime:
        if self._lifetime is None and self._carrier is not None:
            self.own(self._carrier.free())
        if self._lifetime is None:
            raise RuntimeError(f"{self.path} has no task")
        return self._lifetime

    def expire(self, at: float) -> None:
        """Be cancelled at *at*, on Trio's clock."""
        self.until = at
        if self._lifetime is not None:
            self._lifetime.expire(at)

    def pause(self) -> None:
        """The clock stands still while it is parked, and another task reads on: the client has its answer for now."""
        self.left = self.until - trio.current_time()
        self._own()
        self.expire(math.inf)

    def go_on(self) -> None:
        """The clock goes on."""
        self.expire(trio.current_time() + self.left)

    def cancel(self, why: str = WHY_KILLED) -> None:
        """End it now. The first *why* stays."""
        self._own().cut(why)

    def drain(self, until: float) -> None:
        self._own().drain(until)

    @property
    def why_cut(self) -> str:
        """Why it is being cancelled."""
        why = None if self._lifetime is None else self._lifetime.why_cut
        return WHY_SUPERVISOR if why is None else why

    # How it is drained.

    def unfinished(self) -> Iterable[Unfinished]:
        return (self,) if self.exchange.life.state is RequestState.WAITING else ()

    async def wait_over(self) -> None:
        if self.exchange.actor is self:
            self._over = self._over or trio.Event()
            await self._over.wait()

    def cut_short(self) -> bool:
        return self.exchange.life.meet(RequestEvent.DEADLINE) is Consequence.ANSWER

    async def part(self) -> None:
        try:
            await self.exchange.slot.fail(Draining())
        finally:
            self.exchange.kill(WHY_DRAIN)

    # What the tree shows.

    @property
    def name(self) -> str:
        return f"r-{self._number}"  # not before it is asked for: few of them ever are

    @property
    def path(self) -> str:
        return f"{self.exchange.supervisor.path}/{self.name}"

    def snapshot(self, now: float) -> Snapshot:
        exchange = self.exchange
        request, life = exchange.request, exchange.life
        facts: dict[str, Fact] = {"method": request.method, "revision": exchange.terms.revision.value}
        if exchange.target:
            facts["target"] = exchange.target
        if self.until < math.inf:
            facts["deadline"] = round(self.until - now, 3)
        state = "parked" if life.state is RequestState.PARKED else "running" if not life.is_over else "answering"
        if state == "parked":
            facts["round"] = exchange.rounds.number
        if exchange.waits_for_operator is not None:
            state, facts["approval"] = "waits for approval", exchange.waits_for_operator
        token = exchange.progress
        if token is None and exchange.terms.progress_token is not None:  # nothing was reported yet
            token = Progress(exchange.slot, exchange.terms.progress_token, exchange.engine.reports)
        return Snapshot(
            name=self.name,
            path=self.path,
            kind="RequestActor",
            state=state,
            age=now - self.started_at,
            facts=facts,
            children=() if token is None else (token.snapshot(self.path, now),),
        )


def _is_over(_: str) -> None:
    """Used once a request has no task any more."""


@types.coroutine
def run_noticing(
    work: Coroutine[Any, Any, T], context: Context, on_wait: Callable[[S], None], subject: S
) -> Generator[Any, Any, T]:
    """Run *work* here, in a *context* of its own, to its end. If it has to wait, *on_wait* is called once with
    *subject*, before it does.

    Most calls never wait, and cost no more than this: no task, no scope, no timer.
    """
    try:
        trap = context.run(work.send, None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what a coroutine returns
    task = trio.lowlevel.current_task()
    outer, task.context = task.context, context  # what it has set stays set when it goes on
    on_wait(subject)
    try:
        while True:
            try:
                told = yield trap
            except BaseException as error:  # it is for the coroutine, not for this function
                step: Callable[[Any], Any] = work.throw
                told = error
            else:
                step = work.send
            try:
                trap = step(told)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                told = None  # it may hold the exception whose traceback holds this frame
    finally:
        task.context = outer
