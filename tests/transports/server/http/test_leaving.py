"""Clients that leave, and clients that stay and do not read: promises 8 and 12, by the clock on the wall."""

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from callboard import Revision
from callboard.actors.changes import ResourceUpdated
from callboard.transports.limits import Settings
from tests.transports.server.http.house import House, open_house
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import META, Client, Place, serving, settle

LOG = {f"{META}logLevel": "info"}
AT_ONCE = 0.05
"""Seconds from a closed stream to the handler's cancelled scope."""
WRITE_TIME = 0.5
SLACK = 1.0
"""Seconds beyond the write deadline until nothing is left of who does not read."""


async def soon(house: House, name: str, leave: Callable[[], object]) -> float:
    """How long the handler went on after its client had left: the best of a try, since the machine is shared."""
    left = trio.current_time()
    leave()
    return await house.wait_cut(name) - left


LEAVING: dict[str, Callable[[Client], Callable[[], object]]] = {
    "closed": lambda client: client.socket.close,
    "reset": lambda client: client.reset,
    "half closed": lambda client: lambda: client.socket.shutdown(socket.SHUT_WR),
}


@pytest.mark.requirement("M106", "M107")
@pytest.mark.parametrize("way", LEAVING)
@pytest.mark.parametrize("tool", ["work", "errand", "chat"])
async def test_12_a_closed_stream_cancels_the_handler_at_once(tool: str, way: str) -> None:
    house = open_house()
    async with serving(house.server) as place:
        took = []
        for number in range(5):
            client, name = await place.connect(), str(number)
            arguments = {"name": name} | ({"words": ["hello"]} if tool == "chat" else {})
            await client.send(client.modern("tools/call", name=tool, arguments=arguments, meta=LOG))
            await house.wait_started(name)
            if tool == "chat":
                await (await client.stream_of()).message()
            took.append(await soon(house, name, LEAVING[way](client)))
        assert min(took) < AT_ONCE
        assert max(took) < 10 * AT_ONCE  # others use this machine too
        await settle()
        assert place.connections == 0
        assert place.host.root.supervisor_of("requests").child_count == 0


@pytest.mark.requirement("M108")
@pytest.mark.parametrize("tool", ["work", "errand", "chat"])
async def test_12_nothing_is_written_after_the_stream_was_closed(tool: str) -> None:
    """Half closed, a client could still read what was written to it."""
    house = open_house()

    async with serving(house.server) as place:
        client = await place.connect()
        arguments = {"name": "x"} | ({"words": ["hello"]} if tool == "chat" else {})
        await client.send(client.modern("tools/call", name=tool, arguments=arguments, meta=LOG))
        await house.wait_started("x")
        if tool == "chat":
            await (await client.stream_of()).message()
        client.socket.shutdown(socket.SHUT_WR)
        await house.wait_cut("x")
        house.gates["x"].set()
        house.server.notify_changed("tools")
        assert await client.ended() == b""


async def test_12_a_closed_listen_stream_is_forgotten_at_once() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        await client.send(client.modern("subscriptions/listen", notifications={"toolsListChanged": True}))
        await (await client.stream_of()).message()
        client.reset()
        await settle()
        assert (len(place.host.topics), place.connections) == (0, 0)


async def test_a_closed_stream_harms_no_other() -> None:
    house = open_house()
    async with serving(house.server) as place:
        leaving, staying = [await place.connect() for _ in range(2)]
        for client, name in ((leaving, "leaving"), (staying, "staying")):
            await client.send(client.modern("tools/call", name="work", arguments={"name": name}, id=1))
        await house.wait_started("leaving", "staying")
        await leaving.aclose()
        await house.wait_cut("leaving")
        house.gates["staying"].set()
        assert (await staying.answer()).result
        assert list(house.cut) == ["leaving"]


# Who does not read.


async def a_call(place: Place, client: Client) -> None:
    await client.send(client.modern("tools/call", name="flood", arguments=FLOOD, meta=LOG))


async def a_large_answer(place: Place, client: Client) -> None:
    await client.send(client.modern("tools/call", name="large", arguments={"size": 7_000_000}))


async def a_listener(place: Place, client: Client) -> None:
    uris = [f"note://{number}/{'x' * 8_000}" for number in range(125)]
    await client.send(client.modern("subscriptions/listen", notifications={"resourceSubscriptions": uris}))
    await (await client.stream_of()).message()
    for uri in uris:
        place.host.topics.publish(ResourceUpdated(uri))


async def a_post_of_a_session(place: Place, client: Client) -> None:
    session = await OpenSession.open(place, Revision.V2025_11_25)
    await client.send(session.post(session.request("tools/call", name="flood", arguments=FLOOD)))
    await session.client.aclose()


async def a_get_of_a_session(place: Place, client: Client) -> None:
    session = await OpenSession.open(place, Revision.V2025_11_25)
    uris = [f"note://{number}/{'x' * 8_000}" for number in range(125)]
    for uri in uris:
        assert (await session.ask("resources/subscribe", uri=uri)).status == 200
    await session.client.aclose()
    await client.send(session.get())
    await client.stream_of()
    for uri in uris:
        place.host.topics.publish(ResourceUpdated(uri))


FLOOD: Any = {"size": 100_000, "count": 50, "name": "flood"}
STALLED: list[Callable[[Place, Client], Awaitable[None]]] = [
    a_call,
    a_large_answer,
    a_listener,
    a_post_of_a_session,
    a_get_of_a_session,
]
EVERY = pytest.mark.parametrize("begin", STALLED, ids=[begin.__name__ for begin in STALLED])


@EVERY
async def test_8_who_does_not_read_is_cut_off_in_time(begin: Callable[[Place, Client], Awaitable[None]]) -> None:
    house = open_house()
    async with serving(house.server, Settings(write_time=WRITE_TIME), send_buffer=4096) as place:
        client = await place.connect(receive_buffer=4096)
        await begin(place, client)
        started = trio.current_time()
        await settle()
        assert place.connections == 1
        while place.connections:
            await settle()
        assert WRITE_TIME / 2 < trio.current_time() - started < WRITE_TIME + SLACK
        if begin is a_call:
            assert "flood" in house.cut
        elif begin is a_post_of_a_session:
            assert "flood" not in house.cut  # a legacy client may come back
        other = await place.connect()
        assert (await other.call("echo", text="x")).result


@EVERY
async def test_8_who_does_not_read_cannot_keep_the_server_from_ending(
    begin: Callable[[Place, Client], Awaitable[None]],
) -> None:
    async with serving(open_house().server, Settings(write_time=WRITE_TIME), send_buffer=4096) as place:
        client = await place.connect(receive_buffer=4096)
        await begin(place, client)
        await settle()
        started = trio.current_time()
        await place.edge.address.stop()
        assert trio.current_time() - started < WRITE_TIME + SLACK
        assert place.connections == 0


async def test_who_reads_slowly_gets_everything() -> None:
    async with serving(open_house().server, Settings(write_time=2), send_buffer=4096) as place:
        client = await place.connect(receive_buffer=4096)
        await a_call(place, client)
        await settle()
        messages = await (await client.stream_of()).rest()
        assert len(messages) == FLOOD["count"] + 1
        assert "result" in messages[-1]
