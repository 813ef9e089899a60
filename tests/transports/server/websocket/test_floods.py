"""Floods of small frames: others get their turn, and a client that does nothing else is sent away."""

from typing import Final

import pytest
import trio
from trio.testing import MockClock

from callboard import Server
from callboard.codecs.websocket.frames import Code, MessageReader, Ping, Text
from callboard.transports.server.websocket.socket import FRAMES, MAX_CONTROLS
from tests.transports.server.websocket.stage import house, masked

pytestmark = pytest.mark.finding("security-23")

PING: Final = 9
PONG: Final = 10


@pytest.mark.parametrize("kind", [PING, PONG])
async def test_a_flood_of_control_frames_ends_the_connection(kind: int, autojump_clock: MockClock) -> None:
    async with house(Server("quiet")) as here:
        socket = await here.dial()
        await socket.write(masked(kind, b"") * (MAX_CONTROLS + 1))
        gone = await socket.wait_gone()
        assert (gone.code, gone.reason) == (Code.POLICY, "too many pings and pongs")
        assert len(socket.ponged) == (MAX_CONTROLS if kind == PING else 0)


async def test_as_many_as_may_be_are_answered_second_after_second(autojump_clock: MockClock) -> None:
    async with house(Server("quiet")) as here:
        socket = await here.dial()
        for _ in range(3):
            await socket.write(masked(PING, b"") * MAX_CONTROLS)
            await trio.sleep(1)
        await socket.finish()
        assert len(socket.ponged) == 3 * MAX_CONTROLS


async def test_others_get_their_turn_between_small_frames(autojump_clock: MockClock) -> None:
    turns, is_over = 0, False

    async def other() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with house(Server("quiet")) as here, trio.open_nursery() as nursery:
        socket = await here.dial()
        flood = masked(1, b"", fin=False) + masked(0, b"", fin=False) * (20 * FRAMES)  # pieces of one message
        nursery.start_soon(other)
        await socket.write(flood + masked(0, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'))
        assert (await socket.hear())["id"] == 1
        is_over = True
        assert turns >= 20


def test_every_frame_is_a_step() -> None:
    reader = MessageReader(1000)
    data = masked(1, b"a", fin=False) + masked(PING, b"p") + masked(0, b"b")
    assert list(reader.steps(data)) == [None, Ping(b"p"), Text(b"ab")]
