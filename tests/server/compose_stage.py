"""A shop and a mall: servers with one handler of each kind, of which one is mounted in the other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from callboard import Context, Server, ToolError
from callboard.codecs.revisions import ALL, LATEST

EACH = pytest.mark.parametrize("revision", sorted(ALL))
OLD = max(one for one in ALL if one.dialect.has_sessions and one.dialect.has_structured_content)
BOTH = pytest.mark.parametrize("revision", [OLD, LATEST])


@attrs.frozen
class Size:
    size: int


def shop(name: str = "shop", **options: Any) -> Server:
    """A server with one of each kind, and a value of its lifespan."""

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[str]:
        yield f"lifespan of {name}"

    server = Server(name, lifespan=lifespan, **options)

    @server.tool(title="Buy it")
    async def buy(item: str, ctx: Context) -> str:
        return f"{item}: {ctx.target}, {ctx.lifespan}"

    @server.tool
    async def broken() -> str:
        raise LookupError("a secret")

    @server.tool
    async def refused() -> str:
        raise ToolError("sold out")

    @server.resource(f"{name}://one", mime_type="text/plain")
    async def one(ctx: Context) -> str:
        return str(ctx.lifespan)

    @server.resource(f"{name}://item/{{number}}")
    async def item(number: int) -> str:
        return str(number)

    @server.prompt
    async def advertise(about: str) -> str:
        return f"Praise {about}"

    @server.completion("advertise", "about")
    async def about(value: str) -> list[str]:
        return [f"{value}!"]

    @server.completion(f"{name}://item/{{number}}", "number")
    async def number(value: str) -> list[str]:
        return [f"{value}0"]

    return server


def mall(other: Server | None = None, prefix: str | None = "shop", **options: Any) -> Server:
    server = Server("mall", **options)

    @server.tool
    async def hours(ctx: Context) -> str:
        return f"9 to 5, {ctx.lifespan}"

    server.mount(other or shop(), prefix=prefix)
    return server


async def names(client: Any, kind: str = "tools") -> list[str]:
    found = await client.request(f"{kind}/list")
    return [one["name"] for one in found[kind]]


def text(result: Any) -> str:
    return str(result["content"][0]["text"])
