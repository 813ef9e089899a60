"""A connection or a session that ended, in whichever way, leaves nothing to the garbage collector."""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.codecs.http.request_parser import RequestParser
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.testing import Peer
from callboard.transports.limits import Settings
from tests.broker.front import backend, brokered, peer
from tests.garbage import left_by
from tests.test_no_cycles_failed import company
from tests.transports.server.http.sessions import OpenSession, initialize
from tests.transports.server.http.stage import Client, Place, request, serving
from tests.transports.server.websocket.stage import House, Refused, Socket, back, house, masked, session_of, socket_of

pytestmark = pytest.mark.finding("faults-C3", "faults-M1")

TIMES: Final = 8
CONNECTED: Final = "connections"
HURRIED: Final = Settings(header_time=0.005, body_time=0.005, body_idle=0.005, write_time=1)
ERAS = pytest.mark.parametrize("revision", [R4, R5], ids=str)
POST: Final = {"content_type": "application/json", "accept": "application/json, text/event-stream"}


async def gone(place: Place) -> None:
    """Wait until no session, no request and no connection is left."""
    root = place.host.root
    for place_of in (
        root.supervisor_of("sessions"),
        root.supervisor_of("requests"),
        place.edge.supervisor_of(CONNECTED),
    ):
        for address, _ in place_of.actors():
            await address.wait_ended()


# HTTP connections.


def sent(what: str, client: Client) -> bytes:
    host = client.host.decode()
    match what:
        case "nothing":
            return b"\r\n"
        case "half a head":
            return b"POST /mcp HTTP/1.1\r\n"
        case "no HTTP":
            return b"\x00\x01\x02\r\n\r\n"
        case "another path":
            return request("GET", "/x", host=host)
        case "another host":
            return request("GET", "/mcp", host="evil")
        case "HEAD":
            return request("HEAD", "/mcp", host=host)
        case "too large a body":
            return request("POST", "/mcp", host=host, content_length="99999999", **POST)
        case "half a body":
            return request("POST", "/mcp", host=host, content_length="100", **POST) + b"{"
        case "an upgrade":
            return request("GET", "/mcp", host=host, upgrade="websocket", connection="upgrade")
        case "an errand":
            return client.modern("tools/call", name="long", arguments={})
        case "a call":
            return client.modern("tools/call", name="long_with_context", arguments={})
        case "a subscription":
            return client.modern("subscriptions/listen", notifications={"toolsListChanged": True})
        case _:
            return client.modern("tools/call", name="echo", arguments={"text": "hi"})


WAITED_FOR: Final = (
    "half a head",
    "no HTTP",
    "another path",
    "another host",
    "too large a body",
    "half a body",
    "HEAD",
)
SENT: Final = (*WAITED_FOR, "nothing", "an upgrade", "an errand", "a call", "a subscription", "an answered call")


@pytest.mark.parametrize("what", SENT)
async def test_a_client_that_leaves(what: str) -> None:
    async with serving(company()) as place:

        async def once() -> None:
            for is_reset in (False, True):
                client = await place.connect()
                await client.send(sent(what, client))
                await wait_all_tasks_blocked(0.001)
                if is_reset:
                    client.reset()
                else:
                    await client.aclose()
            await gone(place)

        assert await left_by(once, TIMES) == {}


@pytest.mark.parametrize("what", WAITED_FOR)
async def test_a_connection_that_the_server_closes(what: str) -> None:
    async with serving(company(), HURRIED) as place:

        async def once() -> None:
            client = await place.connect()
            await client.send(sent(what, client))
            await client.ended()
            await client.aclose()
            await gone(place)

        assert await left_by(once, TIMES) == {}


async def test_a_parked_call_that_expires(autojump_clock: MockClock) -> None:
    async with company().host() as host, peer(host, R5) as client:

        async def once() -> None:
            asked = await client.request("tools/call", name="ask", arguments={})
            assert asked["resultType"] == "input_required"
            await trio.sleep(700)

        assert await left_by(once, TIMES) == {}


# Sessions over HTTP.


async def deleted(session: OpenSession) -> None:
    await session.client.send(session.every()[-1])
    await session.client.answer()


async def deleted_while_busy(session: OpenSession) -> None:
    stream = await session.listen()
    calls = [await session.begin("long_with_context"), await session.begin("long")]
    await wait_all_tasks_blocked(0.001)
    await deleted(session)
    for client in (stream.client, *calls):
        await client.aclose()


async def left_alone(session: OpenSession) -> None:
    """It ends when it was idle for long enough."""


@pytest.mark.parametrize("end", [deleted, deleted_while_busy, left_alone])
async def test_a_session_over_http(end: Callable[[OpenSession], Awaitable[None]]) -> None:
    idle = 0.02 if end is left_alone else 100
    async with serving(company(), Settings(session_idle=idle, write_time=1)) as place:

        async def once() -> None:
            session = await OpenSession.open(place, R4)
            await end(session)
            await session.client.aclose()
            await gone(place)

        assert await left_by(once, TIMES) == {}


async def test_a_session_that_did_not_begin() -> None:
    async with serving(company()) as place:
        client = await place.connect()

        async def once() -> None:
            await client.send(client.post(initialize(R4) | {"params": {}}))
            assert (await client.answer()).status == 200

        assert await left_by(once, TIMES) == {}


# WebSockets.


async def closed(here: House, client: Peer, socket: Socket) -> None:
    await socket.finish()


async def dropped(here: House, client: Peer, socket: Socket) -> None:
    socket.close()


async def dropped_while_busy(here: House, client: Peer, socket: Socket) -> None:
    for name in ("long", "long_with_context"):
        await client.begin("tools/call", name=name, arguments={})
    await wait_all_tasks_blocked()
    socket.close()


async def not_a_frame(here: House, client: Peer, socket: Socket) -> None:
    await socket.write(b"\xff\xff\xff\xff")
    await socket.wait_gone()


async def not_text(here: House, client: Peer, socket: Socket) -> None:
    await socket.write(masked(2, b"x"))
    await socket.wait_gone()


async def silent(here: House, client: Peer, socket: Socket) -> None:
    await trio.sleep(70)


async def taken_over(here: House, client: Peer, socket: Socket) -> None:
    if client.revision is R4:
        other = await here.dial(back(session_of(client), 1))
        await socket.wait_gone()
        await other.finish()
    socket.close()


@ERAS
@pytest.mark.parametrize("end", [closed, dropped, dropped_while_busy, not_a_frame, not_text, silent, taken_over])
async def test_a_websocket(
    end: Callable[[House, Peer, Socket], Awaitable[None]], revision: Revision, autojump_clock: MockClock
) -> None:
    async with house(company(), Settings(grace=1.0)) as here:

        async def once() -> None:
            client = await here.peer(revision, kind=Peer)
            await end(here, client, socket_of(client))
            await here.wait_dropped()
            await here.wait_ended()
            here.forget()

        assert await left_by(once, TIMES) == {}


async def test_a_websocket_that_is_refused(autojump_clock: MockClock) -> None:
    async with house(company()) as here:

        async def once() -> None:
            try:
                await here.dial({"Sec-WebSocket-Version": "12"})
            except Refused as refusal:
                refusal.__traceback__ = None
            await here.wait_dropped()
            here.forget()

        assert await left_by(once, TIMES) == {}


# Connections that requests share: stdio, and what stands for it here.


@asynccontextmanager
async def served(is_brokered: bool) -> AsyncIterator[Callable[[Revision], Awaitable[None]]]:
    hosted = brokered(backend(company(), timeout=500.0)) if is_brokered else company().host()
    async with hosted as host:

        async def once(revision: Revision) -> None:
            async with peer(host, revision) as client:
                for name in ("long", "long_with_context"):
                    await client.begin("tools/call", name=name, arguments={})
                await wait_all_tasks_blocked()
            async with peer(host, revision):
                pass

        yield once


@ERAS
@pytest.mark.parametrize("is_brokered", [False, True])
async def test_a_shared_connection(is_brokered: bool, revision: Revision, autojump_clock: MockClock) -> None:
    async with served(is_brokered) as once:
        assert await left_by(lambda: once(revision), TIMES) == {}


@pytest.mark.finding("faults-low-parked")
async def test_a_parked_call_keeps_no_socket_and_no_parser_of_its_connection() -> None:
    """Its task is the one that read it, whose frames know the connection; all that weighs anything is gone."""

    def parsers() -> int:
        return sum(type(one) is RequestParser and "_parser" in vars(one) for one in gc.get_objects())

    async with serving(company()) as place:
        before = parsers()
        for _ in range(5):
            client = await place.connect()
            await client.send(client.modern("tools/call", name="ask", arguments={}))
            assert (await client.answer()).result["resultType"] == "input_required"
            await client.aclose()
        for address, _ in place.edge.supervisor_of(CONNECTED).actors():
            await address.wait_ended()
        await wait_all_tasks_blocked(0.01)
        assert place.host.root.supervisor_of("requests").child_count == 5
        assert parsers() == before
