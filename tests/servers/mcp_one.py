"""The stage on PyPI's mcp 1, of the legacy era. Runs in its environment: `stdio`, `http PORT`, or `sse PORT`."""

import sys
from typing import Any

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.types import SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel

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


port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
server = FastMCP("stage", log_level="WARNING", port=port, event_store=Events())


async def echo(text: str) -> str:
    return text


async def fail() -> str:
    raise ValueError("it did not work")


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


async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Name)
    return f"hello {answer.data.name}" if answer.action == "accept" else answer.action


async def think(ctx: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="What?"))
    said = await ctx.session.create_message([message], max_tokens=10)
    return str(said.content.text)


async def look(ctx: Context) -> str:
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


async def touch(ctx: Context) -> str:
    await ctx.session.send_resource_updated(AnyUrl("stage://note"))
    await ctx.session.send_tool_list_changed()
    return "touched"


async def subscribe(uri: AnyUrl) -> None: ...


async def unsubscribe(uri: AnyUrl) -> None: ...


async def note() -> str:
    return "remember the milk"


async def invite(guest: str) -> str:
    return f"Dear {guest}"


# Not by decorators: the library is not installed where types are checked.
for tool in (echo, fail, count, linger, was_cancelled, ask, think, look, touch):
    server.add_tool(tool)
server.resource("stage://note")(note)
server.prompt()(invite)
server._mcp_server.subscribe_resource()(subscribe)
server._mcp_server.unsubscribe_resource()(unsubscribe)

if __name__ == "__main__":
    server.run({"stdio": "stdio", "http": "streamable-http", "sse": "sse"}[sys.argv[1]])
