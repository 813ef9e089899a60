"""Actors without a task of their own: they run in the task that already exists for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import trio

from callboard.supervisor.lifetime import WHY_KILLED, Lifetime
from callboard.supervisor.snapshot import Fact, Snapshot, facts_of

if TYPE_CHECKING:
    from callboard.supervisor.actor import Unfinished
    from callboard.supervisor.supervisor import Supervisor


class Adopted(Protocol):
    """A child that runs in a task of another actor: `take_in` of a supervisor puts it into the tree, `let_go` takes it
    out."""

    @property
    def name(self) -> str: ...

    def drain(self, until: float) -> None:
        """Its supervisor ends: it may finish until then, and is cancelled if it has not."""

    def cancel(self, why: str = WHY_KILLED) -> None:
        """End it now."""

    def unfinished(self) -> Iterable[Unfinished]:
        """The work that a drain lets finish."""

    def snapshot(self, now: float) -> Snapshot: ...


class AdoptedBlock(Lifetime):
    """A `with` block that is in the tree, with its own cancel scope; it has no mailbox and no task.

    Exceptions pass through to the adopter, whose affair they are. `scope.cancelled_caught` says, after the block,
    whether it was cut short, and `why_cut` says why. Its deadline is set, and moved, with `expire`.
    """

    __slots__ = ("_facts", "_parent", "kind", "name", "started_at", "state")

    def __init__(
        self, parent: Supervisor, name: str, kind: str, facts: Callable[[], Mapping[str, Fact]] | None
    ) -> None:
        self.begin()
        self._parent = parent
        self._facts = facts
        self.name = name
        self.kind = kind
        self.state = "running"
        self.started_at = trio.current_time()

    def __enter__(self) -> Self:
        self._parent.take_in(self, self.name)
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._parent.let_go(self, self.name)
        return self.scope.__exit__(kind, error, traceback)

    @property
    def path(self) -> str:
        return f"{self._parent.path}/{self.name}"

    def cancel(self, why: str = WHY_KILLED) -> None:
        """Cut the block short. The first *why* stays."""
        self.cut(why)

    def unfinished(self) -> Iterable[Unfinished]:
        return ()

    def snapshot(self, now: float) -> Snapshot:
        return Snapshot(
            name=self.name,
            path=self.path,
            kind=self.kind,
            state=self.state,
            age=now - self.started_at,
            facts=facts_of(self._facts) if self._facts is not None else {},
        )
