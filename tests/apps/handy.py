"""A server for the files, flags and descriptions of client commands."""

import hashlib
import sys
from typing import Annotated, Literal

import attrs
from msgspec import Meta

from callboard import Audio, Context, Doc, Image, Server

server = Server("handy", version="1")

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
SOUND = b"RIFF" + bytes(100)


@attrs.frozen
class Point:
    x: int
    y: int = 0


@server.tool
async def digest(data: bytes) -> str:
    """The hash of some bytes."""
    return hashlib.sha256(data).hexdigest()


@server.tool
async def size(text: str) -> str:
    """How long a text is."""
    return str(len(text))


@server.tool(read_only=True)
async def plot(
    points: list[Point],
    colour: Annotated[Literal["red", "green"], Doc("Of the line.")] = "red",
    width: Annotated[float, Meta(gt=0, le=10)] = 1.5,
) -> Point:
    """Plots points.

    All of them.
    """
    return points[-1]


@server.tool
async def media() -> list[Image | Audio | str]:
    """A picture, a sound and a text."""
    return [Image(PICTURE, mime_type="image/png"), Audio(SOUND, mime_type="audio/wav"), "and a text"]


@server.tool
async def talk(*, ctx: Context) -> str:
    """Logs, and writes to standard error."""
    print("on standard error", file=sys.stderr, flush=True)  # noqa: T201  # what the test is about
    await ctx.log("info", "on the log")
    await ctx.log("debug", {"detail": 1})
    return "done"


@server.tool
async def ask(question: str, *, ctx: Context) -> str:
    """Asks the model."""
    return (await ctx.sample(question, max_tokens=10)).text


@server.tool
async def folders(*, ctx: Context) -> str:
    """The roots of the client."""
    return " ".join(root.uri for root in await ctx.roots())


@server.prompt
def travel(start: str, to: str) -> str:
    """A journey."""
    return f"From {start} to {to}."


@server.completion("travel", "to")
async def places(value: str, start: str = "") -> list[str]:
    """Cities, but for the one where the journey starts."""
    return [city for city in ("Oslo", "Bergen", "Odda") if city.startswith(value) and city != start]
