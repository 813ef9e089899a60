"""Whether the other side is still there, in virtual time: pings, peers that vanish, peers that do not read."""

from typing import cast

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Revision, Server
from callboard.codecs.revisions.revision import LATEST, R4
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.server.websocket.pings import ANSWER, BURST, Pings
from callboard.transports.server.websocket.socket import WebSocketConnection
from callboard.transports.wire import LAST_WORD_TIME
from tests.transports.server.websocket.stage import Socket, house, masked, socket_of
from tests.transports.server.websocket.wires import MemoryWire

EVERY = DEFAULTS.ping_every
loud = Server("loud", version="1")


@loud.tool
async def shout(times: int, *, ctx: Context) -> str:
    for _ in range(times):
        await ctx.log("info", "x" * 10_000)
    return "done"


def wire_of(socket: Socket) -> MemoryWire:
    assert isinstance(socket.wire, MemoryWire)
    return socket.wire


async def test_a_quiet_peer_is_pinged_every_20_seconds_and_stays(autojump_clock: MockClock) -> None:
    async with house(loud) as here:
        socket = await here.dial()
        moments: list[float] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket.wait_gone)
            while len(moments) < 5:
                if len(socket.pings) > len(moments):
                    moments.append(trio.current_time())
                await trio.sleep(0.25)
            nursery.cancel_scope.cancel()
        assert moments == [pytest.approx(EVERY * number, abs=0.3) for number in range(1, 6)]
        assert len(here.connections()) == 1


async def test_a_peer_that_vanishes_is_gone_after_two_pings_and_within_a_minute(autojump_clock: MockClock) -> None:
    async with house(loud) as here:
        socket = await here.dial()
        wire_of(socket).outgoing.is_lost = True  # nothing that it says arrives any more
        assert await here.wait_dropped() == 60
        assert not here.sessions()
        socket.pongs = False
        assert (await socket.wait_gone()).code is None
        assert len(socket.pings) == 2


@pytest.mark.parametrize("last_heard", [0.0, 0.1, 19.0, 20.5, 39.9, 50.0])
async def test_it_is_found_out_within_a_minute_whenever_it_vanishes(
    last_heard: float, autojump_clock: MockClock
) -> None:
    async with house(loud) as here:
        socket = await here.dial()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket.wait_gone)
            await trio.sleep(last_heard)
            await socket.write(masked(10, b""))
            wire_of(socket).outgoing.is_lost = True
            assert 2 * EVERY * ANSWER - 1 <= await here.wait_dropped() - last_heard <= 60
            nursery.cancel_scope.cancel()


async def test_any_word_proves_life_not_only_a_pong(autojump_clock: MockClock) -> None:
    async with house(loud) as here:
        client = await here.peer(R4)
        socket_of(client).pongs = False
        for _ in range(20):
            await client.request("ping")
            await trio.sleep(15)
        assert len(socket_of(client).pings) >= 6
        assert len(here.connections()) == 1


async def test_the_session_of_a_peer_that_vanished_waits_for_it(autojump_clock: MockClock) -> None:
    async with house(loud) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()
        wire_of(socket_of(client)).outgoing.is_lost = True
        dropped = await here.wait_dropped()
        assert here.sessions()[0].facts["socket"] == "none"
        assert await here.wait_ended() - dropped == DEFAULTS.grace


async def test_a_message_may_take_its_time_but_not_for_ever(autojump_clock: MockClock) -> None:
    async with house(loud) as here:
        socket, late = await here.dial(), await here.dial()
        await socket.write(masked(1, b"{", fin=False))
        await trio.sleep(DEFAULTS.body_time - 2)
        await socket.write(masked(0, b"}"))
        assert (await socket.hear())["error"]["code"] == -32600
        await late.write(masked(1, b"{", fin=False))
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def drip() -> None:
                while here.connections():
                    await late.write(masked(0, b" ", fin=False))
                    await trio.sleep(1)

            gone = await late.wait_gone()
            assert (gone.code, gone.reason) == (1008, "timed out while reading a message")
            nursery.cancel_scope.cancel()
        assert trio.current_time() <= 2 * DEFAULTS.body_time + EVERY


async def test_a_peer_that_does_not_read_is_cut_off_when_the_write_time_is_over(autojump_clock: MockClock) -> None:
    async with house(loud, Settings(write_time=3)) as here:
        client = await here.peer(LATEST, log_level="info")
        wire_of(socket_of(client)).incoming.is_stalled = True
        await client.begin("tools/call", name="shout", arguments={"times": 5})
        assert await here.wait_dropped() == 3 + LAST_WORD_TIME
        assert not here.sessions()
        assert not here.host.root.supervisor_of("requests").actors()


@pytest.mark.parametrize("revision", [R4, LATEST])
async def test_a_peer_that_reads_too_slowly_is_told_so(revision: Revision, autojump_clock: MockClock) -> None:
    async with house(loud, Settings(write_time=3)) as here:
        client = await here.peer(revision, log_level="info")
        socket = socket_of(client)
        wire_of(socket).incoming.is_stalled = True
        await client.begin("tools/call", name="shout", arguments={"times": 5})
        await trio.sleep(3 + LAST_WORD_TIME / 2)
        wire_of(socket).incoming.flow()
        gone = await socket.wait_gone()
        assert (gone.code, gone.reason) == (1013, "messages were not read in time")
        await wait_all_tasks_blocked()
        assert len(here.sessions()) == (revision is R4)  # to which it may come back


async def test_what_waits_for_a_peer_that_does_not_read_is_bounded(autojump_clock: MockClock) -> None:
    async with house(loud) as here:
        client = await here.peer(R4)
        wire_of(socket_of(client)).incoming.is_stalled = True
        await client.begin("tools/call", name="shout", arguments={"times": 3000})
        with trio.move_on_after(5):
            await trio.sleep_forever()
        (session,) = here.sessions()
        assert session.mailbox_depth <= 1024
        wire_of(socket_of(client)).incoming.flow()
        heard = 0
        while "result" not in await client.hear():
            heard += 1
        assert 1 <= heard <= 1026


async def test_a_reader_that_is_stuck_behind_its_own_unread_answers_is_cut_off_too(autojump_clock: MockClock) -> None:
    async with house(loud, Settings(write_time=500)) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()
        wire = wire_of(socket_of(client))
        wire.incoming.is_stalled = True
        for number in range(3000):
            await client.say({"id": 1000 + number, "method": "ping"})
        await trio.sleep(61)
        assert here.sessions()[0].facts["socket"] == "none"
        assert wire.outgoing.is_broken  # the server has hung up
        assert await here.wait_dropped() == await here.wait_ended() == 60 + DEFAULTS.grace


async def test_ten_sockets_are_seen_to_by_one_task(autojump_clock: MockClock) -> None:
    async with house(loud) as here:
        sockets = [await here.dial() for _ in range(10)]
        await wait_all_tasks_blocked()
        hearts = [child for child in here.host.root.tree().children if child.kind == "Pings"]
        assert [heart.facts["sockets"] for heart in hearts] == [10]
        await sockets[0].finish()
        hearts = [child for child in here.host.root.tree().children if child.kind == "Pings"]
        assert [heart.facts["sockets"] for heart in hearts] == [9]


async def test_a_ping_that_must_wait_stands_in_line_behind_what_is_being_written(autojump_clock: MockClock) -> None:
    async with house(loud, Settings(write_time=15)) as here:
        client = await here.peer(R4)
        await wait_all_tasks_blocked()
        wire = wire_of(socket_of(client))
        await trio.sleep(EVERY - 5)
        wire.incoming.is_stalled = True
        call = await client.begin("ping")
        await trio.sleep(10)  # a ping was due in the middle of it
        wire.incoming.flow()
        assert await client.finish(call) == {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.hear)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert socket_of(client).pings == [b"2"]


async def test_a_network_that_fails_fills_one_line_of_the_log(autojump_clock: MockClock) -> None:
    with structlog.testing.capture_logs() as logged:
        async with house(loud) as here:
            for _ in range(5):
                wire_of(await here.dial()).outgoing.is_lost = True
            assert await here.wait_dropped() == 60
    assert [(line["event"], line["count"]) for line in logged] == [("websocket_pings_timed_out", 5)]


async def test_many_pings_at_once_hold_up_nobody(autojump_clock: MockClock) -> None:
    class Quiet:
        """Needs nothing but beats."""

        def beat(self, now: float, *, is_asked: bool) -> bool:
            return True

        def ping_nowait(self) -> bool:
            return True

        is_silent = is_heard = False

    heart, turns = Pings(EVERY), 0
    for _ in range(10 * BURST):
        heart.add(cast("WebSocketConnection", Quiet()))

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    await trio.sleep(EVERY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await heart._beat(nursery)
        nursery.cancel_scope.cancel()
    assert turns >= 5
