"""Spans of a process, a line of JSON for each. Needs nothing but the SDK: other people's software uses it, too."""

from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor


def write_spans(path: str) -> None:
    """Have all spans of this process written to the end of the file."""

    def line(span: ReadableSpan) -> str:
        return str(span.to_json(indent=None)) + "\n"

    file = Path(path).open("a", buffering=1)  # noqa: SIM115 -- until the process ends
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=file, formatter=line)))
    trace.set_tracer_provider(provider)
