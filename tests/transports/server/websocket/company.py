"""A server whose tools wait until they may go on, and clients that come back to it."""

from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard import Context, Server
from callboard.codecs.revisions.revision import LATEST
from callboard.testing import Peer
from callboard.transports.server.websocket.resumable import RESUMED
from tests.transports.server.websocket.stage import House, Refused, back, session_of, socket_of
from tests.transports.server.websocket.wires import MemoryWire

Json = dict[str, Any]


@attrs.define(eq=False)
class Seen:
    """What the tools of `company` have come to, and when they may go on."""

    begun: list[str] = attrs.field(factory=list)
    cancelled: list[str] = attrs.field(factory=list)
    go: trio.Event = attrs.field(factory=trio.Event)


def company() -> tuple[Server, Seen]:
    server, seen = Server("company", version="1", offers=["resources"]), Seen()

    @server.tool
    async def wait(name: str, *, ctx: Context) -> str:
        seen.begun.append(name)
        try:
            await seen.go.wait()
        except trio.Cancelled:
            seen.cancelled.append(name)
            raise
        return f"{name} waited"

    @server.tool
    async def ask(*, ctx: Context) -> str:
        return (await ctx.sample("?", max_tokens=9)).text

    @server.tool
    async def greet(name: str = "you") -> str:
        return f"hello {name}"

    return server, seen


def wire_of(client: Peer) -> MemoryWire:
    wire = socket_of(client).wire
    assert isinstance(wire, MemoryWire)
    return wire


def modern_beside(client: Peer) -> Peer:
    """A client of the modern era on the connection of *client*, with ids of its own."""
    modern = Peer(client.connection, LATEST)
    modern._ids = iter(range(100, 200))  # type: ignore[assignment]  # a range is enough
    return modern


async def wait_in_both_eras(client: Peer) -> None:
    """Have a tool of `company` wait for *client*, and another for a modern client on the same connection."""
    modern = modern_beside(client)
    await client.begin("tools/call", name="wait", arguments={"name": "legacy"})
    await modern.begin("tools/call", name="wait", arguments={"name": "modern"})
    await wait_all_tasks_blocked()


async def drop(client: Peer) -> None:
    """Cut the connection, without a word."""
    socket_of(client).close()
    await wait_all_tasks_blocked()


async def resume(here: House, client: Peer, received: int) -> Json:
    """Come back with the same session; what the server says of it is returned."""
    client.connection = await here.dial(back(session_of(client), received))  # type: ignore[assignment]  # as `as_peer`
    told = await socket_of(client).hear()
    assert told["method"] == RESUMED
    assert socket_of(client).headers["mcp-received"] == str(told["params"]["received"])
    params: Json = told["params"]
    return params


async def refusal(here: House, headers: dict[str, str]) -> tuple[int, bytes]:
    with pytest.raises(Refused) as refused:
        await here.dial(headers)
    return refused.value.status, refused.value.body
