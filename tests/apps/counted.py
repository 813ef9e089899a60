"""A backend that must exist once: it counts, says which process it is, asks, reports, and can be followed."""

import os

import attrs
import trio

from callboard import Context, Server

server = Server("counted")
counted: list[str] = []


@attrs.frozen
class Name:
    name: str


@server.tool
async def count() -> list[int]:
    """How often this was called, and the process."""
    counted.append("once more")
    return [len(counted), os.getpid()]


@server.tool
async def ask(*, ctx: Context) -> str:
    return f"{os.getpid()} {(await ctx.elicit('Who?', Name)).name}"


@server.tool
async def slow(steps: int, *, ctx: Context) -> int:
    """Reports each step, and is held up between them."""
    for step in range(steps):
        await ctx.report(step + 1, total=steps)
        await trio.sleep(0.05)
    return os.getpid()


@server.tool
async def wait(seconds: float) -> int:
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        counted.append("cancelled")
        raise
    return os.getpid()


@server.tool
async def cancelled() -> int:
    return counted.count("cancelled")


@server.resource("note://today")
async def today() -> str:
    return f"{len(counted)}"


@server.tool
async def change() -> int:
    server.notify_updated("note://today")
    return os.getpid()
