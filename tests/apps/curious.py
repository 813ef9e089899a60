"""A server for the commands of a client: it asks, reports, fails, hangs, and offers things to look at."""

import base64
from typing import Annotated, Literal

import attrs
import msgspec
import trio

from callboard import Blob, Context, Image, Server, ToolError

server = Server("curious", version="1.2.3", instructions="Ask me anything.")


@attrs.frozen
class Person:
    name: Annotated[str, msgspec.Meta(min_length=2)]
    age: Annotated[int, msgspec.Meta(ge=0, le=150)]
    member: bool = False
    colour: Literal["red", "green"] = "green"


@server.tool
async def echo(text: str, times: int = 1) -> str:
    """Says it again.

    As often as it is told to.
    """
    return " ".join([text] * times)


@server.tool
async def add(numbers: list[float], exact: bool = False) -> float:
    """Adds numbers."""
    return sum(numbers)


@server.tool
async def fail() -> str:
    """Fails."""
    raise ToolError("it did not work")


@server.tool
async def greet(*, ctx: Context) -> str:
    """Asks who is there."""
    person = await ctx.elicit("Who are you?", Person)
    return f"{person.name} is {person.age}, {'' if person.member else 'not '}a member, and likes {person.colour}"


@server.tool
async def sign_in(url: str = "https://example.org/sign-in", *, ctx: Context) -> str:
    """Wants a page to be visited."""
    await ctx.elicit_url("Sign in to go on", url)
    return "signed in"


@server.tool
async def count(to: int, pause: float = 0.0, *, ctx: Context) -> str:
    """Counts, and says how far it is."""
    for number in range(1, to + 1):
        await ctx.report(number, total=to, message=f"step {number}")
        await trio.sleep(pause)
    return f"counted to {to}"


@server.tool
async def hang(*, ctx: Context) -> str:
    """Never answers."""
    await ctx.report(1, message="here")
    await trio.Event().wait()
    return ""


@server.tool
async def paint() -> Image:
    """A picture."""
    return Image(b"\x89PNG....", mime_type="image/png")


@server.tool
async def shout() -> str:
    """Tries to command the terminal."""
    return "\x1b[2Jgone\x07"


@server.tool
async def change(*, ctx: Context) -> str:
    """Tells that things have changed."""
    ctx.notify_updated("curious://note")
    ctx.notify_changed("tools")
    return "changed"


@server.resource("curious://note", mime_type="text/plain")
async def note() -> str:
    """A note."""
    return "remember the milk"


@server.resource("curious://bytes", mime_type="application/octet-stream")
async def some_bytes() -> Blob:
    """Some bytes."""
    return Blob(base64.b64decode("AAEC/w=="), mime_type="application/octet-stream")


@server.resource("curious://{topic}/about")
async def about(topic: str) -> str:
    """About anything."""
    return topic


@server.prompt
def brief(topic: str, style: str = "short") -> str:
    """A briefing."""
    return f"Tell me about {topic}, {style}."
