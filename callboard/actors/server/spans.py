"""Spans of requests, as actors see them. What makes them stands in `observe`: OpenTelemetry is known there alone.

A span is passed on explicitly, in the slot of its request. The ambient context would be another's: actors are started
by supervisors.
"""

from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import Final, Protocol, TypeAlias, runtime_checkable

from msgspec import Raw

from callboard.actors.frames import Outcome
from callboard.actors.terms import Terms
from callboard.codecs.envelope import Request
from callboard.codecs.http.head import Head
from callboard.codecs.revisions import Revision
from callboard.codecs.routing import Route

TraceHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Headers of HTTP that carry a trace context."""

KEPT_SIZE: Final = 25
"""Bytes of `FrontSpan.to_keep`: the ids of a trace and of a span, and flags."""


class BackSpan(Protocol):
    """The span of what a backend, or a legacy client, is asked."""

    @property
    def headers(self) -> TraceHeaders:
        """For a backend that is reached by HTTP."""

    def put_into(self, meta: Mapping[str, Raw] | Raw) -> Mapping[str, Raw]:
        """*meta* with this span as the parent of what is done there."""

    def reached(self, revision: Revision, *, is_http: bool) -> None:
        """A connection was found."""

    def end(self, outcome: Outcome | Exception | None) -> None:
        """It is answered, or has failed; None: the answer is not wanted any more."""


class FrontSpan(Protocol):
    """The span of one request of a client."""

    def enter(self, context: Context | None = None) -> None:
        """Be the current span in *context*, or in that of the running task: for spans of a handler's own."""

    def follow(self, earlier: "FrontSpan") -> None:
        """The operation of an *earlier* request goes on with this one: link to it, and be current in its stead."""

    def follow_kept(self, kept: bytes) -> None:
        """As `follow`, of a request of which the client kept what `to_keep` said."""

    def to_keep(self) -> bytes:
        """What the next request needs to link to this one: `KEPT_SIZE` bytes."""

    def begin_back(self, backend: str, method: str, name: str | None, *, trusts: bool) -> BackSpan:
        """Begin the span of what *backend* is asked, where the target is called *name*. *trusts*: it sees baggage."""

    def begin_question(self, method: str) -> BackSpan:
        """Begin the span of what the client of the request is asked."""

    def answered(self, outcome: Outcome | Exception) -> None:
        """The request is about to end so."""

    def end(self, error: str) -> None:
        """The request is over, with an *error* of this type if any."""


@runtime_checkable
class HeadHolder(Protocol):
    """An outlet that is the response to one HTTP request."""

    def take_head(self) -> Head | None:
        """The head of that request, once."""


class Tracer(Protocol):
    """Begins the spans of requests."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """By key: how many members of trace contexts were invalid or too long."""

    def begin(self, request: Request, route: Route, terms: Terms, transport: str, head: Head | None) -> FrontSpan:
        """A request begins. *head* is that of its own HTTP request, if it came by one."""
