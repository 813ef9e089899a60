"""Bytes to one peer: whole and in order, by whoever has something to say, or not at all."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.transports.wire import LAST_WORD_TIME, READ_SIZE, SocketWire

BIG = 4_000_000
"""More than the kernel takes from a writer whose reader does not read."""


@contextmanager
def pair(write_time: float = 5.0) -> Iterator[tuple[SocketWire, trio.SocketStream]]:
    """A wire, and the peer at its other end."""
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        peer = trio.socket.from_stdlib_socket(there)
        wire = SocketWire(here, write_time)
        try:
            yield wire, trio.SocketStream(peer)
        finally:
            wire.close()
            peer.close()


async def everything(peer: trio.SocketStream) -> bytes:
    found = bytearray()
    with trio.fail_after(5):
        while data := await peer.receive_some(1 << 16):
            found += data
    return bytes(found)


async def test_what_fits_is_sent_without_waiting() -> None:
    with pair() as (wire, peer):
        with trio.CancelScope() as scope:
            scope.cancel()  # whoever is cancelled may still say what needs no waiting
            await wire.send(b"hello")
        assert await peer.receive_some(100) == b"hello"


async def test_many_writers_are_heard_one_after_the_other_and_whole() -> None:
    with pair() as (wire, peer):

        async def say(letter: bytes) -> None:
            await wire.send(letter * (BIG // 8))

        found = bytearray()
        async with trio.open_nursery() as nursery:
            for letter in (b"a", b"b", b"c", b"d"):
                nursery.start_soon(say, letter)
            await wait_all_tasks_blocked()
            while len(found) < BIG // 2:
                found += await peer.receive_some(1 << 16)
        assert bytes(found[:: BIG // 8]) in {b"abcd", b"dcba"} or len(set(found[:: BIG // 8])) == 4
        assert all(len(set(found[at : at + BIG // 8])) == 1 for at in range(0, BIG // 2, BIG // 8))
        await wire.send(b"and on")  # by the short way again
        assert await peer.receive_some(100) == b"and on"


async def test_a_writer_that_is_cancelled_in_the_middle_leaves_nothing_that_could_follow_the_torn_piece() -> None:
    with pair() as (wire, peer):
        with trio.CancelScope() as scope:
            scope.cancel()
            await wire.send(b"x" * BIG)
        assert not wire.send_nowait(b"next")
        with trio.fail_after(1), pytest.raises(trio.BrokenResourceError):
            await wire.send(b"next")
        assert set(await everything(peer)) == {ord("x")}


async def test_a_writer_that_is_cancelled_later_leaves_nothing_either() -> None:
    with pair() as (wire, peer):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, b"x" * BIG)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        with trio.fail_after(1), pytest.raises(trio.BrokenResourceError):
            await wire.send(b"next")
        assert set(await everything(peer)) == {ord("x")}


async def test_a_writer_that_is_cancelled_while_it_stands_in_line_harms_nobody() -> None:
    with pair() as (wire, peer):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, b"x" * BIG)
            await wait_all_tasks_blocked()
            with trio.move_on_after(0.05):
                await wire.send(b"never mind")
            found = bytearray()
            while len(found) < BIG:
                found += await peer.receive_some(1 << 16)
        await wire.send(b"next")
        assert await peer.receive_some(100) == b"next"


async def test_a_peer_that_does_not_read_is_cut_off_in_time_and_so_is_who_stands_in_line() -> None:
    with pair(write_time=0.3) as (wire, _):
        started = trio.current_time()

        async def say() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await wire.send(b"x" * BIG)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(say)
        assert 0.25 < trio.current_time() - started < 1.3
        with pytest.raises(trio.ClosedResourceError):
            await wire.receive()


async def test_a_peer_that_reads_too_late_hears_the_last_word_behind_what_was_cut_short(
    autojump_clock: MockClock,
) -> None:
    for _ in range(8):  # both writers are due at once, and Trio chooses which of them goes on first
        await one_that_reads_too_late(trio.current_time())


async def one_that_reads_too_late(began: float) -> None:
    with pair() as (wire, peer):
        wire.say_if_slow(b"too slow")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def say() -> None:
                with pytest.raises(trio.BrokenResourceError, match="timed out"):
                    await wire.send(BIG * b"x")

            @nursery.start_soon
            async def stand_in_line() -> None:
                await wait_all_tasks_blocked()
                with pytest.raises(trio.BrokenResourceError):
                    await wire.send(b"never heard")

            await trio.sleep(5 + LAST_WORD_TIME / 2)
            wire.close()  # as tasks do that hear that it is over: the last word is said all the same
            assert await everything(peer) == BIG * b"x" + b"too slow"
        assert trio.current_time() - began <= 5 + LAST_WORD_TIME + 0.1
        assert wire.fileno() == -1


async def test_a_peer_that_reads_nothing_at_all_is_cut_off_without_a_last_word(autojump_clock: MockClock) -> None:
    with pair() as (wire, _):
        wire.say_if_slow(b"too slow")
        with pytest.raises(trio.BrokenResourceError, match="timed out"):
            await wire.send(BIG * b"x")
        assert trio.current_time() == 5 + LAST_WORD_TIME
        assert wire.fileno() == -1


async def test_who_reads_hears_that_the_wire_was_closed() -> None:
    with pair() as (wire, _):
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await wire.receive()

            nursery.start_soon(listen)
            await wait_all_tasks_blocked()
            wire.close()
            wire.close()


async def test_who_writes_hears_that_the_wire_was_closed() -> None:
    with pair() as (wire, _):
        async with trio.open_nursery() as nursery:

            async def say() -> None:
                with pytest.raises((trio.ClosedResourceError, trio.BrokenResourceError)):
                    await wire.send(b"x" * BIG)

            nursery.start_soon(say)
            nursery.start_soon(say)
            await wait_all_tasks_blocked()
            wire.close()


async def test_a_peer_that_is_gone_is_said_to_be() -> None:
    with pair() as (wire, peer):
        await peer.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await wire.send(b"x")
        with pytest.raises(trio.BrokenResourceError):
            await wire.send(b"x")


async def test_a_courtesy_is_whole_or_finished_by_who_comes_next_or_not_begun() -> None:
    with pair() as (wire, peer):
        assert wire.send_nowait(b"hello ")
        assert wire.send_nowait(b"x" * BIG)  # begun
        assert not wire.send_nowait(b"lost")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, b" bye")
            found = bytearray()
            while len(found) < BIG + 10:
                found += await peer.receive_some(1 << 16)
        assert bytes(found) == b"hello " + b"x" * BIG + b" bye"
        assert wire.send_nowait(b"again")


async def test_a_courtesy_to_who_is_busy_or_gone_is_not_begun() -> None:
    with pair(write_time=0.2) as (wire, peer):
        async with trio.open_nursery() as nursery:

            async def say() -> None:
                with pytest.raises(trio.BrokenResourceError):
                    await wire.send(b"x" * BIG)

            nursery.start_soon(say)
            await wait_all_tasks_blocked()
            assert not wire.send_nowait(b"hello")
        assert not wire.send_nowait(b"hello")
        assert b"hello" not in await everything(peer)


async def test_who_lingers_hears_the_peer_out() -> None:
    with pair() as (wire, peer):
        await wire.send(b"bye")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.linger)
            assert await everything(peer) == b"bye"
            await peer.send_all(b"x" * BIG)
            await peer.send_eof()


async def test_a_large_message_is_read_in_pieces_of_one_size_and_two_of_them_in_a_turn() -> None:
    with pair() as (wire, peer):
        said = bytes(range(256)) * (2 * READ_SIZE // 256) + b"the end"
        found: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, said)
            await wait_all_tasks_blocked()
            found.append(await wire.receive())
            assert not wire.is_quiet()
            with trio.CancelScope() as scope:
                scope.cancel()  # what is there needs no waiting
                found.append(await wire.receive())
            found.append(await wire.receive())
        assert b"".join(found) == said
        assert [len(piece) for piece in found] == [READ_SIZE, READ_SIZE, len(b"the end")]
        assert wire.is_quiet()


async def test_the_end_of_a_peer_is_heard_behind_all_that_it_said() -> None:
    with pair() as (wire, peer):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, b"x" * READ_SIZE)
            await wait_all_tasks_blocked()
            await peer.aclose()
            assert len(await wire.receive()) == READ_SIZE
            assert await wire.receive() == b""


async def test_more_is_read_at_once_if_that_is_wanted() -> None:
    with pair() as (wire, peer):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, b"x" * 2 * READ_SIZE)
            await wait_all_tasks_blocked()
            assert len(await wire.receive(READ_SIZE + 1)) == READ_SIZE + 1
            assert len(await wire.receive(3 * READ_SIZE)) == READ_SIZE - 1


async def test_what_was_read_ahead_is_gone_with_the_wire() -> None:
    with pair() as (wire, peer):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, b"x" * 2 * READ_SIZE)
            await wait_all_tasks_blocked()
            await wire.receive()
        wire.close()
        with pytest.raises(trio.ClosedResourceError):
            await wire.receive()


async def test_what_follows_a_torn_piece_is_its_rest() -> None:
    """Of a large piece views are written, and of what is written behind it, too."""
    with pair() as (wire, peer):
        first, second = bytes(range(256)) * (BIG // 256), b"and then " * 1000
        assert not wire.write(first)
        assert not wire.write(second)
        found = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.finish)
            with trio.fail_after(5):
                while len(found) < len(first + second):
                    found += await peer.receive_some(1 << 16)
        assert found == first + second
        assert wire.is_free
