"""Storms: what many do at once is dealt with in slices, and others have their turns in between."""

import socket

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from callboard.actors.turnstile import IN_A_TURN, wait_turn
from callboard.transports.server.http.keepalive import BURST, KeepAlive
from callboard.transports.wire import SocketWire


async def most_in_a_turn(done: list[int], count: int) -> int:
    most = 0
    while len(done) < count:
        before = len(done)
        await trio.lowlevel.checkpoint()
        most = max(most, len(done) - before)
    return most


@pytest.mark.finding("faults-M1")
async def test_clients_that_leave_at_once_are_dealt_with_in_slices() -> None:
    count, done = 400, list[int]()
    pairs = [socket.socketpair() for _ in range(count)]

    async def read(number: int) -> None:
        ours = pairs[number][0]
        ours.setblocking(False)
        wire = SocketWire(ours, 1)
        assert await wire.receive() == b""
        done.append(number)
        wire.close()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(read, number)
            await wait_all_tasks_blocked()
            for _, theirs in pairs:
                theirs.close()
            assert await most_in_a_turn(done, count) <= 3 * IN_A_TURN
    assert sorted(done) == list(range(count))


async def test_who_is_alone_does_not_wait_and_a_cancelled_one_leaves_the_line() -> None:
    for _ in range(3 * IN_A_TURN):
        await wait_turn()
    done: list[int] = []

    async def go(number: int) -> None:
        await wait_turn()
        done.append(number)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for number in range(5 * IN_A_TURN):
                nursery.start_soon(go, number)
            await trio.lowlevel.cancel_shielded_checkpoint()
            nursery.cancel_scope.cancel()
        await wait_turn()  # and the next one is not held up
    assert len(done) < 5 * IN_A_TURN


class Stream:
    is_over = False

    def __init__(self, written: list[int]) -> None:
        self.written = written

    def try_write(self, _: bytes) -> bool:
        self.written.append(1)
        return True


@pytest.mark.finding("faults-M1")
async def test_streams_that_began_at_once_are_kept_alive_in_slices(autojump_clock: trio.testing.MockClock) -> None:
    written: list[int] = []
    pulse = KeepAlive(15.0)
    for _ in range(2000):
        pulse.add(Stream(written))  # type: ignore[arg-type]  # no more of it is needed
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pulse.run)
        await trio.sleep(14.9)
        assert not written
        await trio.sleep(0.7)
        nursery.cancel_scope.cancel()
    most = 0
    written.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pulse._beat, trio.current_time() + 15)
        most = await most_in_a_turn(written, 2000)
    assert most <= 3 * BURST
