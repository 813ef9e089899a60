"""A server to put load on: what it does takes no time, but where it is asked to."""

import trio

from callboard import Server, ToolError

server = Server("steady", version="1.0.0")
turns = trio.CapacityLimiter(1)


@server.tool
async def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool(read_only=True)
async def now() -> str:
    """Only reads, and needs nothing."""
    return "now"


@server.tool
async def slow(seconds: float = 0.05) -> str:
    """Takes its time."""
    await trio.sleep(seconds)
    return "done"


@server.tool
async def turn() -> str:
    """Takes five milliseconds, one call at a time: its capacity is known."""
    async with turns:
        await trio.sleep(0.005)
    return "done"


@server.tool
async def fail() -> str:
    """Fails."""
    raise ToolError("it did not work")


@server.resource("steady://note")
async def note() -> str:
    """A note."""
    return "noted"
