"""A WebSocket ends with its token; its client comes back with another one, and its session goes on."""

import time

import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Server
from callboard.actors.server import expiry
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import Revision
from callboard.codecs.websocket.frames import Code
from tests.transports.server.websocket.stage import back, house, session_of, socket_of

pytestmark = pytest.mark.usefixtures("door")

R4 = Revision.V2025_11_25


async def authenticate(token: str) -> Caller | None:
    principal, _, seconds = token.partition("-")
    return Caller(principal=principal, scopes=[seconds], expires=time.time() + int(seconds))


def server() -> Server:
    server = Server("guarded")

    @server.tool
    async def scopes(ctx: Context) -> str:
        """Say the scopes of the token."""
        return " ".join(ctx._exchange.terms.caller.scopes)

    return server


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_socket_ends_with_its_token_and_the_session_goes_on_with_the_next(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "EXPIRY_LEEWAY", 1.0)
    async with house(server(), authenticate=authenticate) as here:
        client = await here.peer(R4, headers=bearer("ada-2"))
        begun = trio.current_time()
        assert (await client.request("tools/call", name="scopes"))["content"][0]["text"] == "2"
        closed = await socket_of(client).wait_gone()
        assert (closed.code, closed.reason) == (Code.POLICY, "the token has expired")
        assert 2 <= trio.current_time() - begun <= 5
        again = await here.dial({**back(session_of(client), 2), **bearer("ada-9")})
        await again.say({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "scopes"}})
        while "id" not in (said := await again.hear()):
            pass  # it was resumed
        assert said["result"]["content"][0]["text"] == "9"
