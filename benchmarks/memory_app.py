"""What callboard hosts in `memory.py`: tools by which a client can make a server hold something.

callboard run benchmarks/memory_app.py --http 0 --ws 0 --json
"""

import attrs
import trio

from callboard import Context, Server

server = Server("memory")


@attrs.define
class Nothing:
    """A form with one answer in it."""

    sure: bool = True


@server.tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@server.tool
async def large(size: int, ctx: Context) -> str:
    """Report progress, so that the answer is a stream, and answer with so many bytes."""
    await ctx.report(1)
    return "x" * size


@server.tool
async def wait(ctx: Context, text: str = "") -> str:
    """Never answer."""
    await trio.sleep_forever()
    raise AssertionError


@server.tool
async def ask(ctx: Context, text: str = "") -> str:
    """Ask the client's user."""
    await ctx.elicit("Really?", Nothing)
    return "ok"


@server.resource("memory://{name}")
async def anything(name: str) -> str:
    """A resource for every URI."""
    return name
