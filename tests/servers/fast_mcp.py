"""The stage on PyPI's fastmcp 4. Runs in its environment: `python fast_mcp.py stdio`, or `http PORT`."""

import importlib
import sys
from typing import Any

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)

server = FastMCP("stage", version="4")
cancelled: set[str] = set()

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


async def echo(text: str) -> str:
    return text


async def fail() -> str:
    raise ToolError("it did not work")


async def count(to: int, pause: float, ctx: Context) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"step {number}")
        await anyio.sleep(pause)
    return f"counted to {to}"


async def linger(tag: str, ctx: Context) -> str:
    try:
        await ctx.report_progress(1)
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        cancelled.add(tag)
        raise
    return "stayed"


async def was_cancelled(tag: str) -> str:
    with anyio.move_on_after(5):
        while tag not in cancelled:  # noqa: ASYNC110 - an event for each would say no more
            await anyio.sleep(0.02)
    return "cancelled" if tag in cancelled else "still there"


def asking(ctx: Context, key: str, request: Any) -> Any:
    """The answer, or the question, in the words of the modern era."""
    given = (ctx.input_responses or {}).get(key)
    return InputRequiredResult(input_requests={key: request}) if given is None else given


async def ask(ctx: Context) -> Any:
    if not ctx._is_modern_protocol():
        answer = await ctx.elicit("Who?", str)
        return f"hello {answer.data}"
    form = ElicitRequestFormParams(message="Who?", requested_schema=FORM)
    answer = asking(ctx, "who", ElicitRequest(params=form))
    return answer if isinstance(answer, InputRequiredResult) else f"hello {answer.content['name']}"


async def think(ctx: Context) -> Any:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="What?"))
    if not ctx._is_modern_protocol():
        said = await ctx.session.create_message([message], max_tokens=10)
        return said.content.text
    params = CreateMessageRequestParams(messages=[message], max_tokens=10)
    said = asking(ctx, "what", CreateMessageRequest(params=params))
    return said if isinstance(said, InputRequiredResult) else said.content.text


async def look(ctx: Context) -> Any:
    if not ctx._is_modern_protocol():
        return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)
    found = asking(ctx, "where", ListRootsRequest())
    return found if isinstance(found, InputRequiredResult) else " ".join(str(root.uri) for root in found.roots)


async def note() -> str:
    return "remember the milk"


async def invite(guest: str) -> str:
    return f"Dear {guest}"


# Not by decorators: the library is not installed where types are checked.
for tool in (echo, fail, count, linger, was_cancelled):
    server.tool(tool)
for asking_tool in (ask, think, look):
    server.tool(asking_tool, output_schema=None)
server.resource("stage://note")(note)
server.prompt(invite)

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio", show_banner=False)
    else:
        app = server.http_app()
        importlib.import_module("uvicorn").run(app, port=int(sys.argv[2]), log_level="warning", ws="none")
