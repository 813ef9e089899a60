"""The engine that applies the rules: it starts children in order, and answers for how they end.

Three kinds of children stand under a supervisor. *Declared* ones have a spec, an order and a restart rule.
*Spawned* ones are temporary: one task each, and no word to the supervisor's own task when they start or end.
*Adopted* ones run in a task that exists already.

A task may stay with something that takes longer than the actor it runs: then the actor is *passed on* to a new task,
and goes on there. A coroutine cannot change its task; an actor can.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextvars import Context, copy_context
from functools import partial
from itertools import islice
from typing import Any, Final, Never, TypeVar, cast, overload

import trio
from trio.lowlevel import enable_ki_protection

from callboard.errors import ActorError, NameTaken, StartFailed, SupervisorClosed
from callboard.supervisor._declared import Declared
from callboard.supervisor._node import Node, State, Stop
from callboard.supervisor.actor import Actor, Unfinished
from callboard.supervisor.address import Address
from callboard.supervisor.adopted import Adopted, AdoptedBlock
from callboard.supervisor.dead_letters import DeadLetters
from callboard.supervisor.ended import CUT_OFF, Ended, How, drop_frames, failure_text, where
from callboard.supervisor.lifetime import WHY_SUPERVISOR, Lifetime
from callboard.supervisor.logs import report
from callboard.supervisor.snapshot import Fact, Snapshot, facts_of
from callboard.supervisor.spec import ChildSpec, Restart, SupervisorSpec, check_name

M = TypeVar("M")

SETTLE_TIME: Final = 1.0
"""Seconds a supervisor gets beyond the drain times of its children, for those that clean up when cancelled."""


class Supervisor(Actor[Never]):
    """An actor whose work is its children. The object survives its own restarts, so others may hold it."""

    __slots__ = (
        "_children",
        "_context",
        "_declared",
        "_nested",
        "dead_letters",
        "nursery",
        "spec",
    )

    mailbox = None
    starts_itself = True

    def __init__(self, spec: SupervisorSpec, dead_letters: DeadLetters) -> None:
        self.spec = spec
        self.dead_letters = dead_letters
        self._nested = {s.name: Supervisor(s, dead_letters) for s in spec.children if isinstance(s, SupervisorSpec)}
        self._children: dict[object, Node | Adopted] = {}  # by name, or by itself
        self._declared = Declared()
        self._context: Context = copy_context()
        self.nursery: trio.Nursery | None = None  # None when it takes no children. For supervisors only

    # What others ask of it.

    def spawn(self, actor: Actor[M], *, name: str, shutdown: float | None = None) -> Address[M]:
        """Start *actor* as a temporary child, in a task of its own. Its end is news, not a fault.

        Raises:
            NameTaken: a living child has this name.
            SupervisorClosed: not running.
        """
        node = self._node_for(name, Restart.TEMPORARY, self.spec.drain if shutdown is None else shutdown)
        node.embody(actor)
        self._children[name] = node
        self.launch(node, None)
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
            StartFailed: it did not start, and is not declared after all.
        """
        supervisor = Supervisor(spec, self.dead_letters) if isinstance(spec, SupervisorSpec) else None
        child: ChildSpec[Any] = supervisor.as_child() if supervisor is not None else cast("ChildSpec[M]", spec)
        declared = child.restart is not Restart.TEMPORARY or child.significant
        node = self.place(child, declared=False)
        if declared:
            node.declared = True
            self._declared.specs[child.name] = child
        self.launch(node, child.actor)
        while node.state is State.STARTING and node.over is None:
            await node.wait_change()
        if node.over is not None and node.over.how is How.START_FAILED:
            raise StartFailed(node.path, why=node.over.why) from node.over.error
        return supervisor if supervisor is not None else Address(node)

    def adopt(self, name: str, *, kind: str, facts: Callable[[], Mapping[str, Fact]] | None = None) -> AdoptedBlock:
        """A `with` block of the caller's that shall be in the tree. Raises as `spawn` does, on entry."""
        return AdoptedBlock(self, name, kind, facts)

    def carry(self, run: Callable[[], Awaitable[None]], *, name: str) -> Lifetime:
        """Start a task for what is adopted, here or elsewhere, and return its lifetime. Raises `SupervisorClosed`."""
        if self.nursery is None:
            raise SupervisorClosed(self.path)
        lifetime = Lifetime()
        self._context.run(partial(self.nursery.start_soon, self._carry, run, name, lifetime, name=name))
        return lifetime

    async def _carry(self, run: Callable[[], Awaitable[None]], name: str, lifetime: Lifetime) -> None:
        try:
            with lifetime.scope:
                await run()
        except Exception as error:
            _report_crash(f"{self.path}/{name}", name, error)
        finally:
            self._task_ended()

    def address_of(self, spec: ChildSpec[M]) -> Address[M]:
        """The address of a declared child, here or below. Raises LookupError if it is not running here."""
        node = self.node(spec.name) if self._declared.specs.get(spec.name) is spec else None
        if node is not None and node.actor is not None:
            return Address(node)
        for nested in self._nested.values():
            try:
                return nested.address_of(spec)
            except LookupError:
                continue
        raise LookupError(f"no running {spec.name} under {self.spec.name}")

    def supervisor_of(self, path: str) -> Supervisor:
        """The supervisor at *path* below this one: `root.supervisor_of("sessions")`. Raises LookupError."""
        name, _, rest = path.partition("/")
        node = self.node(name)
        added = node.actor if node is not None else None
        found = added if isinstance(added, Supervisor) else self._nested.get(name)
        if isinstance(found, Supervisor):
            return found.supervisor_of(rest) if rest else found
        raise LookupError(f"no supervisor {path} under {self.spec.name}")

    def child(self, name: str) -> Address[Any]:
        """The address of a living child by its name. Raises LookupError."""
        node = self.node(name)
        if node is not None and node.actor is not None:  # before its first step it has no mailbox yet
            return Address(node)
        raise LookupError(f"no running {name} under {self.spec.name}")

    def actors(self) -> list[tuple[Address[Any], Actor[Any]]]:
        """The actors directly under it now, in no order. Adopted ones have no address, and are left out."""
        nodes = [child for child in self._children.values() if isinstance(child, Node)]
        return [(Address(node), node.actor) for node in nodes if node.actor is not None]

    def some(self, most: int) -> Iterator[Actor[Any] | Adopted]:
        """At most so many of the actors directly under it, adopted ones too: those that were there first."""
        for child in islice(self._children.values(), most):
            actor = child.actor if isinstance(child, Node) else child
            if actor is not None:
                yield actor

    @property
    def child_count(self) -> int:
        """How many live directly under it now."""
        return len(self._children)

    def tree(self, most: int = sys.maxsize) -> Snapshot:
        """This supervisor and all below it, as they are now; with *most*, only so many of each one's children that
        were not declared: there may be thousands."""
        return self._bound().snapshot(trio.current_time(), most)

    def tree_in_parts(self, most: int) -> Generator[None, None, Snapshot]:
        """As `tree`, one actor after the other: other tasks may run wherever it yields."""
        return self._in_parts(self._bound(), trio.current_time(), most)

    def _in_parts(self, node: Node, now: float, most: int) -> Generator[None, None, Snapshot]:
        if not isinstance(node.actor, Supervisor):
            return node.snapshot(now, most)
        children: list[Snapshot] = []
        for child in node.actor.shown(most):
            children.append(
                (yield from self._in_parts(child, now, most)) if isinstance(child, Node) else child.snapshot(now)
            )
            yield
        return node.snapshot(now, most, tuple(children))

    def facts(self) -> Mapping[str, Fact]:
        return {"strategy": self.spec.strategy.value}

    def hidden(self, most: int) -> int:
        specs = self._declared.specs
        return max(0, len(self._children) - sum(name in self._children for name in specs) - most)

    def snapshots(self, now: float, most: int = sys.maxsize) -> tuple[Snapshot, ...]:
        return tuple(
            child.snapshot(now, most) if isinstance(child, Node) else child.snapshot(now) for child in self.shown(most)
        )

    def shown(self, most: int) -> list[Node | Adopted]:
        """Those directly under it that a snapshot has: the declared ones, and at most so many of the others."""
        specs = self._declared.specs
        declared = [self._children[name] for name in specs if name in self._children]
        return [*declared, *islice((child for name, child in self._children.items() if name not in specs), most)]

    def unfinished(self) -> Iterable[Unfinished]:
        """The work of all below it."""
        children = list(self._children.values())
        below = [child.actor if isinstance(child, Node) else child for child in children]
        return [work for one in below if one is not None for work in one.unfinished()]

    # Its life.

    async def run(self) -> None:
        failure: ActorError | None = None
        self._context = copy_context()
        self._declared.begin(self)
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                try:
                    failure = await self._declared.start([self._as_child(spec) for spec in self.spec.children])
                    if failure is None:
                        self._bound().mark_started()
                        failure = await self._declared.supervise()
                finally:
                    self.nursery = None  # here, not after the nursery: it is closed before its children have ended
                limit = await self._stop_others()
                await self._declared.stop()
                nursery.cancel_scope.deadline = limit  # of tasks that stay with what is adopted elsewhere
        finally:
            self._leave_nothing()
        if failure is not None:
            raise failure

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._bound().stop is not Stop.NO

    def drain_time(self) -> float:
        """Sum of the shutdown times of its declared children; spawned children stop together."""
        nodes = [child for child in self._children.values() if isinstance(child, Node)]
        drains = {node: node.actor.drain_time() for node in nodes if node.actor is not None}
        together = max([self.spec.drain, *(drain for node, drain in drains.items() if not node.declared)])
        return together + sum(drain for node, drain in drains.items() if node.declared) + SETTLE_TIME

    def on_stop(self) -> None:
        self._declared.notice()

    async def _stop_others(self) -> float:
        """Stop spawned and adopted children, all at once. Returns until when they were given time."""
        limit = trio.current_time() + self.spec.drain
        for child in list(self._children.values()):
            if not isinstance(child, Node):
                child.drain(limit)
            elif not child.declared:
                child.begin_stop(Stop.GOOD)
        with trio.CancelScope(deadline=limit):
            await self._wait_gone(and_adopted=True)
        await self._wait_gone(and_adopted=False)  # adopted ones are cancelled by now; their own tasks wait for them
        return limit

    async def _wait_gone(self, *, and_adopted: bool) -> None:
        specs = self._declared.specs
        while any(
            name not in specs and (and_adopted or isinstance(child, Node)) for name, child in self._children.items()
        ):
            await self._declared.wait_notice()

    def _leave_nothing(self) -> None:
        for child in list(self._children.values()):
            if isinstance(child, Node):
                child.cut(WHY_SUPERVISOR)  # its task may run elsewhere
                child.finish(CUT_OFF)
            else:
                child.cancel(WHY_SUPERVISOR)
        self._children.clear()
        self._declared.clear()

    # A child's life.

    def node(self, name: str) -> Node | None:
        """The child of this name, unless it is adopted."""
        child = self._children.get(name)
        return child if isinstance(child, Node) else None

    def place(self, spec: ChildSpec[Any], *, declared: bool) -> Node:
        """Make room for a child; *declared* if its name is taken by itself. Raises as `spawn` does."""
        node = self._node_for(spec.name, spec.restart, spec.shutdown, declared=declared)
        node.start_within, node.tasks = spec.start_within, spec.tasks
        self._children[spec.name] = node
        return node

    def _node_for(self, name: str, restart: Restart, shutdown: float, *, declared: bool = False) -> Node:
        self._check_place(name, declared=declared)
        node = Node(name, self, self.dead_letters, restart=restart, shutdown=shutdown)
        node.declared = declared
        return node

    def _check_place(self, name: str, *, declared: bool) -> None:
        if self.nursery is None:
            raise SupervisorClosed(self.path)
        if name in self._children or (name in self._declared.specs and not declared):
            raise NameTaken(f"{self.path}/{name}")
        check_name(name)

    def launch(self, node: Node, make: Callable[[], Actor[Any]] | None) -> None:
        """Start the task of one incarnation."""
        nursery = (node.tasks or self).nursery
        if nursery is not None:
            nursery.start_soon(self._live, node, make, name=node.name)

    def relaunch(self, node: Node) -> Lifetime:
        """Have a new task run the actor of *node* from now on; return the lifetime of the task that ran it, which is no
        child any more. When this supervisor ends, that task gets as long as children do.

        Raises `SupervisorClosed`, also if the actor is being cancelled.
        """
        nursery = (node.tasks or self).nursery
        if self.nursery is None or nursery is None or node.scope.cancel_called:
            raise SupervisorClosed(self.path)
        kept = node.split()
        # Not in the context of the task that stays: what a handler has set there is for that handler only.
        self._context.run(partial(nursery.start_soon, self._live, node, None, name=node.name))
        return kept

    async def _live(self, node: Node, make: Callable[[], Actor[Any]] | None) -> None:
        """The task of one incarnation. The one place where any exception of an actor is caught."""
        over, scope = CUT_OFF, node.scope
        try:
            with scope:
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
            if node.scope is scope:
                over = node.verdict()
        except Exception as error:
            over = _crashed(node, error)
        except BaseExceptionGroup as group:  # it was cancelled from above, and something broke on its way out
            broken, rest = group.split(Exception)
            if broken is not None:
                over = _crashed(node, broken)
                raise rest from None  # type: ignore[misc]  # else `group` were an Exception
            raise
        finally:
            if node.scope is scope:
                self._ended(node, over)
            else:
                self._task_ended()

    def _task_ended(self) -> None:
        """A task has ended that was no child, or not any more."""
        if self.nursery is None:
            self._declared.notice()

    @enable_ki_protection
    def _ended(self, node: Node, over: Ended) -> None:
        node.end_incarnation(over)
        closing = self.nursery is None
        if node.never_ran and node.declared:
            node.stop = Stop.GOOD  # the supervisor that declared it hears that it failed, and decides
        if closing or node.stop is Stop.GOOD or node.restart is Restart.TEMPORARY or over is CUT_OFF:
            node.finish(over)
        elif node.stop is Stop.NO:
            self._declared.ended(node, over)
        if closing or node.declared:
            self._declared.notice()

    # What nodes tell it.

    def notice(self) -> None:
        """Wake the supervisor's task: its state changed."""
        self._declared.notice()

    def forget(self, node: Node) -> None:
        """A child has ended for good."""
        if self._children.get(node.name) is node:
            del self._children[node.name]
        if node.declared:
            self._declared.forget(node)
            self._declared.notice()

    def take_in(self, adopted: Adopted, name: str | None = None) -> None:
        """Put it into the tree. Without a *name* it says itself what it is called, once it is asked, and no other child
        is called so: there is one for each request that waits. Raises as `spawn` does."""
        if name is not None:
            self._check_place(name, declared=False)
        elif self.nursery is None:
            raise SupervisorClosed(self.path)
        self._children[name or adopted] = adopted

    def let_go(self, adopted: Adopted, name: str | None = None) -> None:
        if self._children.get(name or adopted) is adopted:
            del self._children[name or adopted]
        if self.nursery is None:
            self._declared.notice()

    def bind(self, node: Node) -> None:
        self._node = node  # unlike other actors it may be bound again: it is the same one in every incarnation

    def as_child(self) -> ChildSpec[Any]:
        """Itself, as its own supervisor declares it."""
        return ChildSpec(self.spec.name, lambda: self, restart=self.spec.restart, significant=self.spec.significant)

    def _as_child(self, spec: ChildSpec[Any] | SupervisorSpec) -> ChildSpec[Any]:
        return spec if isinstance(spec, ChildSpec) else self._nested[spec.name].as_child()


def _crashed(node: Node, error: Exception) -> Ended:
    over = Ended(How.START_FAILED if node.state is State.STARTING else How.RAISED, failure_text(error), error)
    facts = facts_of(node.actor.facts) if node.actor is not None else {}
    _report_crash(node.path, type(node.actor).__name__, error, how=over.how, facts=facts)
    return over


def _report_crash(
    path: str, kind: str, error: Exception, *, how: How = How.RAISED, facts: Mapping[str, Fact] | None = None
) -> None:
    """One log line. No `exc_info`: a pretty traceback prints local variables, and those hold what peers confided."""
    report(
        "actor_crashed",
        path=path,
        kind=kind,
        how=how.value,
        failure=failure_text(error),
        where=where(error),
        facts=facts or {},
    )
    drop_frames(error)
