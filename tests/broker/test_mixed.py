"""Backends of several revisions behind one client, in one session."""

import pytest
from trio.testing import MockClock

from callboard import Context, Server
from callboard.codecs.revisions import ALL, Revision
from tests.broker.cells import client_of
from tests.broker.front import backend, brokered, ways_in

REVISIONS = sorted(ALL)


def asking(revision: Revision) -> Server:
    server = Server("asking", revisions=frozenset({revision}))

    @server.tool
    async def ask_model(*, ctx: Context) -> str:
        reply = await ctx.sample("Who are you?", max_tokens=9)
        return f"{ctx.revision}: {reply.text}"

    return server


@pytest.mark.parametrize("client_revision", REVISIONS)
async def test_one_client_uses_backends_of_all_revisions_in_one_session(
    client_revision: Revision, autojump_clock: MockClock
) -> None:
    specs = [backend(asking(revision), name=f"b{number}", prefix=None) for number, revision in enumerate(REVISIONS)]
    async with brokered(*specs) as host, client_of(ways_in(host), client_revision, []) as client:
        assert [tool.name for tool in await client.tools()] == [f"b{number}__ask_model" for number in range(5)]
        for number, revision in enumerate(REVISIONS):
            result = await client.call(f"b{number}__ask_model")
            assert result.content[0].text == f"{revision}: alas"  # type: ignore[union-attr]
