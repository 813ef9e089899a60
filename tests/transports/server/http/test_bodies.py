"""Bodies that are being read: strangers are asked for a token first, and all bodies together are bounded in bytes."""

from typing import Final

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.codecs.http.request_parser import RequestParser
from callboard.codecs.revisions import Revision
from callboard.transports.limits import Settings
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.guard import guard_of
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Client, Place, request, serving, settle
from tests.transports.server.http.test_asgi import behind_hypercorn
from tests.transports.server.http.test_security import INVALID, authenticate, bearer
from tests.transports.server.websocket.stage import house, masked, socket_of

pytestmark = pytest.mark.finding("security-9")

KIB: Final = 1024
SMALL: Final = Settings(max_body_bytes=400 * KIB, write_time=1)
"""Room for four bodies of a hundred KiB, of which one address may have three, and one principal two."""


def begun(client: Client, *lines: str, size: int = 4_000_000, sent: int = 0) -> bytes:
    """A POST of which only *sent* bytes of the body come for now."""
    post = request(
        "POST",
        "/mcp",
        *lines,
        host=client.host.decode(),
        content_type="application/json",
        accept="application/json, text/event-stream",
        content_length=str(size),
    )
    return post + b" " * sent


@pytest.mark.parametrize("token", [(), ("Authorization: Bearer nobody's",)])
@pytest.mark.parametrize("sent", [0, 1000])
async def test_a_stranger_is_refused_before_its_body_is_read(token: tuple[str, ...], sent: int) -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        await client.send(begun(client, *token, sent=sent))
        answer = await client.answer()
        assert (answer.status, answer.headers["www-authenticate"]) == (401, INVALID if token else "Bearer")
        assert answer.headers["connection"] == "close"
        assert await client.ended() == b""
        assert place.host.bodies.total == 0


async def test_a_stranger_is_not_told_to_go_on() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        await client.send(begun(client, "Expect: 100-continue"))
        assert (await client.answer()).status == 401


async def test_a_chunked_body_of_a_stranger_is_not_read_either() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        data = client.post(b"", "transfer-encoding: chunked", content_length=None)
        await client.send(data + b"10\r\n" + b" " * 16 + b"\r\n")
        assert (await client.answer()).status == 401


async def test_a_known_client_is_asked_once_for_a_body_that_comes_in_pieces() -> None:
    asked: list[str] = []

    async def count(token: str) -> str | None:
        asked.append(token)
        return await authenticate(token)

    async with serving(open_house().server, authenticate=count) as place:
        client = await place.connect()
        whole = client.modern("tools/call", bearer("alice"), name="who", arguments={})
        for piece in (whole[:-40], whole[-40:-20], whole[-20:]):
            await client.send(piece)
            await settle()
        assert (await client.answer()).result["content"][0]["text"] == "alice"
        assert asked == ["alice-token"]
        assert (await place.ask(client.modern("tools/call", name="who", arguments={}))).status == 401


async def test_the_hypercorn_door_asks_first_too() -> None:
    async with behind_hypercorn(open_house().server) as place:
        place.endpoint.guard = guard_of(authenticate)
        client = await place.connect()
        await client.send(begun(client, sent=1000))
        assert (await client.head()).status == 401
        assert place.host.bodies.total == 0


# How much is held.


async def hold(place: Place, *lines: str, size: int = 100 * KIB) -> Client:
    client = await place.connect()
    await client.send(begun(client, *lines, size=size + 1, sent=size))
    return client


async def test_one_address_leaves_room_for_others_and_gets_its_own_back() -> None:
    async with serving(open_house().server, SMALL) as place:
        holding = [await hold(place) for _ in range(3)]
        await settle()
        held = place.host.bodies.total
        assert held == 300 * KIB
        one_more = await hold(place, size=1)
        answer = await one_more.answer()
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, -31003, "1")
        assert answer.headers["connection"] == "close"
        client = await place.connect()
        assert (await client.call("echo", text="a small one")).status == 200  # it comes whole, and is never held
        for other in holding:
            await other.aclose()
        await settle()
        assert place.host.bodies.total == 0
        await hold(place)


async def test_beyond_what_all_may_hold_everybody_is_told_to_come_back() -> None:
    async with serving(open_house().server, SMALL, authenticate=authenticate) as place:
        for name in ("alice", "alice", "bob", "bob"):
            await hold(place, bearer(name))
        await settle()
        assert (await (await hold(place, bearer("alice"), size=1)).answer()).status == 503


async def test_one_principal_leaves_room_for_the_next() -> None:
    async with serving(open_house().server, SMALL, authenticate=authenticate) as place:
        for _ in range(2):
            await hold(place, bearer("alice"))
        await settle()
        assert (await (await hold(place, bearer("alice"), size=1)).answer()).status == 429
        bob = await place.connect()
        whole = bob.modern("tools/call", bearer("bob"), name="echo", arguments={"text": "x" * 100 * KIB})
        await bob.send(whole)
        assert (await bob.answer()).status == 200
        await settle()
        assert place.host.bodies.held("bob") == 0


@pytest.mark.parametrize("before", [0, 70 * KIB])
@pytest.mark.parametrize("tool", ["errand", "work"])
async def test_a_large_request_counts_until_it_is_answered(tool: str, before: int) -> None:
    """Also if it comes whole, as it may after another large one on the same connection."""
    there = open_house()
    async with serving(there.server, SMALL) as place:
        client = await place.connect()
        if before:
            assert (await client.call("echo", text="x" * before)).status == 200
        await client.send(client.modern("tools/call", name=tool, arguments={"name": "x" * 100 * KIB}))
        await there.wait_started("x" * 100 * KIB)
        assert place.host.bodies.total > 100 * KIB
        there.gates["x" * 100 * KIB].set()
        assert (await client.answer()).status == 200
        await settle()
        assert place.host.bodies.total == 0


@pytest.mark.parametrize("before", [0, 70 * KIB])
async def test_the_last_bytes_of_a_body_are_refused_too(before: int) -> None:
    async with serving(open_house().server, SMALL) as place:
        client = await place.connect()
        if before:
            assert (await client.call("echo", text="x" * before)).status == 200
        for _ in range(2):
            await hold(place)
        await settle()
        whole = client.modern("tools/call", name="echo", arguments={"text": "x" * 120 * KIB})
        if not before:
            await client.send(whole[: 90 * KIB])
            await settle()
        await client.send(whole[0 if before else 90 * KIB :])
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (429, "close")


async def test_a_large_request_of_a_session_counts_when_its_client_has_left() -> None:
    there = open_house()
    name = "x" * 100 * KIB
    async with serving(there.server, SMALL) as place:
        session = await OpenSession.open(place, Revision.V2025_06_18)
        client = await session.begin("work", name=name)
        await there.wait_started(name)
        await client.aclose()
        await settle()
        assert place.host.bodies.total > 100 * KIB
        there.gates[name].set()
        await settle()
        assert place.host.bodies.total == 0


async def test_a_message_on_a_websocket_counts_while_it_is_read(autojump_clock: MockClock) -> None:
    async with house(open_house().server, SMALL) as here:
        sockets = [socket_of(await here.peer(Revision.V2025_06_18)) for _ in range(4)]
        piece = masked(1, b" " * 100 * KIB, fin=False)
        for socket in sockets:
            await socket.write(piece)
        gone = await sockets[3].wait_gone()
        assert (gone.code, gone.reason) == (1013, "too many bytes are being sent")
        assert here.host.bodies.total == 300 * KIB
        await sockets[0].write(masked(0, b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}'))
        assert (await sockets[0].hear())["id"] == 7
        sockets[1].close()
        sockets[2].close()
        await wait_all_tasks_blocked()
        assert here.host.bodies.total == 0


@pytest.mark.finding("faults-low-memory")
@pytest.mark.parametrize("where", ["the body", "the request"])
async def test_a_request_without_room_in_memory_is_refused_and_nothing_else(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(open_house().server) as place:
        other = await place.connect()
        assert (await other.call("echo", text="before")).status == 200

        def fails(*_: object) -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            target = RequestParser if where == "the body" else Endpoint
            patch.setattr(target, "feed" if where == "the body" else "_post", fails)
            client = await place.connect()
            await client.send(client.modern("tools/call", name="echo", arguments={"text": "x"}))
            answer = await client.answer()
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, -31003, "1")
        assert await client.ended() == b""
        assert (await other.call("echo", text="after")).status == 200


# Heads that do not come at once.


def long_head(client: Client, size: int) -> bytes:
    """A request without the end of its head."""
    lines = [f"X-{number}: {'x' * 1000}" for number in range(size // 1024)]
    return request("GET", "/mcp", *lines, host=client.host.decode()).removesuffix(b"\r\n")


@pytest.mark.finding("security-20")
async def test_long_heads_that_do_not_end_are_counted_and_given_back() -> None:
    async with serving(open_house().server, SMALL) as place:
        slow = [await place.connect() for _ in range(8)]
        for client in slow:
            await client.send(long_head(client, 20 * KIB))
        await settle()
        held = place.host.bodies.total
        assert 250 * KIB < held <= 300 * KIB  # of one address, and twice their bytes
        assert (await slow[-1].answer()).status == 429
        assert (await (await place.connect()).call("echo", text="a short one")).status == 200
        await slow[0].send(b"\r\n")  # it ends, and is answered
        assert (await slow[0].answer()).status == 400  # there is no session in it
        await settle()
        assert place.host.bodies.total < held
        for client in slow[1:]:
            await client.aclose()
        await settle()
        assert place.host.bodies.total == 0
