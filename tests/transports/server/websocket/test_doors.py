"""What every door refuses and how it ends: callboard's own, ASGI, and trio-websocket."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Revision, Server
from callboard.codecs.revisions.revision import LATEST, R4
from callboard.transports.limits import Settings
from callboard.transports.wire import LAST_WORD_TIME
from tests.transports.server.websocket.company import company, refusal, wire_of
from tests.transports.server.websocket.stage import back, house, masked, socket_of

pytestmark = pytest.mark.usefixtures("door")
BOTH = pytest.mark.parametrize("revision", [R4, LATEST], ids=str)


async def authenticate(token: str) -> str | None:
    return "ada" if token == "secret" else None  # noqa: S105 - no secret


async def test_a_page_of_another_origin_is_refused(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        assert (await refusal(here, {"Origin": "https://evil.example"}))[0] == 403
        await here.dial({"Origin": "http://localhost:8000"} if here.name == "trio-websocket" else {})
        assert len(here.door) == 1


async def test_a_bad_token_and_a_missing_one_are_refused_and_a_good_one_is_not(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server, authenticate=authenticate) as here:
        assert (await refusal(here, {}))[0] == 401
        assert (await refusal(here, {"Authorization": "Bearer wrong"}))[0] == 401
        await here.dial({"Authorization": "Bearer secret"})
        await here.dial({"Sec-WebSocket-Protocol": "mcp, mcp.auth.c2VjcmV0"})
        assert len(here.door) == 2


async def test_a_session_of_another_is_not_found(autojump_clock: MockClock) -> None:
    server, _ = company()

    async def anyone(token: str) -> str:
        return token

    async with house(server, authenticate=anyone) as here:
        asked = await here.dial({"Mcp-Resumable": "1", "Authorization": "Bearer ada"})
        ticket = (await asked.hear())["params"]
        asked.close()
        await wait_all_tasks_blocked()
        stranger = {**back(ticket["id"], 0), "Authorization": "Bearer eve"}
        assert (await refusal(here, stranger))[0] == 404
        again = await here.dial({**back(ticket["id"], 0), "Authorization": "Bearer ada"})
        assert (await again.hear())["params"] == {"received": 0, "replayed": 0}


async def test_one_session_too_many_is_told_to_come_back_later(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server, Settings(max_sessions=1)) as here:
        await here.dial()
        gone = await (await here.dial()).wait_gone()
        assert (gone.code, gone.reason) == (1013, "too many sessions")


@pytest.mark.parametrize(("frame", "code"), [(masked(2, b"x"), 1003), (masked(1, bytes(2000)), 1009)])
async def test_what_is_not_allowed_closes_the_socket(frame: bytes, code: int, autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server, Settings(max_frame=1000)) as here:
        socket = await here.dial()
        await socket.write(frame)
        assert (await socket.wait_gone()).code == code


@BOTH
async def test_a_reader_that_is_too_slow_is_told_so(revision: Revision, autojump_clock: MockClock) -> None:
    loud = Server("loud", version="1")

    @loud.tool
    async def shout(*, ctx: Context) -> str:
        for _ in range(5):
            await ctx.log("info", "x" * 10_000)
        return "done"

    async with house(loud, Settings(write_time=3)) as here:
        client = await here.peer(revision, log_level="info")
        await wait_all_tasks_blocked()
        wire_of(client).incoming.is_stalled = True
        await client.begin("tools/call", name="shout", arguments={})
        await trio.sleep(3 + LAST_WORD_TIME / 2)
        wire_of(client).incoming.flow()
        gone = await socket_of(client).wait_gone()
        assert (gone.code, gone.reason) == (1013, "messages were not read in time")


@BOTH
async def test_what_is_in_flight_is_answered_before_the_server_ends(
    revision: Revision, autojump_clock: MockClock
) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(revision)
        call = await client.begin("tools/call", name="wait", arguments={"name": "a"})
        await wait_all_tasks_blocked()
        here.host.root.supervisor_of("edge").address.begin_stop()
        await wait_all_tasks_blocked()
        seen.go.set()
        assert "a waited" in str(await client.finish(call))
        assert (await socket_of(client).wait_gone()).code == 1001
