"""A server that is run by several workers: its tools say which one they run in."""

import os

import attrs
import trio

from callboard import Context, Rate, Server

server = Server("many", rates={"prompts/list": Rate(20, per=600.0)}, offers=["prompts"])


@attrs.frozen
class Name:
    name: str


@server.tool
async def where() -> int:
    """The worker's process id."""
    return os.getpid()


@server.tool
async def wait(seconds: float, *, ctx: Context) -> int:
    await trio.sleep(seconds)
    return os.getpid()


ticked = list[int]()


@server.tool
async def tick(number: int, *, ctx: Context) -> list[int]:
    """Says two things on the way; returns the numbers of all calls that this worker has run."""
    ticked.append(number)
    for step in range(2):
        await ctx.log("info", [number, step])
        await trio.sleep(0.002)
    return ticked


@server.tool
async def ask(*, ctx: Context) -> str:
    return f"{os.getpid()} {(await ctx.elicit('Who?', Name)).name}"


@server.tool
async def tell(*, ctx: Context) -> int:
    """Tells all who listen, at any worker, that the list of tools has changed."""
    server.notify_changed("tools")
    return os.getpid()


@server.tool
async def grow() -> str:
    """Tries to add a tool while it runs."""
    try:
        server.tool(name="late")(where)
    except RuntimeError as error:
        return str(error)
    return "added"
