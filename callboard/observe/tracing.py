"""Traces by OpenTelemetry: a span for each request of a client, and one for what a backend is asked because of it.

Names and attributes follow the conventions for MCP (open-telemetry/semantic-conventions-genai). Only the API is used;
the SDK, with its samplers and exporters, is the operator's. Nothing of what a request said is in a span but the names
of tools and prompts, and URIs without user, query and fragment.
"""

from collections.abc import Callable, Mapping
from contextvars import Context as Scope
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio
from msgspec import Raw
from opentelemetry import trace as api
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from callboard._version import __version__
from callboard.actors.frames import Outcome, error_type
from callboard.actors.server.observer import CANCELLED, TOOL_ERROR, EndedRequest, Observer
from callboard.actors.server.reply_slot import has_failed
from callboard.actors.server.spans import FrontSpan, TraceHeaders
from callboard.actors.terms import Terms
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.caller import ANYBODY
from callboard.codecs.envelope import Request
from callboard.codecs.http.head import Head
from callboard.codecs.members import raw, read_members
from callboard.codecs.revisions import InputRequiredResult, Revision
from callboard.codecs.revisions.meta import TRACE_KEYS
from callboard.codecs.routing import Route
from callboard.errors import (
    BackendGone,
    BackendRefused,
    BackendTimedOut,
    Overloaded,
    PeerError,
    RequestFailed,
    RequestTimedOut,
)
from callboard.observe.families import NETWORK
from callboard.observe.journal import known_method
from callboard.observe.rows import clip, plain_uri
from callboard.observe.trace_context import NOTHING, ContextReader
from callboard.supervisor import get_logger

log = get_logger("callboard.tracing")

Accept: TypeAlias = Literal["always", "authenticated", "never"]
"""Which clients name the parent of our spans, and so decide whether they are sampled."""

FLUSH_TIME: Final = 2.0
"""Seconds that the exporter has at the end for what it has not sent yet."""

CALLERS_FAULT: Final = frozenset({"-32700", "-32600", "-32601", "-32602", "-32002"})
"""Errors that say what the client did wrong: the span of a server that says so has not failed."""

_NAMES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_FAILURES: Final[Mapping[type[Exception], str]] = {
    RequestTimedOut: "timeout",
    BackendTimedOut: "timeout",
    BackendGone: "connection_lost",
    Overloaded: "overloaded",
}
"""Types of errors that were no response."""

_NO_PARENT: Final = Context()
_INPUT_REQUIRED: Final = "input_required"


@attrs.define(eq=False)
class Tracing:
    """A `Tracer`, and the `Observer` that ends its spans and tells the *next* one."""

    tracer: api.Tracer
    owner_of: Callable[[str, str], str | None]
    accept: Accept = "authenticated"
    next: Observer | None = None
    reader: ContextReader = attrs.field(factory=ContextReader, init=False)

    @property
    def dropped(self) -> Mapping[str, int]:
        return self.reader.dropped

    def begin(self, request: Request, route: Route, terms: Terms, transport: str, head: Head | None) -> "RequestSpan":
        remote, links = NOTHING, []
        if self._accepts(terms, transport):
            remote = self.reader.in_meta(route.meta)
            if head is not None:
                around = self.reader.in_head(head)
                if remote.parent is None:
                    remote = around if around.parent is not None else remote
                elif around.parent is not None and around.parent.span_id != remote.parent.span_id:
                    links.append(Link(around.parent))
        name, attributes = self._about(known_method(request.method), route)
        network, protocol = NETWORK.get(transport, ("", ""))
        attributes["mcp.protocol.version"] = terms.revision.value
        if request.method != "subscriptions/listen":  # its id is that of the subscription, which is the client's own
            attributes["jsonrpc.request.id"] = clip(str(request.id))
        attributes["network.transport"] = network
        if protocol:
            attributes["network.protocol.name"] = protocol
        span = self.tracer.start_span(
            name, context=_under(remote.parent), kind=SpanKind.SERVER, attributes=attributes, links=links
        )
        return RequestSpan(self.tracer, span, remote.baggage)

    def _accepts(self, terms: Terms, transport: str) -> bool:
        """A client over stdio has started this process, or was started with it: it counts as authenticated."""
        if self.accept == "authenticated":
            return terms.principal != ANYBODY or transport == "stdio"
        return self.accept == "always"

    def _about(self, method: str, route: Route) -> tuple[str, dict[str, Any]]:
        """The name of a span, and what it is about. A target that is not offered is not in the name: a client can think
        of any number of them."""
        said = route.name
        if method not in _NAMES or said is None:
            attributes = _about(method, None)
            if route.uri is not None:
                attributes["mcp.resource.uri"] = plain_uri(route.uri)
            return method, attributes
        owner, attributes = self.owner_of(method, said), _about(method, said)
        if owner:
            attributes["callboard.server"] = owner
        return method if owner is None else f"{method} {clip(said)}", attributes

    # What is told to it.

    def over(self, slot: EndedRequest, error: str = "") -> None:
        span = slot.trace
        if not isinstance(span, RequestSpan):  # an unobserved beginning: there is none such
            if self.next is not None:
                self.next.over(slot, error)
            return
        if self.next is not None:
            token = attach(span.context)  # for the ids in a log line of the request
            try:
                self.next.over(slot, error)
            finally:
                detach(token)
        span.end(error)

    def backend_over(self, server: str, method: str, name: str | None, error: str, seconds: float) -> None:
        if self.next is not None:
            self.next.backend_over(server, method, name, error, seconds)

    def refuse(self, reason: str) -> None:
        if self.next is not None:
            self.next.refuse(reason)

    def session_over(self, transport: str, revision: str, seconds: float) -> None:
        if self.next is not None:
            self.next.session_over(transport, revision, seconds)


class RequestSpan:
    """A `FrontSpan`."""

    __slots__ = ("_baggage", "_outcome", "_tracer", "context", "scope", "span")

    def __init__(self, tracer: api.Tracer, span: Span, baggage: str) -> None:
        self.span = span
        self.context = api.set_span_in_context(span, _NO_PARENT)
        self._tracer = tracer
        self._baggage = baggage
        self.scope: Scope | None = None
        self._outcome: Outcome | Exception | None = None

    def enter(self, context: Scope | None = None) -> None:
        if context is None:
            attach(self.context)
            self.scope = trio.lowlevel.current_task().context
        else:
            context.run(attach, self.context)
            self.scope = context

    def follow(self, earlier: FrontSpan) -> None:
        if not isinstance(earlier, RequestSpan):
            return
        self.span.add_link(earlier.span.get_span_context())
        if earlier.scope is not None:  # the handler waits in it: its task does not run now
            self.enter(earlier.scope)

    def follow_kept(self, kept: bytes) -> None:
        found = SpanContext(
            int.from_bytes(kept[:16]), int.from_bytes(kept[16:24]), is_remote=True, trace_flags=TraceFlags(kept[24])
        )
        self.span.add_link(found)

    def to_keep(self) -> bytes:
        mine = self.span.get_span_context()
        return b"%b%b%c" % (mine.trace_id.to_bytes(16), mine.span_id.to_bytes(8), mine.trace_flags)

    def begin_back(self, backend: str, method: str, name: str | None, *, trusts: bool) -> "ClientSpan":
        attributes = {**_about(method, name), "callboard.server": backend}
        named = f"{method} {clip(name)}" if name is not None and method in _NAMES else method
        span = self._tracer.start_span(named, context=self.context, kind=SpanKind.CLIENT, attributes=attributes)
        return ClientSpan(span, self._baggage if trusts else "")

    def begin_question(self, method: str) -> "ClientSpan":
        attributes = {"mcp.method.name": method}
        return ClientSpan(
            self._tracer.start_span(method, context=self.context, kind=SpanKind.CLIENT, attributes=attributes), ""
        )

    def answered(self, outcome: Outcome | Exception) -> None:
        self._outcome = outcome

    def end(self, error: str) -> None:
        span, outcome = self.span, self._outcome
        self._outcome = None  # it may be large
        if span.is_recording():
            if outcome is not None and _asks(outcome):
                span.set_attribute("callboard.result_type", _INPUT_REQUIRED)
            if error and error not in (TOOL_ERROR, CANCELLED):
                span.set_attribute("rpc.response.status_code", error)
            if error and error not in CALLERS_FAULT:
                span.set_attribute("error.type", error)
            if error and error != CANCELLED and error not in CALLERS_FAULT:
                span.set_status(Status(StatusCode.ERROR, _told(outcome)))
        span.end()


class ClientSpan:
    """A `BackSpan`."""

    __slots__ = ("_baggage", "_headers", "_span")

    def __init__(self, span: Span, baggage: str) -> None:
        self._span = span
        self._baggage = baggage
        self._headers: dict[str, str] | None = None

    @property
    def _carried(self) -> dict[str, str]:
        if self._headers is None:
            mine = self._span.get_span_context()
            self._headers = {"traceparent": f"00-{mine.trace_id:032x}-{mine.span_id:016x}-{mine.trace_flags:02x}"}
            if mine.trace_state:
                self._headers["tracestate"] = mine.trace_state.to_header()
            if self._baggage:
                self._headers["baggage"] = self._baggage
        return self._headers

    @property
    def headers(self) -> TraceHeaders:
        return [(key.encode(), value.encode("ascii")) for key, value in self._carried.items()]

    def put_into(self, meta: Mapping[str, Raw] | Raw) -> Mapping[str, Raw]:
        members = read_members(meta) if isinstance(meta, Raw) else meta
        rest = {key: value for key, value in members.items() if key not in TRACE_KEYS}
        return {**rest, **{key: raw(value) for key, value in self._carried.items()}}

    def reached(self, revision: Revision, *, is_http: bool) -> None:
        self._span.set_attribute("mcp.protocol.version", revision.value)
        if is_http:
            self._span.set_attributes({"network.transport": "tcp", "network.protocol.name": "http"})

    def end(self, outcome: Outcome | Exception | None) -> None:
        span = self._span
        if span.is_recording():
            error = ""
            if outcome is None:
                span.set_attribute("error.type", CANCELLED)
            elif isinstance(outcome, Exception):
                error = _FAILURES.get(type(outcome)) or error_type(outcome)
                if error.removeprefix("-").isdigit():
                    span.set_attribute("rpc.response.status_code", error)
            elif not isinstance(outcome, str) and has_failed(outcome):
                error = TOOL_ERROR
            elif _asks(outcome):
                span.set_attribute("callboard.result_type", _INPUT_REQUIRED)
            if error:
                span.set_attribute("error.type", error)
                span.set_status(Status(StatusCode.ERROR, _told(outcome)))
        span.end()


def _about(method: str, name: str | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {"mcp.method.name": method}
    if name is not None and method in _NAMES:
        attributes[_NAMES[method]] = clip(name)
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    return attributes


def _under(parent: SpanContext | None) -> Context:
    """The context of a child of *parent*: never the ambient one."""
    return _NO_PARENT if parent is None else api.set_span_in_context(api.NonRecordingSpan(parent), _NO_PARENT)


def _asks(outcome: Outcome | Exception) -> bool:
    if isinstance(outcome, Forwarded):
        return bytes(outcome.members.get("resultType", b"")) == b'"input_required"'
    return isinstance(outcome, InputRequiredResult)


def _told(outcome: Outcome | Exception | None) -> str | None:
    """What an error says, in words of our own: those of a backend, or of a handler, may quote arguments."""
    if isinstance(outcome, BackendRefused):
        return None
    return clip(str(outcome)) if isinstance(outcome, (PeerError, RequestFailed)) else None


def find_tracer() -> api.Tracer | None:
    """The tracer of the SDK that was set up in this process; None if none was."""
    provider = api.get_tracer_provider()
    if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return None
    return provider.get_tracer("callboard", __version__)


def current_ids() -> Mapping[str, str]:
    """The ids of the current span, for log lines."""
    span = api.get_current_span().get_span_context()
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}


async def flush() -> None:
    """Have the exporter send what it has not sent yet: in a thread, and not for long."""
    force_flush = getattr(api.get_tracer_provider(), "force_flush", None)
    if force_flush is not None:
        with trio.move_on_after(FLUSH_TIME):
            await trio.to_thread.run_sync(force_flush, int(FLUSH_TIME * 1000), abandon_on_cancel=True)
