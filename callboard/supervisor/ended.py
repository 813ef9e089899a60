"""How actors end, as values."""

from enum import Enum
from typing import Final

import attrs

FAILURE_TEXT: Final = 200
"""Longest text of a failure, in characters. It goes into the tree and the log, and is no place for a payload."""


class How(Enum):
    """The four ways to end."""

    RETURNED = "returned"
    RAISED = "raised"
    CANCELLED = "cancelled"
    START_FAILED = "start_failed"


@attrs.frozen
class Ended:
    """How an actor ended: *why* is a short text or a named reason, *error* what it raised, if it did."""

    how: How
    why: str
    error: Exception | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def abnormal(self) -> bool:
        return self.how is not How.RETURNED


@attrs.frozen
class Down:
    """What a watcher is told, once, when the actor at *path* has ended for good."""

    path: str
    ended: Ended


RETURNED: Final = Ended(How.RETURNED, "returned")
STOPPED: Final = Ended(How.RETURNED, "stopped")

WHY_KILLED: Final = "killed"
WHY_DRAIN: Final = "drain time passed"
WHY_OVERFLOW: Final = "mailbox overflowed"
WHY_SUPERVISOR: Final = "its supervisor was cancelled"


def failure_text(error: BaseException) -> str:
    """One short line for *error*; of a group, its first leaf and how many there are. Never a traceback."""
    leaves = [error]
    while isinstance(leaves[0], BaseExceptionGroup):
        leaves = [*leaves[0].exceptions, *leaves[1:]]
    more = sum(len(e.exceptions) if isinstance(e, BaseExceptionGroup) else 1 for e in leaves) - 1
    first = leaves[0]
    line = " ".join(f"{type(first).__name__}: {first}".split()).rstrip(":")
    text = f"{line} (and {more} more)" if more else line
    return text if len(text) <= FAILURE_TEXT else text[: FAILURE_TEXT - 1] + "…"
