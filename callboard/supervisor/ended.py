"""How actors end, as values."""

import sysconfig
import traceback
from collections import deque
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Final

import attrs

from callboard.supervisor.groups import leaves
from callboard.supervisor.lifetime import WHY_SUPERVISOR

FAILURE_TEXT: Final = 200
"""Longest text of a failure, in characters. It goes into the tree and the log, and is no place for a payload."""

FRAMES: Final = 5
"""Frames of a crash that go into the log: enough to find the line, and one line long."""

LIBRARIES: Final = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parents[1]), "<")
"""Where code lies that is not the user's: what a user looks for is the line of their own code."""


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


RETURNED: Final = Ended(How.RETURNED, "returned")
STOPPED: Final = Ended(How.RETURNED, "stopped")
CUT_OFF: Final = Ended(How.CANCELLED, WHY_SUPERVISOR)


def failure_text(error: BaseException) -> str:
    """One short line for *error*; of a group, its first leaf and how many there are. Never a traceback."""
    found = leaves(error)
    line = " ".join(f"{type(found[0]).__name__}: {_text(found[0])}".split()).rstrip(":")
    text = f"{line} (and {len(found) - 1} more)" if len(found) > 1 else line
    return text if len(text) <= FAILURE_TEXT else text[: FAILURE_TEXT - 1] + "…"


def where(error: BaseException | None) -> str:
    """The innermost frames in which *error* arose, for the log: places, and no values."""
    if error is None:
        return ""
    frames: deque[tuple[FrameType, int]] = deque(maxlen=FRAMES)
    own = None
    for frame in traceback.walk_tb(leaves(error)[0].__traceback__):
        frames.append(frame)
        if not frame[0].f_code.co_filename.startswith(LIBRARIES):
            own = frame
    if own is not None and own not in frames:  # deep in a library
        frames[0] = own
    return " < ".join(f"{Path(f.f_code.co_filename).name}:{line} {f.f_code.co_name}" for f, line in reversed(frames))


def drop_frames(error: BaseException) -> None:
    """Take the tracebacks from *error* and all that stands behind it: they keep every frame's objects alive."""
    found: dict[int, BaseException] = {}
    behind: list[BaseException | None] = [error]
    while behind:
        one = behind.pop()
        if one is not None and id(one) not in found:
            found[id(one)] = one
            one.__traceback__ = None
            parts = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            behind.extend((one.__cause__, one.__context__, *parts))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its author's mistake: the type alone has to do
        return ""
