"""What a request makes is gone when it is over: nothing is left for the collector, which would stop everybody."""

from collections import Counter
from typing import Any

import pytest
import trio

from callboard import Context, Server, connect
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from tests.broker.front import backend, brokered, ways_in
from tests.garbage import COUNT, left_by
from tests.transports.server.http.stage import serving

ERAS = pytest.mark.parametrize("revision", [R4, R5])


def company() -> Server:
    server = Server("tidy")

    @server.tool
    async def echo(text: str = "hi") -> str:
        return text

    @server.tool
    async def wait() -> str:
        await trio.lowlevel.checkpoint()
        return "waited"

    @server.tool
    async def report(*, ctx: Context) -> str:
        async for _ in ctx.progress(range(2)):
            await ctx.log("info", "working")
        return "reported"

    return server


def test_what_is_left_is_seen() -> None:
    async def untidy() -> None:
        one: list[Any] = []
        one.append(one)
        await trio.lowlevel.checkpoint()

    async def main() -> Counter[str]:
        return await left_by(untidy)

    assert trio.run(main) == {"list": COUNT}


@ERAS
@pytest.mark.parametrize("tool", ["echo", "wait", "report"])
@pytest.mark.parametrize("is_brokered", [False, True])
async def test_a_call_leaves_nothing_to_collect(tool: str, is_brokered: bool, revision: Revision) -> None:
    hosted = brokered(backend(company())) if is_brokered else company().host()
    async with hosted as host, connect(ways_in(host), revision=revision.value) as client:
        assert await left_by(lambda: client.call(tool)) == {}


@pytest.mark.parametrize("tool", ["echo", "wait", "report"])
async def test_nor_does_one_over_http(tool: str) -> None:
    async with serving(company()) as place:
        client = await place.connect()
        assert await left_by(lambda: client.call(tool)) == {}
