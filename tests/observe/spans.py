"""Spans in memory, and servers and brokers that make them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from callboard.actors.server.host import Host
from callboard.config import BackendSpec
from callboard.observe.tracing import Accept, Tracing
from callboard.server import Server
from tests.broker.front import brokered

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID, PARENT_ID = PARENT.split("-")[1:3]
HEADER_PARENT = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203332-01"


@attrs.define(eq=False)
class Spans:
    """All spans that have ended."""

    exporter: InMemorySpanExporter = attrs.field(factory=InMemorySpanExporter)
    provider: TracerProvider = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def trace(self, host: Host, accept: Accept = "always") -> Tracing:
        """From now on."""
        tracing = Tracing(self.provider.get_tracer("test"), host.offer.owner_of, accept, host.observer)
        host.observer = host.tracer = tracing
        return tracing

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self.exporter.get_finished_spans())

    def of(self, kind: SpanKind, begin: str = "") -> list[ReadableSpan]:
        return [span for span in self if span.kind is kind and span.name.startswith(begin)]

    @property
    def front(self) -> ReadableSpan:
        """The one of a client's request."""
        (found,) = self.of(SpanKind.SERVER)
        return found

    @property
    def back(self) -> ReadableSpan:
        """The one of what was asked of a backend, or of a client."""
        (found,) = self.of(SpanKind.CLIENT)
        return found


def ids(span: ReadableSpan) -> tuple[str, str]:
    """Of its trace, and its own."""
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def links_of(span: ReadableSpan) -> list[str]:
    return [f"{link.context.span_id:016x}" for link in span.links]


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@asynccontextmanager
async def traced_server(server: Server, accept: Accept = "always") -> AsyncIterator[tuple[Host, Spans]]:
    spans = Spans()
    async with server.host() as host:
        spans.trace(host, accept)
        yield host, spans


@asynccontextmanager
async def traced_broker(*backends: Any, accept: Accept = "always") -> AsyncIterator[tuple[Host, Spans]]:
    spans = Spans()
    some: tuple[BackendSpec, ...] = backends
    async with brokered(*some) as host:
        spans.trace(host, accept)
        yield host, spans
