"""The declared children of one supervisor: their order, their restarts, and when it is too much.

Everything here happens in the supervisor's own task. It sleeps until a declared child changes, or a back-off ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import ParkingLot

from callboard.errors import ActorError, StartFailed, TooManyRestarts
from callboard.supervisor._node import Node, State, Stop
from callboard.supervisor.ended import Ended, How
from callboard.supervisor.logs import report
from callboard.supervisor.spec import ChildSpec, Restart, plan
from callboard.supervisor.window import RestartWindow

if TYPE_CHECKING:
    from callboard.supervisor.supervisor import Supervisor


class Declared:
    """The declared children, in order; those that have died; those that are due to return."""

    __slots__ = ("_due", "_exits", "_lot", "_significant_ended", "_supervisor", "_window", "specs")

    def __init__(self) -> None:
        self.specs: dict[str, ChildSpec[Any]] = {}
        self._due: dict[str, float] = {}
        self._exits: list[tuple[Node, Ended]] = []  # at most one for each declared child
        self._significant_ended = False
        self._lot = ParkingLot()

    def begin(self, supervisor: Supervisor) -> None:
        """*supervisor* starts, or starts anew. Until `clear` the two hold each other, and not longer."""
        self._supervisor = supervisor
        self._window = RestartWindow(supervisor.spec.intensity)

    async def wait_notice(self) -> None:
        """Wait until something may have changed."""
        await self._lot.park()

    def notice(self) -> None:
        self._lot.unpark_all()

    def ended(self, node: Node, over: Ended) -> None:
        """An incarnation has ended that was not asked to stop."""
        self._exits.append((node, over))

    def forget(self, node: Node) -> None:
        """One has ended for good. A transient that returned stays declared: a group restart revives it."""
        self._due.pop(node.name, None)
        spec = self.specs.get(node.name)
        if node.stop is Stop.GOOD or node.restart is Restart.TEMPORARY:
            self.specs.pop(node.name, None)
        self._significant_ended |= spec is not None and spec.significant and not node.never_ran

    async def start(self, specs: list[ChildSpec[Any]]) -> ActorError | None:
        """Start all, in order; the error if one does not."""
        self.specs.update((spec.name, spec) for spec in specs)
        for spec in specs:
            if self._done():
                break
            node = await self._start(spec)
            if node.over is not None and node.over.how is How.START_FAILED:
                failure = StartFailed(node.path, why=node.over.why)
                failure.__cause__ = node.over.error
                return failure
        return None

    async def supervise(self) -> ActorError | None:
        """Answer for their deaths until it is time to stop; the error if the intensity was passed."""
        while not self._done():
            due = min(self._due.values(), default=math.inf)
            if self._exits:
                node, over = self._exits.pop(0)
                # Else it was stopped or restarted with others in the meantime.
                if node.over is over and node.ended is None and node.stop is Stop.NO:
                    failure = await self._answer(node, over)
                    if failure is not None:
                        return failure
            elif due <= trio.current_time():
                await self._start_due()
            elif due < math.inf:
                with trio.CancelScope(deadline=due):
                    await self._lot.park()
            else:
                await self._lot.park()
        return None

    async def stop(self) -> None:
        """Stop all, the last one first."""
        for name in reversed(tuple(self.specs)):
            node = self._supervisor.node(name)
            if node is not None:
                node.begin_stop(Stop.GOOD)
                while node.ended is None:
                    await self._lot.park()

    def clear(self) -> None:
        """No child is left."""
        self.specs.clear()
        self._due.clear()
        self._exits.clear()
        self._significant_ended = False
        del self._supervisor

    def _done(self) -> bool:
        return self._significant_ended or self._supervisor.stopping

    async def _answer(self, node: Node, over: Ended) -> ActorError | None:
        """Do what the table says about a declared child that ended by itself."""
        now = trio.current_time()
        path = self._supervisor.path
        intensity = self._supervisor.spec.intensity
        members = [(spec.name, spec.restart) for spec in self.specs.values()]
        steps = plan(self._supervisor.spec.strategy, members, node.name, over.how)
        if not steps.start:
            node.finish(over)
            return None
        if not self._window.allow(now):
            report("supervisor_escalated", path=path, child=node.name, failure=over.why)
            failure = TooManyRestarts(
                path, restarts=intensity.restarts, per=intensity.per, child=node.name, why=over.why
            )
            failure.__cause__ = over.error
            return failure
        node.streak = 1 if now - node.started_at >= intensity.per else node.streak + 1
        node.state = State.BACKING_OFF
        due = now + self._supervisor.spec.backoff.delay(node.streak)
        for name in steps.stop:
            await self._halt(name)
        for name in steps.start:
            # Else it was stopped for good while the others were halted, or has been declared anew since.
            if name in self.specs and not self._lives(name):
                self._due[name] = max(due, self._due.get(name, due))
        return None

    def _lives(self, name: str) -> bool:
        node = self._supervisor.node(name)
        return node is not None and node.over is None

    async def _halt(self, name: str) -> None:
        """Stop a sibling that is restarted with another; its mailbox waits for the next incarnation."""
        node = self._supervisor.node(name)
        if node is None:
            return
        node.begin_stop(Stop.GOOD if node.restart is Restart.TEMPORARY else Stop.RESTART)
        while node.over is None:
            await self._lot.park()
        if node.ended is None:
            node.state = State.BACKING_OFF

    async def _start_due(self) -> None:
        now = trio.current_time()
        for name in [name for name in self.specs if self._due.get(name, math.inf) <= now]:
            if self._due.pop(name, None) is not None:
                await self._start(self.specs[name], revived=True)
            if self._exits or self._done():
                return  # a failed start changes which others may start

    async def _start(self, spec: ChildSpec[Any], *, revived: bool = False) -> Node:
        """Start one and wait until it runs, or has ended, or is no longer wanted."""
        node = self._supervisor.node(spec.name)
        if node is None:
            node = self._supervisor.place(spec, declared=True)
            node.restarts = int(revived)
        else:
            node.reset()
        self._supervisor.launch(node, spec.actor)
        while node.state is State.STARTING and node.over is None and not self._done():
            await self._lot.park()
        return node
