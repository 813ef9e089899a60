"""The engine that applies the rules: it starts children in order, and answers for how they end.

Three kinds of children stand under a supervisor. *Declared* ones have a spec, an order and a restart rule.
*Spawned* ones are temporary: one task each, and no word to the supervisor's own task when they start or end.
*Adopted* ones run in somebody else's task.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Never, TypeVar, overload

import structlog
import trio
from trio.lowlevel import ParkingLot

from callboard.errors import ActorError, NameTaken, StartFailed, SupervisorClosed, TooManyRestarts
from callboard.supervisor._node import Node, State, Stop
from callboard.supervisor.actor import Actor
from callboard.supervisor.address import Address
from callboard.supervisor.adopted import Adopted
from callboard.supervisor.dead_letters import DeadLetters
from callboard.supervisor.ended import (
    RETURNED,
    STOPPED,
    WHY_DRAIN,
    WHY_SUPERVISOR,
    Ended,
    How,
    failure_text,
)
from callboard.supervisor.snapshot import Fact, Snapshot
from callboard.supervisor.spec import ChildSpec, Restart, SupervisorSpec, plan
from callboard.supervisor.window import RestartWindow

M = TypeVar("M")
log = structlog.get_logger("callboard.supervisor")

CUT_OFF: Final = Ended(How.CANCELLED, WHY_SUPERVISOR)


SETTLE_TIME: Final = 1.0
"""Seconds a supervisor gets beyond the drain times of its children, for those that clean up when cancelled."""


class Supervisor(Actor[Never]):
    """An actor whose work is its children. The object survives its own restarts, so others may hold it."""

    __slots__ = (
        "_children",
        "_declared",
        "_due",
        "_exits",
        "_nested",
        "_nursery",
        "_significant_ended",
        "_wake",
        "_window",
        "dead_letters",
        "spec",
    )

    mailbox = None
    starts_itself = True

    def __init__(self, spec: SupervisorSpec, dead_letters: DeadLetters) -> None:
        self.spec = spec
        self.dead_letters = dead_letters
        self._nested = {s.name: Supervisor(s, dead_letters) for s in spec.children if isinstance(s, SupervisorSpec)}
        self._children: dict[str, Node | Adopted] = {}
        self._declared: dict[str, ChildSpec[Any]] = {}
        self._due: dict[str, float] = {}
        self._exits: deque[tuple[Node, Ended]] = deque()  # at most one for each declared child
        self._nursery: trio.Nursery | None = None
        self._window = RestartWindow(spec.intensity)
        self._significant_ended = False
        self._wake = ParkingLot()

    # What others ask of it.

    def spawn(self, actor: Actor[M], *, name: str, shutdown: float | None = None) -> Address[M]:
        """Start *actor* as a temporary child, in a task of its own. Its end is news, not a fault.

        Raises:
            NameTaken: a living child has this name.
            SupervisorClosed: not running.
        """
        node = self._place(name, Restart.TEMPORARY, self.spec.drain if shutdown is None else shutdown)
        try:
            node.embody(actor)
        except ValueError:
            del self._children[name]
            raise
        self._launch(node, None)
        return Address(node)

    @overload
    async def add(self, spec: ChildSpec[M]) -> Address[M]: ...
    @overload
    async def add(self, spec: SupervisorSpec) -> Supervisor: ...
    async def add(self, spec: ChildSpec[M] | SupervisorSpec) -> Address[M] | Supervisor:
        """Declare one more child, after the others, and wait until it has started.

        A temporary one is like a spawned one: it is stopped together with those, and not in order.

        Raises:
            NameTaken, SupervisorClosed: as `spawn`.
            StartFailed: it ended before it had started. What is not temporary is tried again all the same.
        """
        supervisor = Supervisor(spec, self.dead_letters) if isinstance(spec, SupervisorSpec) else None
        child: ChildSpec[Any] = spec if isinstance(spec, ChildSpec) else self._as_child(spec, supervisor)
        node = self._place(child.name, child.restart, child.shutdown)
        node.start_within = child.start_within
        if child.restart is not Restart.TEMPORARY:
            node.declared = True
            self._declared[child.name] = child
        self._launch(node, child.actor)
        address: Address[M] = Address(node)
        while node.state is State.STARTING and node.over is None:
            await node.wait_change()
        if node.over is not None and node.over.how is How.START_FAILED:
            raise StartFailed(node.path, why=node.over.why) from node.over.error
        return supervisor if supervisor is not None else address

    def adopt(self, name: str, *, kind: str, facts: Callable[[], Mapping[str, Fact]] | None = None) -> Adopted:
        """A `with` block of the caller's that shall be in the tree. Raises as `spawn` does, on entry."""
        return Adopted(self, name, kind, facts)

    def address_of(self, spec: ChildSpec[M]) -> Address[M]:
        """The address of a declared child, here or below. Raises LookupError if it is not running here."""
        if self._declared.get(spec.name) is spec:
            node = self._children.get(spec.name)
            if isinstance(node, Node):
                return Address(node)
        for nested in self._nested.values():
            try:
                return nested.address_of(spec)
            except LookupError:
                continue
        raise LookupError(f"no living {spec.name} under {self.spec.name}")

    def supervisor_of(self, path: str) -> Supervisor:
        """The supervisor at *path* below this one: `root.supervisor_of("sessions")`. Raises LookupError."""
        name, _, rest = path.partition("/")
        child = self._children.get(name)
        found = child.actor if isinstance(child, Node) else self._nested.get(name)
        if isinstance(found, Supervisor):
            return found.supervisor_of(rest) if rest else found
        raise LookupError(f"no supervisor {path} under {self.spec.name}")

    def child(self, name: str) -> Address[Any]:
        """The address of a living child by its name. Raises LookupError."""
        node = self._children.get(name)
        if isinstance(node, Node):
            return Address(node)
        raise LookupError(f"no living {name} under {self.spec.name}")

    def tree(self) -> Snapshot:
        """This supervisor and all below it, as they are now."""
        return self._bound().snapshot(trio.current_time())

    def facts(self) -> Mapping[str, Fact]:
        return {"strategy": self.spec.strategy.value}

    def snapshots(self, now: float) -> tuple[Snapshot, ...]:
        declared = [self._children[name] for name in self._declared if name in self._children]
        others = [child for child in self._children.values() if child.name not in self._declared]
        return tuple(child.snapshot(now) for child in (*declared, *others))

    # Its life.

    async def run(self) -> None:
        failure: ActorError | None = None
        self._window = RestartWindow(self.spec.intensity)
        self._significant_ended = False
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                failure = await self._start_declared()
                if failure is None:
                    self._bound().mark_started()
                    failure = await self._supervise()
                self._nursery = None
                await self._stop_children()
        finally:
            self._nursery = None
            self._leave_nothing()
        if failure is not None:
            raise failure

    def drain_time(self) -> float:
        declared = [self._children.get(name) for name in self._declared]
        drains = [c.actor.drain_time() for c in declared if isinstance(c, Node) and c.actor is not None]
        return self.spec.drain + sum(drains) + SETTLE_TIME

    def on_stop(self) -> None:
        self.notice()

    async def _start_declared(self) -> ActorError | None:
        for spec in self.spec.children:
            child = spec if isinstance(spec, ChildSpec) else self._as_child(spec, self._nested[spec.name])
            self._declared[child.name] = child
        for name in tuple(self._declared):
            if self._done():
                return None
            node = await self._start(name)
            if node.over is not None and node.over.how is How.START_FAILED:
                failure = StartFailed(node.path, why=node.over.why)
                failure.__cause__ = node.over.error
                return failure
        return None

    async def _supervise(self) -> ActorError | None:
        """Answer for declared children until it is time to stop; the error if the intensity was passed."""
        while not self._done():
            due = min(self._due.values(), default=math.inf)
            if self._exits:
                node, over = self._exits.popleft()
                # Else it was stopped or restarted with others in the meantime.
                if node.over is over and node.ended is None and node.stop is Stop.NO:
                    failure = await self._answer(node, over)
                    if failure is not None:
                        return failure
            elif due <= trio.current_time():
                await self._start_due()
            else:
                with trio.CancelScope(deadline=due):
                    await self._wake.park()
        return None

    async def _answer(self, node: Node, over: Ended) -> ActorError | None:
        """Do what the table says about a declared child that ended by itself."""
        now = trio.current_time()
        intensity = self.spec.intensity
        members = [(spec.name, spec.restart) for spec in self._declared.values()]
        steps = plan(self.spec.strategy, members, node.name, over.how)
        if not steps.start:
            node.finish(over)
            return None
        if not self._window.allow(now):
            log.error("supervisor_escalated", path=self.path, child=node.name, failure=over.why)
            failure = TooManyRestarts(
                self.path, restarts=intensity.restarts, per=intensity.per, child=node.name, why=over.why
            )
            failure.__cause__ = over.error
            return failure
        node.streak = 1 if now - node.started_at >= intensity.per else node.streak + 1
        node.state = State.BACKING_OFF
        due = now + self.spec.backoff.delay(node.streak)
        for name in steps.stop:
            await self._halt(name)
        for name in steps.start:
            self._due[name] = max(due, self._due.get(name, due))
        return None

    async def _halt(self, name: str) -> None:
        """Stop a sibling that is restarted with another; its mailbox waits for the next incarnation."""
        node = self._children.get(name)
        if not isinstance(node, Node):
            return
        node.begin_stop(Stop.GOOD if node.restart is Restart.TEMPORARY else Stop.RESTART)
        while node.over is None:
            await self._wake.park()
        if node.ended is None:
            node.state = State.BACKING_OFF

    async def _start_due(self) -> None:
        now = trio.current_time()
        for name in [name for name in self._declared if self._due.get(name, math.inf) <= now]:
            if self._due.pop(name, None) is not None:
                await self._start(name)
            if self._exits or self._done():
                return  # a failed start changes who else may start

    async def _start(self, name: str) -> Node:
        """Start a declared child and wait until it runs, or has ended, or nobody cares any more."""
        spec = self._declared[name]
        node = self._children.get(name)
        if isinstance(node, Node):
            node.reset()
        else:
            node = self._place(name, spec.restart, spec.shutdown, declared=True)
            node.start_within = spec.start_within
        self._launch(node, spec.actor)
        while node.state is State.STARTING and node.over is None and not self._done():
            await self._wake.park()
        return node

    async def _stop_children(self) -> None:
        """Spawned and adopted children first, all at once; then the declared ones, the last one first."""
        limit = trio.current_time() + self.spec.drain
        for child in list(self._children.values()):
            if isinstance(child, Adopted):
                child.scope.deadline = min(child.scope.deadline, limit)
            elif not child.declared:
                child.begin_stop(Stop.GOOD)
        while any(name not in self._declared for name in self._children):
            await self._wake.park()
        for name in reversed(tuple(self._declared)):
            node = self._children.get(name)
            if isinstance(node, Node):
                node.begin_stop(Stop.GOOD)
                while node.ended is None:
                    await self._wake.park()

    def _leave_nothing(self) -> None:
        for child in list(self._children.values()):
            if isinstance(child, Adopted):
                child.cancel()
            else:
                child.finish(CUT_OFF)
        self._children.clear()
        self._declared.clear()
        self._due.clear()
        self._exits.clear()

    def _done(self) -> bool:
        return self._significant_ended or self._bound().stop is not Stop.NO

    # A child's life.

    def _place(self, name: str, restart: Restart, shutdown: float, *, declared: bool = False) -> Node:
        if self._nursery is None:
            raise SupervisorClosed(self.path)
        if name in self._children or (not declared and name in self._declared):
            raise NameTaken(f"{self.path}/{name}")
        node = Node(name, self, self.dead_letters, restart=restart, shutdown=shutdown)
        node.declared = declared
        self._children[name] = node
        return node

    def _launch(self, node: Node, make: Callable[[], Actor[Any]] | None) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._live, node, make, name=node.name)

    async def _live(self, node: Node, make: Callable[[], Actor[Any]] | None) -> None:
        """The task of one incarnation. The one place where whatever an actor raises is caught."""
        over = CUT_OFF
        try:
            with node.scope:
                if make is not None:
                    node.embody(make())
                actor = node.actor
                if actor is not None:
                    if type(actor).start is not Actor.start:
                        with trio.fail_after(node.start_within):
                            await actor.start()
                    if not actor.starts_itself:
                        node.mark_started()
                    await actor.run()
            over = _verdict(node)
        except Exception as error:
            how = How.START_FAILED if node.state is State.STARTING else How.RAISED
            over = Ended(how, failure_text(error), error)
            log.exception("actor_crashed", path=node.path, how=how.value, failure=over.why)
            error.__traceback__ = None  # logged; kept longer it would keep every frame's objects alive
        finally:
            self._ended(node, over)

    def _ended(self, node: Node, over: Ended) -> None:
        node.end_incarnation(over)
        closing = self._nursery is None
        if closing or node.stop is Stop.GOOD or node.restart is Restart.TEMPORARY or over is CUT_OFF:
            node.finish(over)
        elif node.stop is Stop.NO:
            self._exits.append((node, over))
        if closing or node.declared:
            self.notice()

    # What nodes tell it.

    def notice(self) -> None:
        """Something changed that its own task may be waiting for."""
        self._wake.unpark_all()

    def forget(self, node: Node) -> None:
        """A child has ended for good. A transient one that returned stays declared: a group restart revives it."""
        name = node.name
        if self._children.get(name) is node:
            del self._children[name]
        if node.declared:
            self._due.pop(name, None)
            spec = self._declared.get(name)
            if node.stop is Stop.GOOD or node.restart is Restart.TEMPORARY:
                self._declared.pop(name, None)
            self._significant_ended |= spec is not None and spec.significant
            self.notice()

    def take_in(self, adopted: Adopted) -> None:
        if self._nursery is None:
            raise SupervisorClosed(self.path)
        if adopted.name in self._children or adopted.name in self._declared:
            raise NameTaken(adopted.path)
        self._children[adopted.name] = adopted

    def let_go(self, adopted: Adopted) -> None:
        if self._children.get(adopted.name) is adopted:
            del self._children[adopted.name]
        if self._nursery is None:
            self.notice()

    def bind(self, node: Node) -> None:
        self._node = node

    @staticmethod
    def _as_child(spec: SupervisorSpec, supervisor: Supervisor | None) -> ChildSpec[Any]:
        actor = supervisor
        if actor is None:
            raise TypeError(f"{spec.name} has no supervisor")
        return ChildSpec(spec.name, lambda: actor, restart=spec.restart, significant=spec.significant)


def _verdict(node: Node) -> Ended:
    """How an incarnation ended that raised nothing."""
    if not node.scope.cancelled_caught:
        return RETURNED if node.stop is Stop.NO else STOPPED
    killed = node.scope.deadline > trio.current_time()
    how = How.START_FAILED if node.state is State.STARTING else How.CANCELLED
    return Ended(how, node.why_killed if killed else WHY_DRAIN)
