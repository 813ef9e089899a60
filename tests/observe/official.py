"""The official Python library (PyPI: mcp 2), which makes spans of its own, as a client and as a server. Runs in an
environment of its own.

official.py client SPANS URL MODE
official.py server SPANS
"""

import asyncio
import sys

from mcp import Client
from mcp.server import MCPServer
from opentelemetry import trace

from tests.observe.span_file import write_spans

server = MCPServer("official")


@server.tool()  # type: ignore[untyped-decorator]  # mypy does not see this environment
def add(a: int, b: int) -> int:
    return a + b


async def ask(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:
        with trace.get_tracer("agent").start_as_current_span("agent"):
            answer = await client.call_tool("official__add", {"a": 1, "b": 2})
        sys.stdout.write(answer.content[0].text + "\n")


if __name__ == "__main__":
    role, spans, *rest = sys.argv[1:]
    write_spans(spans)
    if role == "client":
        asyncio.run(ask(*rest))
    else:
        server.run()
