"""What is told of each request that has ended, to the observer of the server."""

from collections.abc import Mapping
from typing import Final, Protocol

from callboard.actors.server.spans import FrontSpan
from callboard.actors.terms import Terms
from callboard.codecs.envelope import Request, RequestId
from callboard.codecs.routing import Route

CANCELLED: Final = "cancelled"
"""Error type of a request that its client did not want any more."""

TOOL_ERROR: Final = "tool_error"
"""Error type of a call whose result says that the tool has failed."""


class RequestSource(Protocol):
    """Where requests come from: a session, or an endpoint."""

    transport: str
    """How its requests come."""
    used_at: float
    """When the latest of them ended, if they are observed: of `time.perf_counter`."""


class EndedRequest(Protocol):
    """A request that is over: its `ReplySlot`."""

    request_id: RequestId
    method: str
    terms: Terms
    target: str | None
    """The tool or prompt that it was about."""
    began: float
    """When it began, of `time.perf_counter`."""
    behind: float
    """Seconds that a backend took for it."""
    trace: FrontSpan | None
    """Its span, if it is traced."""

    @property
    def admission(self) -> RequestSource | None: ...


class Observer(Protocol):
    """Hears of every request once, when it ends. It must be quick: a request takes some 40 us in all."""

    def over(self, slot: EndedRequest, error: str = "") -> None:
        """The request of *slot* is answered, with an *error* of this type if any, or is not wanted any more."""

    def backend_over(self, server: str, method: str, name: str | None, error: str, seconds: float) -> None:
        """A backend has answered a request, or has not."""

    def refuse(self, reason: str) -> None:
        """Something was refused before it was a request: for one of few reasons."""

    def session_over(self, transport: str, revision: str, seconds: float) -> None:
        """A session has ended after so long."""


class Auditor(Protocol):
    """Keeps the audit log: sees each request when it begins, too."""

    def begin(self, slot: EndedRequest, request: Request, route: Route) -> Observer:
        """The observer of this request."""

    def session_ended(self, terms: Terms, transport: str, peer: str, seconds: float) -> None:
        """A session has ended after so long."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Lines by what became of them."""
