"""How long something lives: one cancel scope, a deadline that may move, and why it was cut short."""

import math
from typing import Final

import trio

WHY_KILLED: Final = "killed"
WHY_DEADLINE: Final = "deadline passed"
WHY_DRAIN: Final = "drain time passed"
WHY_OVERFLOW: Final = "mailbox overflowed"
WHY_SUPERVISOR: Final = "its supervisor was cancelled"


class Lifetime:
    """The cancel scope of an actor or of an adopted block.

    It may be cancelled by name, by its own deadline, or because it was asked to stop and its drain time has passed.
    The first of them is the reason.
    """

    __slots__ = ("_drained_at", "_why", "scope")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start, or start anew: nothing limits it yet."""
        self.scope = trio.CancelScope()
        self._why: str | None = None
        self._drained_at = math.inf

    def cut(self, why: str) -> None:
        """Cancel it now. The first reason stays."""
        if not self.scope.cancel_called:
            self._why = why
            self.scope.cancel()

    def split(self) -> "Lifetime":
        """Go on with a fresh scope. The present one, which a task is in, becomes a lifetime of its own, without a
        deadline: what is returned."""
        other, drained_at = Lifetime(), self._drained_at
        other.scope = self.scope
        other.scope.deadline = math.inf
        self.begin()
        self.drain(drained_at)
        return other

    def expire(self, at: float) -> None:
        """Cancel it at *at*, on Trio's clock, unless moved again. A stop that is under way is not put off."""
        self.scope.deadline = min(at, self._drained_at)

    def drain(self, until: float) -> None:
        """It was asked to stop: cancel it at *until*, or at its own deadline if that is sooner."""
        self._drained_at = until
        self.scope.deadline = min(self.scope.deadline, until)

    @property
    def why_cut(self) -> str | None:
        """Why it is or was cancelled; None if it was not, or by a scope around it."""
        if not self.scope.cancel_called:
            return None
        if self._why is None:
            return WHY_DRAIN if self.scope.deadline >= self._drained_at else WHY_DEADLINE
        return self._why
