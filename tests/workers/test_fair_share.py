"""Fair shares: which of several workers that listen on one socket takes a connection."""

import socket
from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock

from callboard import tree
from callboard.codecs.http.access import EVERYONE
from callboard.transports.limits import Settings
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.listener import http_edge
from callboard.workers.fair_share import AHEAD, FULL_WAIT, SLOTS, WAIT, DoorShare, FairShare, LoadPage
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import PATIENCE, Client


async def test_a_worker_that_is_ahead_lets_others_go_first_once(autojump_clock: MockClock) -> None:
    page = LoadPage.create()
    ahead, behind = FairShare(page, 0).door(), FairShare(page, SLOTS - 1).door()
    ahead.say(AHEAD)
    behind.say(0)
    for share, waits in ((ahead, False), (behind, False)):
        assert await _waits(share) == waits
    ahead.say(AHEAD + 1)
    assert await _waits(ahead)
    page.release(SLOTS - 1)
    assert not await _waits(ahead)  # there is no other
    page.close()


async def test_a_worker_without_room_leaves_connections_to_those_that_have_some(autojump_clock: MockClock) -> None:
    page = LoadPage.create()
    full, other = FairShare(page, 0).door(), FairShare(page, 1).door()
    full.say(10, is_full=True)
    other.say(5_000)  # more than the full one, whose limit may be one of descriptors
    assert await _waited(full) == pytest.approx(FULL_WAIT)
    assert await _waited(other) == 0
    other.say(5_001, is_full=True)
    assert await _waited(full) == 0  # each refuses what comes
    full.say(9)
    assert await _waited(full) == 0
    assert await _waited(other) == pytest.approx(FULL_WAIT)
    page.close()


async def test_no_connection_is_refused_while_another_worker_has_room() -> None:
    page = LoadPage.create()
    with trio.fail_after(PATIENCE), socket.create_server(("127.0.0.1", 0)) as listening:
        async with open_house().server.host() as host, AsyncExitStack() as clients:
            edges = []
            for slot, most in enumerate((2, 100)):
                endpoint = Endpoint(host, EVERYONE, Settings(write_time=1, max_connections=most))
                share = FairShare(page, slot).door()
                share.say(0)
                shared = clients.enter_context(listening.dup())  # as another process has it
                edges.append(await host.root.add(http_edge(f"http-{slot}", endpoint, [shared], turns=share)))
            for _ in range(40):
                stream = await trio.open_tcp_stream("127.0.0.1", listening.getsockname()[1])
                await clients.enter_async_context(stream)
                client = Client(stream, stream.socket, b"x")
                assert (await client.call("echo", text="x")).result
            small, large = (len(list(edge.supervisor_of(tree.CONNECTIONS).actors())) for edge in edges)
            assert (small, large) == (2, 38)
    page.close()


async def _waits(share: DoorShare) -> bool:
    return await _waited(share) > 0


async def _waited(share: DoorShare) -> float:
    before = trio.current_time()
    await share.wait_turn()
    return trio.current_time() - before


def test_sessions_count_beside_connections() -> None:
    page = LoadPage.create()
    share = FairShare(page, 3, lambda: 7).door()
    share.say(5)
    assert (page.load(3), page.load(4)) == (12, None)
    page.close()


async def test_the_connections_of_two_addresses_of_a_worker_are_added_up(autojump_clock: MockClock) -> None:
    page = LoadPage.create()
    share = FairShare(page, 0)
    http, websockets = share.door(), share.door()
    http.say(5)
    websockets.say(1)
    websockets.say(0)
    assert (share.connections, page.load(0)) == (5, 5)
    FairShare(page, 1).door().say(0)
    websockets.say(1, is_full=True)
    assert page.is_full(0)
    assert await _waited(websockets) == pytest.approx(FULL_WAIT)
    assert await _waited(http) == pytest.approx(WAIT)  # it has room, and more than the other
    websockets.say(0)
    assert page.load(0) == 5
    page.close()
