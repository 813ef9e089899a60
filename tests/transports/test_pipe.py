"""Whole lines through a pipe, whatever their size, by any writer, also if it is cancelled meanwhile."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.codecs.lines import LineDecoder
from callboard.transports.lines import READ_SIZE, LineConnection
from callboard.transports.pipe import MAX_WIDEST, WIDE, WIDEST, PipeEnd

if sys.platform != "linux":
    pytest.skip("the size of a pipe is Linux's to tell", allow_module_level=True)

import fcntl

BIG = 1_000_000


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[PipeEnd, PipeEnd]]:
    """The two ends of a pipe: the one to read from, and the one to write to."""
    out, into = os.pipe()
    async with trio.lowlevel.FdStream(out) as incoming, trio.lowlevel.FdStream(into) as outgoing:
        yield PipeEnd(incoming), PipeEnd(outgoing)


async def lines(end: PipeEnd, count: int) -> list[bytes]:
    decoder, found = LineDecoder(), list[bytes]()
    with trio.fail_after(10):
        while len(found) < count:
            found += [bytes(line) for line in decoder.feed(await end.receive_some()) if isinstance(line, bytes)]
    return found


def capacity(end: PipeEnd) -> int:
    return fcntl.fcntl(end.fileno(), fcntl.F_GETPIPE_SZ)


async def test_lines_of_any_size_come_through_whole_and_in_order() -> None:
    async with pipe() as (reader, writer):
        said = [b"%d " % number + b"x" * size for number, size in enumerate((1, BIG, 10, READ_SIZE, 3 * BIG, 1))]
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                for line in said:
                    await writer.send_all(line + b"\n")

            assert await lines(reader, len(said)) == said


async def test_many_writers_stand_in_line() -> None:
    async with pipe() as (reader, writer), trio.open_nursery() as nursery:
        said = [b"%d " % number + b"x" * BIG for number in range(5)]
        for line in said:
            nursery.start_soon(writer.send_all, line + b"\n")
        assert sorted(await lines(reader, len(said))) == said


async def test_what_a_cancelled_writer_has_begun_is_finished_by_the_next() -> None:
    async with pipe() as (reader, writer), trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            scope.cancel()
            await writer.send_all(b"1" * BIG + b"\n")
        with trio.CancelScope() as scope:
            scope.cancel()
            await writer.send_all(b"not begun\n")
        nursery.start_soon(writer.send_all, b"2\n")
        assert await lines(reader, 2) == [b"1" * BIG, b"2"]


async def test_what_could_not_be_written_at_once_is_finished_in_its_order() -> None:
    async with pipe() as (reader, writer), trio.open_nursery() as nursery:
        assert not writer.write(b"1" * BIG + b"\n")
        assert not writer.write(b"2\n")
        nursery.start_soon(writer.finish)
        assert await lines(reader, 2) == [b"1" * BIG, b"2"]
        await wait_all_tasks_blocked()
        assert writer.write(b"3\n")


async def test_a_pipe_is_as_wide_as_its_messages_need() -> None:
    async with pipe() as (reader, writer), trio.open_nursery() as nursery:
        narrow = capacity(writer)
        await writer.send_all(b"small\n")
        assert capacity(writer) == narrow
        nursery.start_soon(writer.send_all, b"x" * BIG + b"\n")
        await lines(reader, 2)
        assert capacity(writer) == max(narrow, WIDEST)


async def test_not_all_pipes_are_as_wide_as_can_be() -> None:
    async with AsyncExitStack() as stack:
        pipes = [await stack.enter_async_context(pipe()) for _ in range(MAX_WIDEST + 2)]
        for _, writer in pipes:
            rest = writer.begin(b"x" * 2 * WIDEST)
            assert rest is not None
            rest.close()
        widths = [capacity(writer) for _, writer in pipes]
    assert sorted(set(widths)) == [WIDE, WIDEST]
    assert widths.count(WIDEST) <= MAX_WIDEST


async def test_a_pipe_that_cannot_be_made_wider_carries_large_messages_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> int:
        raise PermissionError

    async with pipe() as (reader, writer), trio.open_nursery() as nursery:
        monkeypatch.setattr(fcntl, "fcntl", refused)
        nursery.start_soon(writer.send_all, b"x" * BIG + b"\n")
        assert await lines(reader, 1) == [b"x" * BIG]


async def test_frames_of_any_size_go_both_ways() -> None:
    async with pipe() as (here_in, there_out), pipe() as (there_in, here_out):
        here, there = LineConnection(here_in, here_out), LineConnection(there_in, there_out)
        frames = [b'"%b"' % (b"x" * size) for size in (1, BIG, 2 * READ_SIZE, 7)]
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                for _ in frames:
                    frame = await anext(there)
                    assert isinstance(frame, bytes)
                    await there.send(frame)

            for frame in frames:
                await here.send(frame)
                assert await anext(here) == frame
