"""What goes wrong in a tree: messages that were not delivered, counted by kind and reason, the latest remembered, never
their payload; and restarts."""

from collections import Counter, deque
from typing import Final

import attrs

from callboard.supervisor.overflow import Lost

REMEMBERED: Final = 1000
"""Dead letters kept for a look back. Older ones stay in the counts."""


@attrs.frozen
class DeadLetter:
    """Record that a message of this kind did not reach *path*, and why. Its contents are not kept."""

    path: str
    kind: str
    reason: Lost
    at: float


@attrs.define(eq=False)
class DeadLetters:
    """One per tree. `counts` is by (kind, reason) and complete; `recent` is a ring. `restarts` is by kind of actor, and
    counts those, too, that are gone."""

    counts: Counter[tuple[str, Lost]] = attrs.field(factory=Counter, init=False)
    restarts: Counter[str] = attrs.field(factory=Counter, init=False)
    _recent: deque[DeadLetter] = attrs.field(factory=lambda: deque(maxlen=REMEMBERED), init=False)

    def add(self, path: str, message: object, reason: Lost, *, at: float) -> None:
        kind = type(message).__name__
        self.counts[kind, reason] += 1
        self._recent.append(DeadLetter(path, kind, reason, at))

    @property
    def recent(self) -> tuple[DeadLetter, ...]:
        """The latest, oldest first."""
        return tuple(self._recent)

    @property
    def total(self) -> int:
        return self.counts.total()
