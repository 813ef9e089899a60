"""A server that is traced: its own span below that of the request, which is below that of the client.

python examples/traced.py
callboard run examples/traced.py --http 8000 --trace        # spans are in spans.jsonl

The SDK of OpenTelemetry is set up here, with an exporter to a file. With `opentelemetry-instrument` in front of the
command, nothing of that is needed.
"""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from callboard import Server, connect
from callboard.serve import serve

SPANS = Path(os.environ.get("SPANS", "spans.jsonl"))


def set_up() -> None:
    """A line of JSON in the file for each span. A server with much to do wants a `BatchSpanProcessor`."""
    exporter = ConsoleSpanExporter(out=SPANS.open("w"), formatter=lambda span: span.to_json(indent=None) + "\n")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


set_up()
tracer = trace.get_tracer("weather")
server = Server("weather")


@server.tool
async def forecast(city: str) -> str:
    """Weather for tomorrow."""
    with tracer.start_as_current_span("look out of the window"):
        await trio.sleep(0.01)
    return f"Sunny in {city}."


async def main() -> None:
    enough = trio.Event()
    async with trio.open_nursery() as nursery:
        ready = await nursery.start(partial(serve, server, http="127.0.0.1:0", trace=True, until=enough.wait))
        async with connect(ready.listening[0].url, headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}) as client:
            await client.call("forecast", city="Oslo")
        enough.set()


def show(spans: list[dict[str, Any]], parent: str, depth: int = 0) -> None:
    for span in sorted(spans, key=lambda span: span["start_time"]):
        if span["parent_id"] == parent:
            print("  " * depth + span["name"])
            show(spans, span["context"]["span_id"], depth + 1)


if __name__ == "__main__":
    trio.run(main)
    show([json.loads(line) for line in SPANS.read_text().splitlines()], "0x" + "b" * 16)
