"""Actors without a task of their own: they run in the task that already exists for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from callboard.supervisor._node import NO_FACTS
from callboard.supervisor.snapshot import Fact, Snapshot

if TYPE_CHECKING:
    from callboard.supervisor.supervisor import Supervisor


class Adopted:
    """A `with` block that is in the tree, with its own cancel scope; it has no mailbox and no task.

    Exceptions pass through to the adopter, whose affair they are. `scope.cancelled_caught` says, after the block,
    whether it was cut short.
    """

    __slots__ = ("_facts", "_parent", "kind", "name", "scope", "started_at", "state")

    def __init__(
        self, parent: Supervisor, name: str, kind: str, facts: Callable[[], Mapping[str, Fact]] | None
    ) -> None:
        self._parent = parent
        self._facts = facts
        self.name = name
        self.kind = kind
        self.state = "running"
        self.scope = trio.CancelScope()
        self.started_at = trio.current_time()

    def __enter__(self) -> Self:
        self._parent.take_in(self)
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._parent.let_go(self)
        return self.scope.__exit__(kind, error, traceback)

    @property
    def path(self) -> str:
        return f"{self._parent.path}/{self.name}"

    def cancel(self) -> None:
        """Cut the block short."""
        self.scope.cancel()

    def snapshot(self, now: float) -> Snapshot:
        facts: Mapping[str, Fact] = NO_FACTS
        if self._facts is not None:
            try:
                facts = self._facts()
            except Exception as error:
                facts = {"facts_failed": type(error).__name__}
        return Snapshot(
            name=self.name,
            path=self.path,
            kind=self.kind,
            state=self.state,
            age=now - self.started_at,
            facts=facts,
        )
