"""The life of one request as a table: what may happen to it, and the one thing that follows.

Pure: no task, no clock, no wire. Everything that can end a request goes through `step`, so that whatever arrives, in
whatever order, a request has exactly one outcome. An event that the table does not know in a state came too late: that
is a race, not a fault, and it is dropped.
"""

from enum import Enum
from typing import Final

import attrs


class State(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    """Its handler or backend works, and somebody waits for the answer."""
    PARKED = "parked"
    """Its handler waits for input; the client was told what is wanted, and nobody waits for an answer now."""
    SETTLED = "settled"
    """Answered."""
    CANCELLED = "cancelled"
    """Given up. The protocol forbids an answer."""


class Event(Enum):
    """What can happen to a request."""

    RESULT = "result"
    FAILURE = "failure"
    DEADLINE = "deadline"
    BACKEND_GONE = "backend gone"
    PEER_CANCELLED = "cancelled by the peer"
    DISCONNECTED = "stream closed by the peer"
    SESSION_ENDED = "session ended"
    ASKED = "input asked for"
    RETRIED = "retried with input"
    EXPIRED = "not retried in time"


class Act(Enum):
    """What follows."""

    ANSWER = "answer"
    ANSWER_INPUT_REQUIRED = "answer that input is required"
    STAY_SILENT = "stay silent"
    RESUME = "resume"
    KEEP = "keep the outcome for the retry"
    DROP = "drop: too late"


_WAITING: Final = State.WAITING
_PARKED: Final = State.PARKED

TABLE: Final[dict[tuple[State, Event], tuple[State, Act]]] = {
    (_WAITING, Event.RESULT): (State.SETTLED, Act.ANSWER),
    (_WAITING, Event.FAILURE): (State.SETTLED, Act.ANSWER),
    (_WAITING, Event.DEADLINE): (State.SETTLED, Act.ANSWER),
    (_WAITING, Event.BACKEND_GONE): (State.SETTLED, Act.ANSWER),
    (_WAITING, Event.PEER_CANCELLED): (State.CANCELLED, Act.STAY_SILENT),
    (_WAITING, Event.DISCONNECTED): (State.CANCELLED, Act.STAY_SILENT),
    (_WAITING, Event.SESSION_ENDED): (State.CANCELLED, Act.STAY_SILENT),
    (_WAITING, Event.ASKED): (_PARKED, Act.ANSWER_INPUT_REQUIRED),
    (_PARKED, Event.RETRIED): (_WAITING, Act.RESUME),
    # A handler that stops waiting for its input, or a backend that does: the next retry gets what came of it.
    (_PARKED, Event.RESULT): (State.SETTLED, Act.KEEP),
    (_PARKED, Event.FAILURE): (State.SETTLED, Act.KEEP),
    (_PARKED, Event.BACKEND_GONE): (State.SETTLED, Act.KEEP),
    (_PARKED, Event.EXPIRED): (State.CANCELLED, Act.STAY_SILENT),
    (_PARKED, Event.SESSION_ENDED): (State.CANCELLED, Act.STAY_SILENT),
}


def step(state: State, event: Event) -> tuple[State, Act]:
    """Return where *event* leads from *state*, and what must be done about it."""
    return TABLE.get((state, event), (state, Act.DROP))


@attrs.define
class Life:
    """One request on its way through the table. `late` counts what came after its outcome."""

    state: State = State.WAITING
    outcome: Event | None = None
    late: int = 0

    def meet(self, event: Event) -> Act:
        """Let *event* happen and return what follows from it."""
        self.state, act = step(self.state, event)
        if act is Act.DROP:
            self.late += 1
        elif self.is_over:
            self.outcome = event
        return act

    @property
    def is_over(self) -> bool:
        return self.state in (State.SETTLED, State.CANCELLED)
