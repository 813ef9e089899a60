"""Who may come back to a session, how he says so, and how much is kept for him."""

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.codecs.revisions.revision import R2, R4
from callboard.transports.limits import Settings
from callboard.transports.server.websocket.resumable import RESUMED
from tests.server.test_one_handler_every_revision import text
from tests.transports.server.websocket.company import company, drop, refusal, resume
from tests.transports.server.websocket.stage import back, house, session_of, socket_of

pytestmark = pytest.mark.usefixtures("door")


async def principal_of(token: str) -> str | None:
    return {"t-ada": "ada", "t-bob": "bob"}.get(token)


async def test_a_session_is_its_principals_alone_and_others_learn_nothing(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server, authenticate=principal_of) as here:
        ada, bob = {"Authorization": "Bearer t-ada"}, {"Authorization": "Bearer t-bob"}
        client = await here.peer(R4, headers=ada)
        foreign = await refusal(here, {**bob, **back(session_of(client), 1)})
        unknown = await refusal(here, {**bob, **back("x" * 32, 1)})
        assert foreign == unknown
        assert foreign[0] == 404
        assert (await refusal(here, back(session_of(client), 1)))[0] == 401
        socket = await here.dial({**ada, **back(session_of(client), 1)})
        assert (await socket.hear())["method"] == RESUMED


@pytest.mark.parametrize("received", [0, 2, 999_999_999_999_999])
async def test_a_number_of_messages_that_cannot_be_is_answered_like_a_session_that_is_not(
    received: int, autojump_clock: MockClock
) -> None:
    server, _ = company()
    settings = Settings(max_events=1)
    async with house(server, settings) as here:
        client = await here.peer(R2)
        if received == 0:
            await client.request("ping")
        await drop(client)
        assert (await refusal(here, back(session_of(client), received)))[0] == 404
        assert here.sessions()[0].facts["socket"] == "none"  # and it is still there for whoever knows better


@pytest.mark.parametrize("bounds", [{"max_events": 3}, {"max_event_bytes": 300}], ids=str)
async def test_only_so_much_is_kept(bounds: dict[str, int], autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server, Settings(**bounds)) as here:
        client = await here.peer(R4)
        for number in range(6):
            await client.call("greet", name=str(number))
        await drop(client)
        kept = int(str(here.sessions()[0].facts["kept"]))
        assert 1 <= kept <= 3
        assert (await refusal(here, back(session_of(client), 7 - kept - 1)))[0] == 404
        assert (await resume(here, client, 7 - kept))["replayed"] == kept


@pytest.mark.parametrize("payload", [b"3", b"-1", b"x", b"", b"9" * 100])
async def test_a_pong_that_answers_no_ping_of_ours_lets_nothing_go(payload: bytes, autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await client.call("greet")
        await socket_of(client).write(bytes([0x8A, 0x80 | len(payload)]) + b"\0\0\0\0" + payload)
        await client.request("ping")
        assert here.sessions()[0].facts["kept"] == 3


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp-Session-Id": "x"},
        {"Mcp-Received": "1"},
        {"Mcp-Session-Id": "x", "Mcp-Received": "-1"},
        {"Mcp-Session-Id": "x", "Mcp-Received": "1e3"},
        {"Mcp-Session-Id": "x", "Mcp-Received": "1" * 16},
        {"Mcp-Session-Id": "x", "Mcp-Received": "1", "Sec-WebSocket-Protocol": "mcp, mcp.received.2"},
    ],
    ids=str,
)
async def test_half_a_wish_to_come_back_is_malformed(headers: dict[str, str], autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        assert (await refusal(here, headers))[0] == 400


async def test_a_browser_comes_back_by_subprotocols_which_are_not_chosen(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await drop(client)
        offered = f"mcp.received.1, mcp, mcp.session.{session_of(client)}"
        socket = await here.dial({"Sec-WebSocket-Protocol": offered})
        assert socket.headers["sec-websocket-protocol"] == "mcp"
        assert (await socket.hear())["params"] == {"received": 2, "replayed": 0}


async def test_while_nobody_reads_messages_wait_within_the_bounds_of_the_outbox(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R4)
        await client.request("resources/subscribe", uri="x://y")
        await drop(client)
        for _ in range(5000):
            server.notify_updated("x://y")
        await wait_all_tasks_blocked()
        (session,) = here.sessions()
        assert session.mailbox_depth <= 1
        assert await resume(here, client, 2) == {"received": 3, "replayed": 0}
        assert (await client.hear())["method"] == "notifications/resources/updated"
        assert text(await client.call("greet")) == "hello you"
        assert not client.heard
