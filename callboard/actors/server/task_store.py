"""The hosted tasks of one run of a server: which there are, which client has each, and how much they may take up."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import trio

from callboard.actors.frames import Outcome
from callboard.actors.rules import CallerView
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import has_declared
from callboard.actors.server.task import HearTask, HostedTask
from callboard.actors.server.task_exchange import TaskExchange
from callboard.actors.shares import Shares
from callboard.actors.undo import undo_unless_done
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.caller import ANYBODY
from callboard.codecs.state import salient_size
from callboard.errors import Draining, InvalidParams, Overloaded, SupervisorClosed

MAX_HOSTED_TASKS: Final = 1024
"""Most tasks of all clients that a server keeps at once. Each is an actor."""

MAX_HOSTED_TASKS_EACH: Final = 64
"""Most tasks of one principal: what one client may have in flight."""

MAX_TASK_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of the arguments and outcomes of all tasks that are kept."""

MAX_TASK_BYTES_EACH: Final = MAX_TASK_BYTES // 4
"""Most of them for one principal: eight outcomes of the largest size."""

TASK_WEIGHT: Final = 16 * 1024
"""Bytes that a task takes up beside its arguments and its outcome: its actor, and the task that runs its call."""

MAX_TASK_TTL: Final = 86_400.0
"""Longest time that a task is kept, in seconds, also if its client wishes more."""

Guarded: TypeAlias = tuple[str, str]
"""A server and its tool, as rules name them."""

UNKNOWN_TASK: Final = "Unknown task"
"""One text, whether a task never was, is no more, or is another client's."""


@attrs.define(eq=False)
class TaskStore:
    """The tasks of one run of a server. One with a fetched outcome makes room for another."""

    ttl: float
    poll_interval: float
    _held: dict[str, HostedTask] = attrs.field(factory=dict, init=False)
    _shares: Shares = attrs.field(
        factory=lambda: Shares("tasks", MAX_HOSTED_TASKS, MAX_HOSTED_TASKS_EACH, TASK_WEIGHT), init=False
    )
    _bytes: Shares = attrs.field(
        factory=lambda: Shares("bytes of tasks", MAX_TASK_BYTES, MAX_TASK_BYTES_EACH), init=False
    )

    def __len__(self) -> int:
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How many have an outcome that is still to come, or to be fetched."""
        return sum(not task.is_fetched for task in self._held.values())

    # Which callers may know of one.

    def find(self, task_id: str, exchange: Exchange) -> HostedTask:
        """Raises `InvalidParams` for one that this principal does not have, or may not know of any more."""
        held = self._held.get(task_id)
        if held is None or not _is_own(held, exchange):
            raise InvalidParams(UNKNOWN_TASK)
        return held

    def knows(self, task_id: str) -> bool:
        """Whether there is one of that id, whosever it is."""
        return task_id in self._held

    def follow(self, task_ids: Iterable[str], exchange: Exchange, hear: HearTask) -> Sequence[str]:
        """Have *hear* told of changes. Returns the tasks that the client of *exchange* has."""
        found = [one for one in map(self._held.get, task_ids) if one is not None and _is_own(one, exchange)]
        for task in found:
            task.followers[hear] = None
        return tuple(task.id for task in found)

    def unfollow(self, task_ids: Iterable[str], hear: HearTask) -> None:
        """Tell *hear* no more of these."""
        for task_id in task_ids:
            if task_id in self._held:
                self._held[task_id].followers.pop(hear, None)

    def told(self, task_id: str) -> dict[str, Any] | None:
        """A task as a notification has it; None if there is none any more."""
        held = self._held.get(task_id)
        if held is None:
            return None
        told = held.told_whole()
        del told["resultType"]
        return told

    def forget_all_of(self, principals: Iterable[str]) -> int:
        """End the tasks of *principals*. Returns how many there were."""
        found = [task for task in self._held.values() if task.exchange.terms.principal in principals]
        for task in found:
            task.cancel()
            self._end(task)
        return len(found)

    # How much they take up.

    def register(self, task: HostedTask) -> None:
        """Have a task known by its id from now on. Raises `Overloaded`."""
        account, size = task.exchange.slot.account, 1 + salient_size(task.exchange.request.params)
        self._take(self._bytes, account, size)
        with undo_unless_done(lambda: self._bytes.give_back(account, size)):
            self._take(self._shares, account, 1)
        task.size = size
        self._held[task.id] = task
        task.register(trio.current_time())

    def grow(self, task: HostedTask, size: int) -> None:
        """Count its outcome too. Raises `Overloaded`."""
        self._take(self._bytes, task.exchange.slot.account, size)
        task.size += size

    def _take(self, shares: Shares, account: str, count: int) -> None:
        """Take a share. Tasks with fetched outcomes make room, the oldest first."""
        while True:
            try:
                shares.take(account, count)
            except Overloaded as full:
                spent = (
                    task
                    for task in self._held.values()
                    if task.is_fetched and (full.for_all or task.exchange.slot.account == account)
                )
                oldest = next(spent, None)
                if oldest is None:
                    raise
                self._end(oldest)
            else:
                return

    def forget(self, task: HostedTask) -> None:
        if self._held.pop(task.id, None) is not None:
            account = task.exchange.slot.account
            self._shares.give_back(account)
            self._bytes.give_back(account, task.size)

    def _end(self, task: HostedTask) -> None:
        self.forget(task)
        task.address.kill("its outcome is not kept any longer")

    # How they begin.

    def _new(self, front: Exchange, handler: Handler, ttl: float | None, guarded: Guarded) -> HostedTask:
        engine = front.engine
        self._shares.ledger = self._bytes.ledger = engine.memory
        kept = self.ttl if ttl is None else min(max(ttl, 1.0), MAX_TASK_TTL)
        task_id = engine.task_names.new(front.terms.principal)
        task = HostedTask(task_id, self, handler, kept, self.poll_interval, guarded)
        task.exchange = TaskExchange(front, task)
        return task

    def begin(self, front: Exchange, handler: Handler, guarded: Guarded, ttl: float | None = None) -> HostedTask:
        """Begin a call as a task. Raises `Overloaded` and `Draining`."""
        task = self._new(front, handler, ttl, guarded)
        self.register(task)
        try:
            self._spawn(task)
        except SupervisorClosed:
            self.forget(task)
            raise Draining from None
        return task

    def _spawn(self, task: HostedTask) -> None:
        task.exchange.supervisor.spawn(task, name=f"t-{next(task.exchange.engine.numbers)}")

    async def run(self, front: Exchange, handler: Handler, guarded: Guarded, after: float) -> Outcome | HostedTask:
        """Run a call. One that is not over *after* so many seconds, or whose handler says so, goes on as a task, which
        is returned; the time in which its client is asked does not count. Raises what the handler does."""
        task = self._new(front, handler, None, guarded)
        try:
            self._spawn(task)
        except SupervisorClosed:
            raise Draining from None
        try:
            return await self._watch(task, front, after)
        finally:
            if not task.is_registered and not task.is_ended:
                task.address.kill("its request is over")

    async def _watch(self, task: HostedTask, front: Exchange, after: float) -> Outcome | HostedTask:
        inner, may_defer = task.exchange, True
        while not task.is_over():
            late = inner.since + after if may_defer and not inner.asking else math.inf
            if may_defer and task.wants_handle and not inner.asking:
                late = -math.inf
            with trio.move_on_at(late) as waiting:
                await task.wait_change()
            if not waiting.cancelled_caught or task.is_over() or inner.asking:
                continue
            may_defer = has_declared(front.terms.capabilities, EXTENSION)
            if may_defer:
                try:
                    self.register(task)
                except Overloaded:
                    may_defer = False  # its request has a place already, and waits
                else:
                    return task
        if isinstance(task.outcome, Exception):
            raise task.outcome
        if task.outcome is None:
            raise Draining
        return task.outcome


def _is_own(task: HostedTask, exchange: Exchange) -> bool:
    """Whether the client of *exchange* may know of it."""
    own, terms, rules = task.exchange, exchange.terms, exchange.engine.rules
    if own.terms.principal != terms.principal or not _is_near(own, exchange.session):
        return False
    if own.terms.revision is not terms.revision:  # the two protocols have nothing in common
        return False
    view = None if rules is None else CallerView(rules, terms.caller)
    return view is None or not view.refuses("tool", *task.guarded)


def _is_near(own: Exchange, session: SessionKey | None) -> bool:
    """Whether an anonymous legacy client is the one that began it."""
    return own.terms.principal != ANYBODY or own.session is None or own.session is session


def ids_in(given: object) -> Sequence[str]:
    """The tasks that a subscription names, each once. Raises `InvalidParams`."""
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidParams("params.notifications.taskIds: expected a list of strings")
    return tuple(dict.fromkeys(given))
