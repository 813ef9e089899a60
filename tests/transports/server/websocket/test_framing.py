"""Frames as they come over a connection: what is answered, and with which code it ends."""

import pytest
import trio
from trio.testing import MockClock

from callboard import Server
from callboard.codecs.revisions.revision import R4
from callboard.transports.limits import Settings
from callboard.transports.server.websocket.socket import FRAMES
from tests.server.test_one_handler_every_revision import text
from tests.transports.server.websocket.stage import House, Socket, house, masked

TEXT, BINARY, CLOSE, PING, PONG, MORE = 1, 2, 8, 9, 10, 0
ASK = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'

echo = Server("echo", version="1")


@echo.tool
async def repeat(words: str) -> str:
    return words


async def is_served(socket: Socket) -> bool:
    await socket.write(masked(TEXT, ASK))
    return bool((await socket.hear())["id"] == 1)


@pytest.mark.parametrize("cut", [1, 7, len(ASK)])
async def test_a_message_may_come_in_pieces_with_control_frames_in_between(cut: int, autojump_clock: MockClock) -> None:
    async with house(echo) as here:
        socket = await here.dial()
        await socket.write(masked(TEXT, ASK[:cut], fin=False) + masked(PING, b"a") + masked(PONG, b"b"))
        for index in range(cut, len(ASK)):
            await socket.write(masked(MORE, ASK[index : index + 1], fin=False))
        await socket.write(masked(PING, b"c") + masked(MORE, b""))
        assert (await socket.hear())["id"] == 1
        assert socket.ponged == [b"a", b"c"]


async def test_every_byte_may_come_alone(autojump_clock: MockClock) -> None:
    async with house(echo) as here:
        socket = await here.dial()
        for byte in masked(TEXT, ASK) + masked(PING, b"x" * 125):
            await socket.write(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        assert (await socket.hear())["id"] == 1
        assert await is_served(socket)
        assert socket.ponged == [b"x" * 125]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 1_000_000])
async def test_messages_of_all_sizes_go_there_and_back(size: int, autojump_clock: MockClock) -> None:
    async with house(echo) as here:
        client = await here.peer(R4)
        assert text(await client.call("repeat", words="ä" * (size // 2))) == "ä" * (size // 2)


async def test_a_ping_is_answered_with_its_own_words_and_a_pong_with_nothing(autojump_clock: MockClock) -> None:
    async with house(echo) as here:
        socket = await here.dial()
        await socket.write(masked(PING, b"") + masked(PONG, b"unasked") + masked(PING, b"\xff\x00"))
        assert await is_served(socket)
        assert socket.ponged == [b"", b"\xff\x00"]


async def test_ten_thousand_frames_in_a_row_hold_up_nobody(autojump_clock: MockClock) -> None:
    async with house(echo) as here:
        socket, other = await here.dial(), await here.dial()
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        unheard = b'{"jsonrpc": "2.0", "method": "notifications/odd"}'
        flood = masked(TEXT, b"", fin=False) + masked(0, b"", fin=False) * 10_000 + masked(0, unheard)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            await socket.write(flood)
            assert await is_served(socket)
            nursery.cancel_scope.cancel()
        assert turns >= 10_000 // FRAMES
        assert await is_served(other)


async def closing(here: House, *frames: bytes) -> tuple[Socket, int | None]:
    """The code with which the server answers *frames*, after what it has said."""
    socket = await here.dial()
    await socket.write(b"".join(frames))
    return socket, (await socket.wait_gone()).code


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        pytest.param([masked(BINARY, b"{}")], 1003, id="binary"),
        pytest.param([masked(TEXT, b"\xff")], 1007, id="not UTF-8"),
        pytest.param([masked(TEXT, b"\xe2", fin=False), masked(MORE, b"\x28\xa1")], 1007, id="not UTF-8, in pieces"),
        pytest.param([masked(TEXT, b"x" * 1001)], 1009, id="too big"),
        pytest.param([masked(TEXT, b"x" * 500, fin=False), masked(MORE, b"x" * 501)], 1009, id="too big, in pieces"),
        pytest.param([b"\x81\xff\x00\x00\x00\x7f\xff\xff\xff\xffmask" + b"x" * 1001], 1009, id="endless"),
        pytest.param([masked(3, b"")], 1002, id="reserved opcode"),
        pytest.param([masked(TEXT, b"", rsv=4)], 1002, id="reserved bit"),
        pytest.param([b"\x81\x02{}"], 1002, id="not masked"),
        pytest.param([masked(PING, b"x" * 126)], 1002, id="long ping"),
        pytest.param([masked(MORE, b"x")], 1002, id="continues nothing"),
        pytest.param([masked(TEXT, b"x", fin=False), masked(TEXT, b"x")], 1002, id="begins in the middle"),
        pytest.param([masked(CLOSE, b"\x03\xe8")], 1000, id="good-bye"),
        pytest.param([masked(CLOSE, b"\x03\xe9")], 1001, id="going away"),
        pytest.param([masked(CLOSE, b"\x0f\xa0because")], 4000, id="for a reason of its own"),
        pytest.param([masked(CLOSE, b"")], 1005, id="without a code"),
        pytest.param([masked(CLOSE, b"\x03")], 1002, id="half a code"),
        pytest.param([masked(CLOSE, b"\x03\xee")], 1002, id="a code that is none"),
        pytest.param([masked(CLOSE, b"\x03\xe8\xff")], 1007, id="a reason that is no text"),
    ],
)
async def test_how_it_ends(frames: list[bytes], code: int, autojump_clock: MockClock) -> None:
    async with house(echo, Settings(max_frame=1000)) as here:
        socket, said = await closing(here, *frames)
        assert said == code
        assert await socket.is_at_end()
        socket.close()
        await trio.testing.wait_all_tasks_blocked()
        assert (here.connections(), here.sessions(), len(here.door)) == ((), [], 0)
        assert trio.current_time() == 0


async def test_what_was_asked_before_a_violation_is_answered_before_the_end(autojump_clock: MockClock) -> None:
    async with house(echo) as here:
        socket = await here.dial()
        await socket.write(masked(TEXT, ASK))
        await trio.testing.wait_all_tasks_blocked()
        await socket.write(masked(BINARY, b"") + masked(TEXT, ASK))
        assert (await socket.hear())["id"] == 1
        assert (await socket.wait_gone()).code == 1003


async def test_nothing_is_read_after_the_last_word(autojump_clock: MockClock) -> None:
    async with house(echo) as here:
        socket = await here.dial()
        await socket.write(masked(CLOSE, b"\x03\xe8") + masked(TEXT, ASK))
        assert (await socket.wait_gone()).code == 1000
        assert await socket.is_at_end()


async def test_a_peer_that_does_not_answer_our_last_word_is_waited_for_two_seconds(autojump_clock: MockClock) -> None:
    async with house(echo) as here:
        socket, code = await closing(here, masked(BINARY, b""))
        assert code == 1003
        while here.connections():
            await socket.write(masked(TEXT, ASK))  # it talks on and on
            await trio.sleep(0.1)
        assert trio.current_time() == pytest.approx(2, abs=0.11)
