"""The record of one actor in the tree: what outlives its incarnations, and what its end sets off."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import Abort, RaiseCancelT, Task, enable_ki_protection

from callboard.errors import ActorGone, AskDropped
from callboard.supervisor.ask import PendingReply, reply_of
from callboard.supervisor.dead_letters import DeadLetters
from callboard.supervisor.ended import RETURNED, STOPPED, Ended, How
from callboard.supervisor.lifetime import WHY_OVERFLOW, WHY_SUPERVISOR, Lifetime
from callboard.supervisor.mailbox import Mailbox
from callboard.supervisor.overflow import Lost
from callboard.supervisor.snapshot import Fact, Snapshot, facts_of
from callboard.supervisor.spec import START_TIME, Restart

if TYPE_CHECKING:
    from callboard.supervisor.actor import Actor
    from callboard.supervisor.supervisor import Supervisor


class State(Enum):
    """State of an actor. Actors may show finer states through `facts()["state"]`."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKING_OFF = "backing_off"
    ENDED = "ended"


class Stop(Enum):
    """Reason why an actor was asked to stop."""

    NO = "no"
    RESTART = "restart"
    GOOD = "good"


NO_FACTS: Final[Mapping[str, Fact]] = {}


class Node(Lifetime):
    """One actor: its name and mailbox for as long as it is in the tree, its scope for each incarnation."""

    __slots__ = (
        "_waiters",
        "actor",
        "asks",
        "dead_letters",
        "declared",
        "ended",
        "last_failure",
        "mailbox",
        "name",
        "over",
        "parent",
        "restart",
        "restarts",
        "shutdown",
        "start_within",
        "started_at",
        "state",
        "stop",
        "streak",
        "tasks",
    )

    def __init__(
        self, name: str, parent: Supervisor | None, dead_letters: DeadLetters, *, restart: Restart, shutdown: float
    ) -> None:
        self.begin()
        self.name = name
        self.parent = parent
        self.dead_letters = dead_letters
        self.declared = False
        self.restart = restart
        self.shutdown = shutdown
        self.start_within = START_TIME
        self.tasks: Supervisor | None = None  # where its task runs, if not with its siblings
        self.actor: Actor[Any] | None = None
        self.mailbox: Mailbox[Any] | None = None
        self.state = State.STARTING
        self.stop = Stop.NO
        self.over: Ended | None = None  # how the latest incarnation ended
        self.ended: Ended | None = None  # how all of it did
        self.started_at = trio.current_time()
        self.restarts = 0
        self.streak = 0
        self.last_failure: str | None = None
        self.asks: set[PendingReply] | None = None
        self._waiters: dict[Task, None] | None = None

    @property
    def path(self) -> str:
        return self.name if self.parent is None else f"{self.parent.path}/{self.name}"

    # An incarnation.

    def embody(self, actor: Actor[Any]) -> None:
        """Give the node its first actor, or the next: the mailbox is made once."""
        self.actor = actor
        if self.restarts:
            self.dead_letters.restarts[type(actor).__name__] += 1
        if self.mailbox is None and actor.mailbox is not None:
            self.mailbox = Mailbox(actor.mailbox, self)
            self._show_end()  # it may have been asked to stop before it began
        actor.bind(self)

    def reset(self) -> None:
        """Make ready for the next incarnation."""
        self.state = State.STARTING
        self.stop = Stop.NO
        self.begin()
        self.over = None
        self.restarts += 1
        self.started_at = trio.current_time()
        if self.mailbox is not None:
            self.mailbox.resume()

    def mark_started(self) -> None:
        if self.state is State.STARTING:
            self.state = State.RUNNING
            self.change()
            if self.declared and self.parent is not None:
                self.parent.notice()

    def verdict(self) -> Ended:
        """How an incarnation ended that raised nothing."""
        if not self.scope.cancelled_caught:
            return RETURNED if self.stop is Stop.NO else STOPPED
        how = How.START_FAILED if self.state is State.STARTING else How.CANCELLED
        return Ended(how, self.why_cut or WHY_SUPERVISOR)

    @enable_ki_protection
    def end_incarnation(self, over: Ended) -> None:
        """The actor is gone, its node is not: questions it had taken fail, those in the mailbox are kept."""
        self.over = over
        if over.abnormal:
            self.last_failure = over.why
        if self.asks:
            self._fail_asks(over.why)
        self.change()

    def _fail_asks(self, why: str) -> None:
        kept: set[PendingReply | None] = set()
        if self.mailbox is not None:
            kept = {reply_of(m) for m in (*self.mailbox.messages(), *self.mailbox.waiting())}
        for reply in tuple(self.asks or ()):
            if reply not in kept:
                reply.fail(ActorGone(self.path, why=why))

    @property
    def never_ran(self) -> bool:
        """Whether its very first start failed."""
        return self.over is not None and self.over.how is How.START_FAILED and not self.restarts

    # The end.

    @enable_ki_protection
    def finish(self, ended: Ended) -> None:
        """The end for good: every waiter hears of it, and what is queued is a dead letter."""
        if self.ended is not None:
            return
        self.ended = ended
        self.state = State.ENDED
        if self.parent is not None:
            self.parent.forget(self)
        if self.mailbox is not None:
            self.mailbox.close()
            if self.mailbox.depth:
                for message in self.mailbox.drain():
                    self.lose(message, Lost.ENDED)
        if self.asks:
            self._fail_asks(ended.why)
        self.change()
        if self.parent is not None:
            self.actor = self.mailbox = None  # both refer to the node: the holder of an address holds no more than that

    def begin_stop(self, why: Stop) -> None:
        """Ask the actor to come to its end; after its drain time it is cancelled."""
        if self.ended is not None or self.stop is Stop.GOOD:
            return
        self.stop = why
        if self.over is not None:  # between two incarnations there is nothing to wait for
            if why is Stop.GOOD:
                self.finish(self.over)
            return
        self.state = State.STOPPING
        self._show_end()
        self.drain(trio.current_time() + (self.actor.drain_time() if self.actor is not None else self.shutdown))
        self.change()
        if self.actor is not None:
            self.actor.on_stop()

    def _show_end(self) -> None:
        """Let the reader of the mailbox know that it was asked to stop, if it was."""
        if self.mailbox is not None and self.stop is Stop.GOOD:
            self.mailbox.close()
        elif self.mailbox is not None and self.stop is Stop.RESTART:
            self.mailbox.pause()

    def kill(self, why: str) -> None:
        """Cancel the actor. Counts as ending badly: its supervisor may restart it."""
        if self.over is None and self.ended is None:
            self.cut(why)

    # Messages.

    def lose(self, message: object, reason: Lost) -> None:
        """Count a message that is not delivered; its asker hears at once."""
        self.dead_letters.add(self.path, message, reason, at=trio.current_time())
        if reason is Lost.OVERFLOWED:
            self.kill(WHY_OVERFLOW)
        if reason in (Lost.LATE_REPLY, Lost.ANSWERED_TWICE):
            return
        reply = reply_of(message)
        if reply is not None:
            if reason is Lost.ENDED:
                reply.fail(ActorGone(self.path, why=self.ended.why if self.ended is not None else reason.value))
            else:
                reply.fail(AskDropped(self.path, why=reason.value))

    # Waiting for a change of state.

    @enable_ki_protection
    def change(self) -> None:
        """The state has changed: wake the waiters."""
        if self._waiters:
            waiters, self._waiters = self._waiters, None
            for task in waiters:
                trio.lowlevel.reschedule(task)

    @enable_ki_protection
    async def wait_change(self) -> None:
        """Wait for the next change. Not a `ParkingLot`: that one costs as much as the wait."""
        task = trio.lowlevel.current_task()
        if self._waiters is None:
            self._waiters = {}
        waiters = self._waiters
        waiters[task] = None

        def abort(_: RaiseCancelT) -> Abort:
            del waiters[task]
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    # What the tree shows.

    def snapshot(self, now: float, most: int = sys.maxsize, children: tuple[Snapshot, ...] | None = None) -> Snapshot:
        """It and all below it; of each supervisor at most *most* children that were not declared. *children*: those
        that were looked at already."""
        facts = facts_of(self.actor.facts) if self.actor is not None else {}
        shown = facts.pop("state", None)
        state = self.state.value if shown is None or self.state is not State.RUNNING else str(shown)
        return Snapshot(
            name=self.name,
            path=self.path,
            kind=type(self.actor).__name__ if self.actor is not None else "",
            state=state,
            age=now - self.started_at,
            mailbox_depth=self.mailbox.depth if self.mailbox is not None else 0,
            mailbox_size=self.mailbox.spec.size if self.mailbox is not None else 0,
            handled=self.mailbox.taken if self.mailbox is not None else 0,
            restarts=self.restarts,
            last_failure=self.last_failure,
            facts=facts,
            children=children
            if children is not None
            else self.actor.snapshots(now, most)
            if self.actor is not None
            else (),
            hidden=0 if self.actor is None else self.actor.hidden(most),
        )
