# A server
from callboard import Server

server = Server("shop", version="1.0")


# A tool
@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# An argument with a description
from typing import Annotated


@server.tool
async def greet(name: Annotated[str, "Of the person to greet."]) -> str:
    """Say hello."""
    return f"Hello {name}"


# An argument with limits
from callboard.server import Meta


@server.tool
async def dice(sides: Annotated[int, Meta(ge=2, le=100)] = 6) -> int:
    """The most that a die can show."""
    return sides


# A result with a schema
from msgspec import Struct


class Price(Struct):
    amount: float
    currency: str = "EUR"


@server.tool
async def price(item: str) -> Price:
    """What an item costs."""
    return Price(9.5)


# A failure that the model reads
from callboard import ToolError


@server.tool
async def buy(item: str) -> str:
    """Buy an item."""
    raise ToolError(f"{item} is sold out")


# A picture
from callboard import Image


@server.tool
async def logo() -> Image:
    """The logo."""
    return Image(b"\x89PNG\r\n\x1a\n")


# A function that blocks, in a thread
import time


@server.tool
def wait(seconds: float) -> str:
    """Wait a while."""
    time.sleep(seconds)
    return "done"


# Progress
from callboard import Context


@server.tool
async def pack(items: list[str], *, ctx: Context) -> int:
    """Pack items, one after the other."""
    return len([item async for item in ctx.progress(items)])


# A log message to the client
@server.tool
async def check(*, ctx: Context) -> str:
    """Look at the stock."""
    await ctx.log("info", "looking")
    return "ok"


# A question to the user
class Address(Struct):
    street: str


@server.tool
async def deliver(*, ctx: Context) -> str:
    """Deliver to an address."""
    return (await ctx.elicit("Where to?", Address)).street


# A hint that a tool only reads
@server.tool(read_only=True)
async def stock() -> int:
    """How much is there."""
    return 3


# A resource
@server.resource("shop://hours", mime_type="text/plain")
async def hours() -> str:
    """When the shop is open."""
    return "9 to 5"


# A template of resources
@server.resource("shop://items/{name}", mime_type="text/plain")
async def item(name: str) -> str | None:
    """An item; None if there is no such item."""
    return {"tea": "Assam"}.get(name)


# A prompt
@server.prompt
def slogan(product: str) -> str:
    """Have a slogan written."""
    return f"Write a slogan for {product}."


# Completion of an argument
@server.completion("slogan", "product")
async def products(value: str) -> list[str]:
    return [name for name in ("tea", "toast") if name.startswith(value)]


# A tool that comes and goes while the server runs
@server.tool
async def open_sale() -> str:
    """Add a tool; clients are told."""

    @server.tool(name="bargain")
    async def bargain() -> str:
        return "half the price"

    return "open"


# Something that all calls share
from contextlib import asynccontextmanager


@asynccontextmanager
async def lifespan(server):
    yield {"database": "connected"}


shared = Server("shared", lifespan=lifespan)


@shared.tool
async def database(*, ctx: Context) -> str:
    return ctx.lifespan["database"]


# A call from a client in the same process
from callboard import connect


async def call():
    async with connect(server) as client:
        return (await client.call("add", a=1, b=2)).structured_content


# Serving over HTTP
def serve():
    server.run(http="127.0.0.1:8000")
