"""A WebSocket that comes back to another worker than its home goes on where it was."""

from pathlib import Path

import pytest
import trio

from callboard.codecs.revisions.revision import R3, R4, Revision
from callboard.transports.client.pool import Origin
from tests.server.test_one_handler_every_revision import text
from tests.transports.server.http.stage import settle
from tests.transports.server.websocket.stage import Gone, Refused, back, session_of, socket_of
from tests.workers.sockets import come_back, dial, socket_peer
from tests.workers.stage import office


@pytest.mark.parametrize("revision", [R3, R4], ids=str)
async def test_a_session_goes_on_at_another_worker_and_no_message_is_lost_or_comes_twice(
    revision: Revision, tmp_path: Path
) -> None:
    async with office(tmp_path) as (_, (here, there)), socket_peer(here.place.port, revision) as client:
        call = await client.begin("tools/call", name="work", arguments={"name": "w"})
        asked = [await client.begin("ping") for _ in range(5)]
        await here.house.wait_started("w")
        assert (await client.hear())["id"] == asked[0]
        told = await come_back(client, there.place.port, 2)
        assert told == {"received": 8, "replayed": 4}
        assert [(await client.hear())["id"] for _ in range(4)] == asked[1:]
        here.house.gates["w"].set()
        assert text(await client.finish(call)) == "w"
        assert text(await client.call("echo", text="x" * 300_000)) == "x" * 300_000
        assert (there.forwarded, there.house.started) == (1, [])
        assert (await come_back(client, here.place.port, 8))["replayed"] == 0  # and home again
        assert text(await client.call("echo", text="hi")) == "hi"


async def test_each_side_hears_when_the_other_leaves_the_tunnel(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)), socket_peer(here.place.port) as client:
        await come_back(client, there.place.port, 1)
        waiting = await client.begin("tools/call", name="work", arguments={"name": "w"})
        await here.house.wait_started("w")
        socket_of(client).close()
        await settle()
        assert (there.place.connections, here.house.cut) == (0, {})  # it may come back
        await come_back(client, there.place.port, 1)
        here.house.gates["w"].set()
        assert text(await client.finish(waiting)) == "w"
        await socket_of(client).finish(1000)
        await settle()
        assert (there.place.connections, here.place.host.sessions.total) == (0, 0)


async def test_a_session_of_another_principal_is_not_tunnelled(tmp_path: Path) -> None:
    async def authenticate(token: str) -> str | None:
        return token

    ada, bob = {"Authorization": "Bearer ada"}, {"Authorization": "Bearer bob"}
    async with (
        office(tmp_path, authenticate=authenticate) as (_, (here, there)),
        socket_peer(here.place.port, headers=ada) as client,
    ):
        for headers in (bob, {**ada, "Mcp-Session-Id": "A" * 87}):
            with pytest.raises(Refused) as refused:
                await dial(there.place.port, {**back(session_of(client), 1), **headers})
            assert refused.value.status == 404
        assert there.forwarded == 0
        await come_back(client, there.place.port, 1, ada)
        assert text(await client.call("who")) == "ada"


async def test_a_number_of_messages_that_cannot_be_is_refused_by_the_home(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)), socket_peer(here.place.port) as client:
        with pytest.raises(Refused) as refused:
            await come_back(client, there.place.port, 7)
        assert refused.value.status == 404
        assert (await come_back(client, there.place.port, 1))["replayed"] == 0


async def test_with_its_home_the_tunnel_ends_and_the_client_starts_anew(tmp_path: Path) -> None:
    async with office(tmp_path) as (all_, (here, there)), socket_peer(here.place.port) as client:
        await come_back(client, there.place.port, 1)
        await all_.kill(here)
        with pytest.raises(Gone):
            await socket_of(client).hear()
        with pytest.raises(Refused) as refused:
            await come_back(client, there.place.port, 1)
        assert refused.value.status == 404
        async with socket_peer(there.place.port) as anew:
            assert text(await anew.call("echo", text="hi")) == "hi"


async def test_a_home_that_hangs_is_waited_for_and_not_given_up(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)), socket_peer(here.place.port) as client:
        there.homes.links[here.name].hangs = True
        with pytest.raises(Refused) as refused:
            await come_back(client, there.place.port, 1)
        assert refused.value.status == 503  # not 404: its session is not over
        there.homes.links[here.name].hangs = False
        assert (await come_back(client, there.place.port, 1))["replayed"] == 0


async def test_a_client_that_does_not_read_holds_up_its_own_tunnel_alone(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)), socket_peer(here.place.port) as lazy:
        await come_back(lazy, there.place.port, 1)
        await lazy.begin("tools/call", name="flood", arguments={"size": 100_000, "count": 400, "name": "f"})
        async with socket_peer(here.place.port) as other:
            await come_back(other, there.place.port, 1)
            with trio.fail_after(5):
                for _ in range(20):
                    assert text(await other.call("echo", text="hi")) == "hi"
        assert here.house.done == []


async def test_a_home_that_ends_while_it_is_being_reached_is_not_a_silent_end(tmp_path: Path) -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async with office(tmp_path) as (_, (here, there)), socket_peer(here.place.port) as client:
        link = there.homes.links[here.name]
        path = str(tmp_path / "ends")
        with trio.socket.socket(trio.socket.AF_UNIX) as listening:
            await listening.bind(path)
            listening.listen(1)
            link.origin = Origin("http", "worker", 0, path)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, hang_up, [trio.SocketListener(listening)])
                with pytest.raises(Refused) as refused:
                    await come_back(client, there.place.port, 1)
                nursery.cancel_scope.cancel()
        assert refused.value.status == 503
