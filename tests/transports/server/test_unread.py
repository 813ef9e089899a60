"""Answers that their clients do not read take up a bounded part of memory, on every way out."""

import pytest
import trio

from callboard import Context, Revision, Server
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Client, Place, serving, settle

MIB = 1024 * 1024


def talkative() -> Server:
    server = Server("talkative")

    @server.tool
    async def much() -> str:
        return "x" * MIB

    @server.tool
    async def much_in_a_task(*, ctx: Context) -> str:
        await trio.lowlevel.checkpoint()
        return "x" * MIB

    return server


async def begin(place: Place, session: OpenSession | None, tool: str) -> Client:
    """Call a tool on a connection of its own, and read nothing."""
    if session is not None:
        return await session.begin(tool)
    client = await place.connect()
    await client.send(client.modern("tools/call", name=tool, arguments={}))
    return client


@pytest.mark.finding("security-8", "faults-C3")
@pytest.mark.parametrize("tool", ["much", "much_in_a_task"])
@pytest.mark.parametrize("revision", [None, Revision.V2025_06_18])
async def test_answers_that_are_not_read_are_bounded_in_all(tool: str, revision: Revision | None) -> None:
    async with serving(talkative(), send_buffer=16_384) as place:
        place.host.unread.allow(4 * MIB, 2 * MIB)
        session = None if revision is None else await OpenSession.open(place, revision)
        deaf = [await begin(place, session, tool) for _ in range(2)]
        await settle()
        assert 2 * MIB < place.host.unread.total <= 4 * MIB
        client = await begin(place, session, tool)
        refused = await client.answer()
        assert refused.code == -31003
        for one in deaf:
            await one.aclose()
        await settle()
        assert place.host.unread.total == 0
        whole = await (await begin(place, session, tool)).answer()
        assert len(whole.result["content"][0]["text"]) == MIB
