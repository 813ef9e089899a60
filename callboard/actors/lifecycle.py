"""The life of one request as a table: what may happen to it, and the one thing that follows.

Pure: no task, no clock, no wire. Everything that can end a request goes through `step`, so that for all events, in
any order, a request has exactly one outcome. An event that the table does not know in a state came too late: that
is a race, not a fault, and it is dropped.
"""

from enum import Enum
from typing import Final

NOT_NEEDED: Final = "no longer needed"
"""Reason of a cancellation that callboard sends for a request that its client or handler has given up."""


class RequestState(Enum):
    """State of a request."""

    __hash__ = object.__hash__  # as equality is: by identity. The name's would be a call in Python for each look-up

    WAITING = "waiting"
    """Its handler or backend works, and its client waits for the answer."""
    PARKED = "parked"
    """Its handler waits for input; the client was told what is wanted, and waits for no answer now."""
    SETTLED = "settled"
    """Answered."""
    CANCELLED = "cancelled"
    """Given up. The protocol forbids an answer."""


class RequestEvent(Enum):
    """Event in the life of a request."""

    __hash__ = object.__hash__

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


class Consequence(Enum):
    """Action that follows from an event."""

    ANSWER = "answer"
    ANSWER_INPUT_REQUIRED = "answer that input is required"
    STAY_SILENT = "stay silent"
    RESUME = "resume"
    KEEP = "keep the outcome for the retry"
    DROP = "drop: too late"


_WAITING: Final = RequestState.WAITING
_PARKED: Final = RequestState.PARKED
_OVER: Final = (RequestState.SETTLED, RequestState.CANCELLED)
_DROP: Final = Consequence.DROP  # members of an enum are found by its metaclass: naming four took 0.6 us of each call

TABLE: Final[dict[tuple[RequestState, RequestEvent], tuple[RequestState, Consequence]]] = {
    (_WAITING, RequestEvent.RESULT): (RequestState.SETTLED, Consequence.ANSWER),
    (_WAITING, RequestEvent.FAILURE): (RequestState.SETTLED, Consequence.ANSWER),
    (_WAITING, RequestEvent.DEADLINE): (RequestState.SETTLED, Consequence.ANSWER),
    (_WAITING, RequestEvent.BACKEND_GONE): (RequestState.SETTLED, Consequence.ANSWER),
    (_WAITING, RequestEvent.PEER_CANCELLED): (RequestState.CANCELLED, Consequence.STAY_SILENT),
    (_WAITING, RequestEvent.DISCONNECTED): (RequestState.CANCELLED, Consequence.STAY_SILENT),
    (_WAITING, RequestEvent.SESSION_ENDED): (RequestState.CANCELLED, Consequence.STAY_SILENT),
    (_WAITING, RequestEvent.ASKED): (_PARKED, Consequence.ANSWER_INPUT_REQUIRED),
    (_PARKED, RequestEvent.RETRIED): (_WAITING, Consequence.RESUME),
    # A handler that stops waiting for its input, or a backend that does: the next retry gets what came of it.
    (_PARKED, RequestEvent.RESULT): (RequestState.SETTLED, Consequence.KEEP),
    (_PARKED, RequestEvent.FAILURE): (RequestState.SETTLED, Consequence.KEEP),
    (_PARKED, RequestEvent.BACKEND_GONE): (RequestState.SETTLED, Consequence.KEEP),
    (_PARKED, RequestEvent.EXPIRED): (RequestState.CANCELLED, Consequence.STAY_SILENT),
    (_PARKED, RequestEvent.SESSION_ENDED): (RequestState.CANCELLED, Consequence.STAY_SILENT),
}


def step(state: RequestState, event: RequestEvent) -> tuple[RequestState, Consequence]:
    """Return where *event* leads from *state*, and what must be done about it."""
    return TABLE.get((state, event)) or (state, _DROP)


class Lifecycle:
    """One request on its way through the table. `late` counts what came after its outcome.

    What it begins with are defaults of the class: most requests change nothing but their state, once.
    """

    state: RequestState = RequestState.WAITING
    ended_by: RequestEvent | None = None
    late: int = 0

    def meet(self, event: RequestEvent) -> Consequence:
        """Let *event* happen and return what follows from it."""
        self.state, act = step(self.state, event)
        if act is _DROP:
            self.late += 1
        elif self.state in _OVER:
            self.ended_by = event
        return act

    @property
    def is_over(self) -> bool:
        return self.state in _OVER
