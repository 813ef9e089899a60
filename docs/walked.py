"""The server that `walks.py` calls: a tool that answers, a tool that asks, a resource that changes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from callboard import Context, Server

PERIOD = 0.3
"""Seconds between two changes of the resource."""


@asynccontextmanager
async def ticking(server: Server) -> AsyncIterator[None]:
    async def tick() -> None:
        while True:
            await trio.sleep(PERIOD)
            server.notify_updated("walk://clock")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        yield
        nursery.cancel_scope.cancel()


server = Server("walked", version="1", lifespan=ticking)


@attrs.frozen
class Person:
    name: str


@server.tool
async def now() -> str:
    """Answer at once."""
    return "now"


@server.tool
async def greet(*, ctx: Context) -> str:
    """Ask for a name, and answer it."""
    return f"Hello, {(await ctx.elicit('Who?', Person)).name}"


@server.resource("walk://clock")
async def clock() -> str:
    """A resource that changes by itself."""
    return "tick"
