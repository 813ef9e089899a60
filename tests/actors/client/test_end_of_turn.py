"""What waits for the end of a turn, what does not, and how requests of one turn reach a server."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import OutgoingRequest
from callboard.actors.end_of_turn import ALONE, FEW, SMALL, EndOfTurn
from callboard.codecs.envelope import Notification, Request, ResultResponse
from callboard.codecs.revisions import LATEST
from callboard.errors import ConnectionLost
from callboard.transports.lines import LineConnection

LATE = 60.0


@attrs.define(eq=False)
class Written:
    """Notes what was written at once. It waits while there is no *room*, and fails if it *is_broken*."""

    pieces: list[bytes] = attrs.field(factory=list)
    room: trio.Event | None = None
    is_broken: bool = False

    async def send_all(self, data: bytes) -> None:
        if (rest := self.begin(data)) is not None:
            await rest

    def begin(self, data: bytes) -> Coroutine[Any, Any, None] | None:
        if self.is_broken:
            raise trio.BrokenResourceError("Broken pipe")
        if self.room is not None:
            return self._wait(self.room, data)
        self.pieces.append(data)
        return None

    async def _wait(self, room: trio.Event, data: bytes) -> None:
        await room.wait()
        if self.is_broken:
            raise trio.BrokenResourceError("Broken pipe")
        self.pieces.append(data)


@attrs.define(eq=False)
class Server:
    """Says what a test wants."""

    says: trio.MemoryReceiveChannel[bytes]

    async def receive_some(self, _: int | None = None) -> bytes:
        try:
            return await self.says.receive()
        except trio.EndOfChannel:
            return b""


def call(number: int, size: int = 0) -> OutgoingRequest:
    return OutgoingRequest(
        number, "tools/call", LATEST, b'{"id":%d}' % number + b" " * size, trio.current_time() + LATE
    )


async def hear(_: Request | Notification) -> None:
    raise AssertionError("the server says nothing unasked")


@asynccontextmanager
async def linked(written: Written) -> AsyncIterator[tuple[DuplexLink, trio.MemorySendChannel[bytes]]]:
    """A link whose server is played: it says what is sent to it."""
    saying, heard = trio.open_memory_channel[bytes](64)
    link = DuplexLink(LineConnection(Server(heard), written))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.listen, hear)
        await wait_all_tasks_blocked()
        yield link, saying
        saying.close()


async def answered(saying: trio.MemorySendChannel[bytes], *numbers: int) -> None:
    await saying.send(b"".join(b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % number for number in numbers))


async def ask_all(link: DuplexLink, saying: trio.MemorySendChannel[bytes], *calls: OutgoingRequest) -> None:
    """Ask in one turn, and have all of it answered."""

    async def ask(one: OutgoingRequest) -> None:
        answer = await link.ask(one, hear)
        assert isinstance(answer, ResultResponse)
        assert answer.id == one.id

    async with trio.open_nursery() as nursery:
        for one in calls:
            nursery.start_soon(ask, one)
        await wait_all_tasks_blocked()
        await answered(saying, *[int(one.id) for one in calls])


async def test_the_first_of_a_turn_does_not_wait_and_those_behind_it_do() -> None:
    acts = 0

    def act() -> bool:
        nonlocal acts
        acts += 1
        return True

    turn = EndOfTurn(act)
    assert [turn.is_near() for _ in range(3)] == [False] * 3  # nothing would be written then
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await wait_all_tasks_blocked()
        for number in (1, 2):
            assert [turn.is_near() for _ in range(3)] == [False, True, True]
            await wait_all_tasks_blocked()
            assert acts == number
        nursery.cancel_scope.cancel()
    assert not turn.is_near()


async def test_one_that_is_alone_is_not_waited_with_the_next_few_times() -> None:
    waited: list[bool] = []

    def act() -> bool:
        return waited[-1]

    turn = EndOfTurn(act)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await wait_all_tasks_blocked()
        waited.append(turn.is_near())
        await wait_all_tasks_blocked()
        assert [turn.is_near() for _ in range(ALONE + 3)] == [False] * ALONE + [False, True, True]
        nursery.cancel_scope.cancel()


async def test_requests_of_one_turn_are_written_together_but_for_the_first_and_large_ones() -> None:
    written = Written()
    async with linked(written) as (link, saying):
        await ask_all(link, saying, call(1), call(2), call(3, size=SMALL), call(4))
        first, *more = sorted(written.pieces, key=lambda piece: piece.count(b"\n"))
    assert sum(len(piece) > SMALL for piece in written.pieces) == 1
    assert len(written.pieces) == 3
    assert more[-1].count(b"\n") == 2
    assert first.count(b"\n") == 1


async def test_a_request_that_is_taken_back_in_its_turn_is_never_sent() -> None:
    written = Written()
    async with linked(written) as (link, _):
        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(link.ask, call(number), hear)
            nursery.start_soon(cancel, nursery.cancel_scope)
        await wait_all_tasks_blocked()
        sent = b"".join(written.pieces)
        assert sent.count(b'"method":"notifications/cancelled"') == sent.count(b'{"id":')


async def test_no_more_than_a_few_requests_wait() -> None:
    written = Written()
    async with linked(written) as (link, saying):
        await ask_all(link, saying, *map(call, range(1, 3 * FEW + 3)))
    assert sorted(piece.count(b"\n") for piece in written.pieces) == [1, 1, FEW, FEW, FEW]


async def test_requests_wait_for_themselves_while_the_server_does_not_read(autojump_clock: MockClock) -> None:
    """What a server does not read is not piled up: a request that is late is taken out of the line."""
    written = Written()
    async with linked(written) as (link, _):
        room = written.room = trio.Event()
        for turn in range(3):
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(link.ask, call(4 * turn + number), hear)
        room.set()
        await wait_all_tasks_blocked()
        assert 3 <= b"".join(written.pieces).count(b'{"id":') <= 4


async def test_several_requests_that_could_not_be_written_hear_of_a_broken_connection() -> None:
    written, lost = Written(), 0

    async def ask(one: OutgoingRequest) -> None:
        nonlocal lost
        with pytest.raises(ConnectionLost):
            await link.ask(one, hear)
        lost += 1

    async with linked(written) as (link, _):
        room = written.room = trio.Event()
        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(ask, call(number))
            await wait_all_tasks_blocked()
            written.is_broken = True
            room.set()
    assert lost == 3


async def cancel(scope: trio.CancelScope) -> None:
    scope.cancel()


async def test_requests_that_wait_for_the_end_of_a_turn_hear_of_a_broken_connection() -> None:
    written, lost = Written(), 0

    async def ask(one: OutgoingRequest) -> None:
        nonlocal lost
        with pytest.raises(ConnectionLost):
            await link.ask(one, hear)
        lost += 1

    async with linked(written) as (link, _):
        written.is_broken = True
        async with trio.open_nursery() as nursery:
            for number in (1, 2, 3):
                nursery.start_soon(ask, call(number))
    assert lost == 3


async def test_the_time_of_requests_that_cannot_be_written_passes_all_the_same(autojump_clock: MockClock) -> None:
    written = Written()
    async with linked(written) as (link, _):
        room = written.room = trio.Event()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def ask(one: OutgoingRequest) -> None:
                assert await link.ask(one, hear) is None
                assert trio.current_time() - began == LATE

            for number in (1, 2, 3):
                nursery.start_soon(ask, call(number))
        room.set()
