"""The opening handshake as HTTP sees it: who gets in, who is told what instead, and that tokens stay secret."""

import base64
import logging
from typing import Any

import pytest
import structlog
from trio.testing import MockClock

from callboard import Server
from callboard.codecs.revisions.revision import R4
from callboard.transports.limits import Settings
from tests.transports.server.websocket.stage import (
    OPENING,
    Gone,
    House,
    Refused,
    house,
    masked,
    request,
    session_of,
    socket_of,
)

CANARY = "canary-7f3a9c-token"
OFFERED = base64.urlsafe_b64encode(CANARY.encode()).decode().rstrip("=")

empty = Server("empty", version="1")


async def status(here: House, opening: bytes) -> tuple[int, Any]:
    """The status and the headers of the answer; 101 for a WebSocket that was closed again."""
    socket, _ = here.connect()
    try:
        await socket.open(opening)
    except Refused as refused:
        assert await socket.is_at_end()
        return refused.status, refused.headers
    await socket.finish()
    return 101, socket.headers


def without(*names: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in OPENING.items() if name not in names}
    return {**kept, **{name.replace("_", "-"): value for name, value in more.items()}}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param(OPENING, 101, id="the least"),
        pytest.param(without(Upgrade="WebSocket"), 101, id="in any case"),
        pytest.param(without(Connection="keep-alive, Upgrade"), 101, id="as Firefox says it"),
        pytest.param(without(Sec_WebSocket_Protocol="mcp"), 101, id="with a subprotocol"),
        pytest.param(without(Sec_WebSocket_Extensions="permessage-deflate"), 101, id="with an extension"),
        pytest.param(without(Sec_WebSocket_Protocol="chat"), 400, id="with another subprotocol"),
        pytest.param(without("Sec-WebSocket-Key"), 400, id="without a key"),
        pytest.param(without(Sec_WebSocket_Key="short"), 400, id="with half a key"),
        pytest.param(without("Sec-WebSocket-Version"), 400, id="without a version"),
        pytest.param(without(Sec_WebSocket_Version="8"), 426, id="with another version"),
        pytest.param(without("Connection"), 400, id="without Connection"),
        pytest.param(without(Upgrade="h2c"), 400, id="to another protocol"),
        pytest.param(without("Host"), 400, id="without a host"),
        pytest.param(without(Content_Length="3"), 400, id="with a body to come"),
    ],
)
async def test_who_gets_in(headers: dict[str, str], expected: int, autojump_clock: MockClock) -> None:
    async with house(empty) as here:
        body = b"xyz" if "Content-Length" in headers else b""
        answered, said = await status(here, request(headers) + body)
        assert answered == expected
        assert "sec-websocket-extensions" not in said
        if expected == 426:
            assert said["sec-websocket-version"] == "13"


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        (None, "127.0.0.1:8000", 101),
        (None, "localhost:8000", 101),
        (None, "LOCALHOST:8000", 101),
        (None, "[::1]:8000", 101),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", 101),
        ("http://localhost:8000", "127.0.0.1:8000", 101),
        (None, "127.0.0.1", 421),
        (None, "127.0.0.1:8001", 421),
        (None, "evil.example:8000", 421),
        (None, "localhost.evil.example:8000", 421),
        (None, "127.0.0.1:8000.evil.example", 421),
        ("http://evil.example", "127.0.0.1:8000", 403),
        ("http://localhost.evil.example:8000", "127.0.0.1:8000", 403),
        ("http://localhost:8000@evil.example", "127.0.0.1:8000", 403),
        ("http://localhost:80", "127.0.0.1:8000", 403),
        ("https://localhost:8000", "127.0.0.1:8000", 403),
        ("null", "127.0.0.1:8000", 403),
        ("file://", "127.0.0.1:8000", 403),
        ("", "127.0.0.1:8000", 403),
        ("http://evil.example", "evil.example:8000", 403),
    ],
)
async def test_a_foreign_page_gets_nowhere_near_a_socket(
    origin: str | None, host: str, expected: int, autojump_clock: MockClock
) -> None:
    async with house(empty) as here:
        headers = {**OPENING, "Host": host, **({} if origin is None else {"Origin": origin})}
        assert (await status(here, request(headers)))[0] == expected
        assert len(here.door) == 0


async def test_there_is_one_path(autojump_clock: MockClock) -> None:
    async with house(empty) as here:
        assert (await status(here, request(line="GET /mcp?x=1 HTTP/1.1")))[0] == 101
        assert (await status(here, request(line="GET /other HTTP/1.1")))[0] == 404


# Tokens.


async def principal_of(token: str) -> str | None:
    return "ada" if token == CANARY else None


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Authorization": f"Bearer {CANARY}"}, id="header"),
        pytest.param({"Sec-WebSocket-Protocol": f"mcp, mcp.auth.{OFFERED}"}, id="subprotocol"),
    ],
)
async def test_a_token_makes_a_principal(headers: dict[str, str], autojump_clock: MockClock) -> None:
    async with house(empty, authenticate=principal_of) as here:
        client = await here.peer(R4, headers=headers)
        assert await client.request("tools/list") == {"tools": []}
        (conversation,) = here.door._conversations.values()
        assert conversation.session.principal == "ada"
        assert socket_of(client).headers["sec-websocket-protocol"] == "mcp"
        assert session_of(client) not in repr(here.door)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {OFFERED}"},
        {"Sec-WebSocket-Protocol": "mcp, mcp.auth.d3Jvbmc"},
    ],
    ids=str,
)
async def test_without_a_good_token_there_is_no_socket(headers: dict[str, str], autojump_clock: MockClock) -> None:
    async with house(empty, authenticate=principal_of) as here:
        answered, said = await status(here, request({**OPENING, **headers}))
        has_token = bool(headers) and "Basic" not in str(headers)
        invalid = 'Bearer error="invalid_token", error_description="the token is invalid"'
        assert (answered, said["www-authenticate"]) == (401, invalid if has_token else "Bearer")
        assert not here.sessions()


async def test_a_page_from_elsewhere_is_refused_before_its_token_is_looked_at(autojump_clock: MockClock) -> None:
    asked = []

    async def authenticate(token: str) -> str | None:
        asked.append(token)
        return "ada"

    async with house(empty, authenticate=authenticate) as here:
        headers = {**OPENING, "Origin": "http://evil.example", "Authorization": f"Bearer {CANARY}"}
        assert (await status(here, request(headers)))[0] == 403
        assert not asked


@pytest.mark.parametrize("is_good", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {CANARY}"},
        {"Sec-WebSocket-Protocol": f"mcp, mcp.auth.{OFFERED}"},
        {"Sec-WebSocket-Protocol": f"mcp, mcp.auth.{OFFERED}="},
        {"Authorization": "Bearer other", "Sec-WebSocket-Protocol": f"mcp, mcp.auth.{OFFERED}"},
    ],
    ids=str,
)
async def test_a_token_is_in_no_answer_no_log_and_no_tree(
    headers: dict[str, str],
    is_good: bool,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def authenticate(token: str) -> str | None:
        return "ada" if is_good else None

    shown: list[str] = []
    with structlog.testing.capture_logs() as logged, caplog.at_level(logging.DEBUG):
        async with house(empty, authenticate=authenticate) as here:
            socket, _ = here.connect()
            try:
                await socket.open(request({**OPENING, **headers}))
                await socket.say({"id": 1, "method": "nonsense"})
                shown += [str(await socket.hear()), str(socket.headers)]
            except Refused as refused:
                shown += [str(refused), str(refused.headers)]
            shown += [repr(here.host.root.tree()), repr(here.door)]
            if here.door._conversations:  # a broken session tells all it may
                next(iter(here.door._conversations.values())).session.address.kill("test")
                shown.append(str(await socket.wait_gone()))
    said = " ".join([*shown, *map(str, logged), caplog.text, *capfd.readouterr()])
    assert shown[0]
    assert CANARY not in said
    assert OFFERED not in said


# Limits.


async def test_one_session_too_many_is_told_so_in_a_way_that_browsers_see(autojump_clock: MockClock) -> None:
    async with house(empty, Settings(max_sessions=2)) as here:
        first, _ = await here.dial(), await here.dial()
        third = await here.dial()
        with pytest.raises(Gone) as gone:
            await third.receive()
        assert (gone.value.code, gone.value.reason) == (1013, "too many sessions")
        third.close()
        assert (len(here.door), len(here.sessions())) == (2, 2)
        await first.finish()
        await here.dial()
        assert len(here.door) == 2


async def test_a_server_that_is_about_to_end_begins_no_sessions(autojump_clock: MockClock) -> None:
    async with house(empty) as here:
        here.host.begin_drain()
        answered, said = await status(here, request())
        assert (answered, said["retry-after"]) == (503, "1")


async def test_what_came_with_the_handshake_is_read(autojump_clock: MockClock) -> None:
    async with house(empty) as here:
        socket, _ = here.connect()
        await socket.open(request() + masked(1, b'{"jsonrpc":"2.0","id":1,"method":"ping"}'))
        assert (await socket.hear())["id"] == 1


@pytest.mark.finding("security-11")
async def test_one_principal_cannot_have_all_the_sessions(autojump_clock: MockClock) -> None:
    async def authenticate(token: str) -> str | None:
        return token

    async with house(empty, Settings(max_sessions=8, max_sessions_each=2), authenticate=authenticate) as here:
        alice, bob = {"Authorization": "Bearer alice"}, {"Authorization": "Bearer bob"}
        first, _ = await here.dial(alice), await here.dial(alice)
        refused = await here.dial(alice)
        with pytest.raises(Gone) as gone:
            await refused.receive()
        assert (gone.value.code, gone.value.reason) == (1013, "too many sessions")
        await here.dial(bob)
        await first.finish()
        await here.dial(alice)
        assert here.host.sessions.held("alice") == 2
