"""A second socket for a session that has one: it takes over, whatever the first was in the middle of."""

from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.codecs.caller import ANONYMOUS
from callboard.codecs.revisions.revision import R4
from callboard.transports.server.http.upgraded import Reading
from callboard.transports.server.websocket.socket import WebSocketConnection
from tests.server.test_one_handler_every_revision import text
from tests.transports.server.websocket.company import company, resume, wait_in_both_eras, wire_of
from tests.transports.server.websocket.stage import house, masked, session_of, socket_of
from tests.transports.server.websocket.wires import wire_pair

pytestmark = pytest.mark.usefixtures("door")


async def test_a_second_socket_takes_over_and_the_first_is_told(autojump_clock: MockClock) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(R4)
        call = await client.begin("tools/call", name="wait", arguments={"name": "a"})
        await wait_all_tasks_blocked()
        first = socket_of(client)
        assert await resume(here, client, 1) == {"received": 3, "replayed": 0}
        await first.say({"id": 77, "method": "ping"})  # nobody hears that any more
        assert (await first.wait_gone()).code == 4001
        await first.write(bytes([0x88, 0x82]) + b"\0\0\0\0" + (4001).to_bytes(2, "big"))
        assert await first.is_at_end()
        first.close()
        seen.go.set()
        assert text(await client.finish(call)) == "a waited"
        assert (len(here.door), len(here.sessions()), len(here.connections())) == (1, 1, 1)
        assert trio.current_time() == 0


async def test_what_the_old_socket_says_in_the_moment_of_the_takeover_does_not_count(
    autojump_clock: MockClock,
) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()
        old, new = wire_of(client), wire_pair()[1]
        old.outgoing.put(masked(1, b'{"jsonrpc":"2.0","id":9,"method":"ping"}'))  # read, and not looked at yet
        conversation = here.door._returned(session_of(client), ANONYMOUS, 1)
        conversation.claim(WebSocketConnection(new, conversation, here.door.settings, cast("Reading", None)))
        await wait_all_tasks_blocked()
        assert here.sessions()[0].facts["received"] == 2
        assert (await socket_of(client).wait_gone()).code == 4001


async def test_modern_requests_of_the_first_end_with_it(autojump_clock: MockClock) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await wait_in_both_eras(client)
        await resume(here, client, 1)
        await wait_all_tasks_blocked()
        assert seen.cancelled == ["modern"]


async def test_what_the_first_was_in_the_middle_of_is_finished(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()
        first = socket_of(client)
        wire_of(client).incoming.is_stalled = True
        for number in range(2000):  # more than may wait: the server's reader is stuck in the middle of one
            await client.say({"id": 1000 + number, "method": "ping"})
        await wait_all_tasks_blocked()
        told = await resume(here, client, 1)
        assert 1000 < told["received"] < 2000
        answers = [(await client.hear())["id"] for _ in range(told["received"] - 2)]
        assert answers == list(range(1000, 1000 + len(answers)))
        await client.request("ping")
        assert not client.heard
        first.close()
