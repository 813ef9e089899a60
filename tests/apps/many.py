"""A server that is run by several workers: its tools say which one they run in."""

import os
import time
from pathlib import Path

import attrs
import trio

from callboard import Context, InputRequired, Rate, Server

RATES = {"prompts/list": Rate(100, per=60.0)}

server = Server("many", rates=RATES, offers=["prompts"])


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


@server.tool
async def note(file: str, name: str, seconds: float = 0.0) -> int:
    """Writes down that it was called, for those who count how often each call is run."""
    with Path(file).open("a") as notes:  # noqa: ASYNC230  # a line is written at once, whichever process does it
        notes.write(f"{name}\n")
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
async def tell_when() -> float:
    """The same; returns the time of the change, on the clock that all processes of a machine share."""
    at = time.monotonic()
    server.notify_changed("tools")
    return at


@server.tool
async def pour(pieces: int, *, ctx: Context) -> str:
    """Says 64 KiB so many times."""
    for _ in range(pieces):
        await ctx.log("info", "x" * 65_536)
    return "done"


@server.tool
async def size_of(text: str) -> int:
    return len(text)


@server.tool
async def once(*, ctx: Context) -> str | InputRequired:
    """Gives its client a state to keep, which can be used once."""
    question = ctx.elicit("Who?", Name, key="who")
    answered = ctx.answered(question)
    return InputRequired([question], state=1) if answered is None else answered.name


@server.tool
async def grow() -> str:
    """Tries to add a tool while it runs."""
    try:
        server.tool(name="late")(where)
    except RuntimeError as error:
        return str(error)
    return "added"
