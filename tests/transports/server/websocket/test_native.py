"""What only callboard's own door can do: it reads frames and sees pongs, and the tree has its connections."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.codecs.revisions.revision import R4
from tests.transports.server.websocket.company import company, drop, refusal, resume
from tests.transports.server.websocket.stage import OPENING, Gone, back, house, request, session_of, socket_of
from tests.transports.server.websocket.wires import MemoryWire


async def test_a_pong_acknowledges_what_was_sent_before_its_ping_and_it_is_let_go(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await client.call("greet")
        assert here.sessions()[0].facts["kept"] == 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.hear)
            await trio.sleep(here.settings.ping_every + 1)
            nursery.cancel_scope.cancel()
        assert socket_of(client).pings == [b"2"]
        assert here.sessions()[0].facts["kept"] == 0
        await drop(client)
        assert (await refusal(here, back(session_of(client), 1)))[0] == 404
        assert (await resume(here, client, 2))["replayed"] == 0


async def test_the_tree_shows_every_socket_and_its_session(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()
        (connection,) = here.connections()
        assert (connection.kind, connection.state) == ("HttpConnection", "websocket")
        (session,) = here.sessions()
        assert connection.facts["session"] == session.path
        assert session.facts["revision"] == R4.value
        assert (session.facts["socket"], session.facts["sent"], session.facts["received"]) == ("open", 1, 2)
        assert session_of(client) not in repr(here.host.root.tree())  # whoever has it may come back


async def test_whoever_is_being_told_what_he_missed_hears_no_more_of_it_when_another_takes_over(
    autojump_clock: MockClock,
) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        for _ in range(20):
            await client.request("ping")
        second, _ = here.connect()
        assert isinstance(second.wire, MemoryWire)
        second.wire.incoming.stalls_at = 1  # the answer to the handshake gets through, and no more
        headers = {**OPENING, **back(session_of(client), 1)}
        await second.open(request(headers))
        assert (await second.hear())["params"]["replayed"] == 20
        third = await here.dial(back(session_of(client), 21))
        assert (await third.hear())["params"]["replayed"] == 0
        second.wire.incoming.flow()
        assert await second.hear()  # which was on its way
        with pytest.raises(Gone, match="4001"):
            await second.hear()
        await third.say({"id": "x", "method": "ping"})
        assert (await third.hear())["id"] == "x"
