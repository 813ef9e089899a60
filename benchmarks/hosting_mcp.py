"""The tools of `hosting.py` on PyPI's `mcp` 2: applications for uvicorn in its environment, never in ours."""

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel


async def noop() -> str:
    """Do nothing."""
    return "ok"


async def echo(text: str) -> str:
    """Say it again."""
    return text


async def noop_streamed(ctx: Context) -> str:
    """Report progress once, so that the answer is a stream."""
    await ctx.report_progress(1)
    return "ok"


async def echo_streamed(text: str, ctx: Context) -> str:
    """Say it again, after progress."""
    await ctx.report_progress(1)
    return text


async def echo_ctx(text: str, ctx: Context) -> str:
    """Say it again, with a context that is not used."""
    return text


class Said(BaseModel):
    """What was said."""

    text: str


async def echo_model(text: str) -> Said:
    """Say it again, as structured content, too."""
    return Said(text=text)


def echo_def(text: str) -> str:
    """Say it again, from a thread."""
    return text


def _app(*tools: Any, is_json: bool, is_structured: bool = False) -> Any:
    server = MCPServer("bench", log_level="WARNING")
    for tool in tools:
        server.add_tool(tool, structured_output=is_structured or tool is echo_model)
    # Modern requests stand alone in any case; legacy ones get sessions.
    return server.streamable_http_app(json_response=is_json)


def json_app() -> Any:
    """The same answers as everybody's."""
    return _app(noop, echo, echo_ctx, echo_model, echo_def, is_json=True)


def sse_app() -> Any:
    """Answers in streams where the protocol lets it."""
    return _app(noop_streamed, echo_streamed, is_json=False)


def structured_app() -> Any:
    """As it comes: says every text a second time, as structured content."""
    return _app(noop, echo, is_json=True, is_structured=True)
