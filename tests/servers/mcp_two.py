"""The stage on PyPI's mcp 2, which speaks both eras. Runs in its environment: `stdio`, or `http PORT`."""

import importlib
import sys
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.server.streamable_http import EventMessage, EventStore
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("stage", version="2", log_level="WARNING")
cancelled: set[str] = set()


class Name(BaseModel):
    name: str


class Events(EventStore):  # type: ignore[misc]  # the library is not installed where types are checked
    """What was said on every stream, in order."""

    def __init__(self) -> None:
        self._said: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._said.append((stream_id, message))
        return str(len(self._said) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        stream, _ = self._said[int(last_event_id)]
        for number, (where, message) in list(enumerate(self._said))[int(last_event_id) + 1 :]:
            if where == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


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


def who() -> Elicit[Name]:
    return Elicit("Who?", Name)


def what() -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text="What?"))], max_tokens=10)


def where() -> ListRoots:
    return ListRoots()


async def ask(person: Annotated[Name, Resolve(who)]) -> str:
    return f"hello {person.name}"


async def think(said: Annotated[CreateMessageResult, Resolve(what)]) -> str:
    return str(said.content.text)


async def look(found: Annotated[ListRootsResult, Resolve(where)]) -> str:
    return " ".join(str(root.uri) for root in found.roots)


async def touch(ctx: Context) -> str:
    if (ctx.protocol_version or "") >= "2026-07-28":
        await ctx.notify_resource_updated("stage://note")
        await ctx.notify_tools_changed()
    else:
        await ctx.session.send_resource_updated("stage://note")
        await ctx.session.send_tool_list_changed()
    return "touched"


async def note() -> str:
    return "remember the milk"


async def invite(guest: str) -> str:
    return f"Dear {guest}"


# Not by decorators: the library is not installed where types are checked.
for tool in (echo, fail, count, linger, was_cancelled, ask, think, look, touch):
    server.add_tool(tool)
server.resource("stage://note")(note)
server.prompt()(invite)

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        app = server.streamable_http_app(event_store=Events())
        importlib.import_module("uvicorn").run(app, port=int(sys.argv[2]), log_level="warning")
