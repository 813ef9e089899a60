"""The connection between two workers, which all requests share: what one of them does must not harm the others."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from callboard import tree
from callboard.codecs.link import (
    CUT,
    JSON,
    LAST,
    MAX_PIECE,
    NUMBERS,
    PART,
    WRITE,
    LinkDecoder,
    is_later,
    write_frame,
    write_frames,
)
from callboard.codecs.revisions.revision import R4
from callboard.errors import SupervisorClosed
from callboard.transports.limits import Settings
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.wire import SocketWire
from callboard.workers import link as link_module
from callboard.workers.link import HomeLink
from callboard.workers.link_writer import LinkWriter
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import settle
from tests.workers.stage import Worker, office

PIECE = b"x" * MAX_PIECE


async def through(session: OpenSession, worker: Worker) -> OpenSession:
    """The same session, whose requests go to another worker's listener."""
    return attrs.evolve(session, place=worker.place, client=await worker.place.connect())


def link_of(worker: Worker, home: Worker) -> HomeLink:
    return worker.homes.links[home.name]


# The writer of a link.


@attrs.define(eq=False)
class Ends:
    """One end of a link, and the socket at the other one."""

    writer: LinkWriter
    wire: SocketWire
    far: trio.SocketStream
    decoder: LinkDecoder = attrs.field(factory=LinkDecoder)

    async def heard(self, count: int) -> list[tuple[int, int, int]]:
        """The next frames: the stream, the kind and the length of each."""
        frames: list[tuple[int, int, int]] = []
        with trio.fail_after(5):
            while len(frames) < count:
                data = bytes(await self.far.receive_some(1 << 20))
                assert data, frames
                frames += [(stream, kind, len(payload)) for stream, kind, payload in self.decoder.feed(data)]
        return frames

    def fill(self) -> int:
        """Say as many frames as go without waiting."""
        count = 0
        while not self.writer._is_busy:
            self.writer.say_soon(write_frame(1, WRITE, PIECE))
            count += 1
        return count


@asynccontextmanager
async def ends(*, is_ending: bool = False) -> AsyncIterator[Ends]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    wire, far = SocketWire(ours, 5.0), trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    async with trio.open_nursery() as nursery:

        def carry(run: Callable[[], Awaitable[None]]) -> None:
            if is_ending:
                raise SupervisorClosed("requests")
            nursery.start_soon(run)

        try:
            yield Ends(LinkWriter(wire, carry), wire, far)
        finally:
            nursery.cancel_scope.cancel()
            wire.close()
            await trio.aclose_forcefully(far)


async def test_frames_of_a_message_that_is_cancelled_are_whole_and_its_end_is_said() -> None:
    async with ends() as two:
        count = two.fill()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                message = write_frames(7, JSON, PIECE * 3)
                nursery.start_soon(two.writer.say, message, lambda: True, write_frame(7, CUT))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        two.writer.say_soon(write_frame(9, JSON, b"{}"))
        assert await two.heard(count + 1) == [(1, WRITE, MAX_PIECE)] * count + [(9, JSON, 2)]  # nothing of it was begun
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                message = write_frames(7, JSON, PIECE * 30)
                nursery.start_soon(two.writer.say, message, lambda: True, write_frame(7, CUT))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        two.writer.say_soon(write_frame(9, JSON, b"{}"))
        cut, other = await two.heard(2)
        assert cut[:2] == (7, CUT)
        assert cut[2] % MAX_PIECE == 0 < cut[2]
        assert other == (9, JSON, 2)
        assert two.decoder._parts == {}


async def test_who_waits_for_a_full_link_writes_in_turn() -> None:
    async with ends() as two, trio.open_nursery() as nursery:
        count = two.fill()
        for stream in (2, 3, 4):
            frames = [write_frame(stream, WRITE, PIECE)] * 3
            nursery.start_soon(two.writer.say, frames, lambda: True, b"")
            await trio.testing.wait_all_tasks_blocked()
        heard = await two.heard(count + 9)
        assert [stream for stream, _, _ in heard[count:]] == [2, 3, 4] * 3


async def test_what_is_not_wanted_any_more_is_not_said_and_holds_up_no_one() -> None:
    async with ends() as two, trio.open_nursery() as nursery:
        count = two.fill()
        wanted = [True]
        nursery.start_soon(two.writer.say, [write_frame(2, JSON, PIECE)], lambda: wanted[0], b"")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(two.writer.say, [write_frame(3, JSON, PIECE)], lambda: True, b"")
        await trio.testing.wait_all_tasks_blocked()
        wanted[0] = False
        assert (await two.heard(count + 1))[count:] == [(3, JSON, MAX_PIECE)]


async def test_everyone_who_waits_hears_the_end_of_the_link() -> None:
    async with ends() as two:
        two.fill()
        failures: list[Exception] = []

        async def say() -> None:
            try:
                await two.writer.say([write_frame(2, JSON, PIECE)], lambda: True, b"")
            except trio.BrokenResourceError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(say)
            await trio.testing.wait_all_tasks_blocked()
            two.wire.close()
        assert len(failures) == 5


async def test_a_full_link_is_closed_after_what_was_begun() -> None:
    async with ends() as two:
        count = two.fill()
        two.writer.close_after(write_frame(0, LAST, b"3"))
        assert await two.heard(count + 1) == [(1, WRITE, MAX_PIECE)] * count + [(0, LAST, 1)]
        assert await two.far.receive_some(1) == b""


async def test_at_the_end_of_a_worker_a_full_link_makes_no_one_wait() -> None:
    async with ends(is_ending=True) as two:
        for _ in range(9):
            two.writer.say_soon(write_frame(1, PART, PIECE))
        with trio.fail_after(1):
            await two.writer.say([write_frame(2, JSON, PIECE)], lambda: True, b"")


# One client, and the others.


async def test_a_call_that_is_cancelled_on_a_full_link_is_the_only_one_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with office(tmp_path, settings=Settings(write_time=10)) as (_, (here, there)):
        victim = await through(await OpenSession.open(here.place, R4), there)
        waiting = await victim.begin("work", name="w")
        await here.house.wait_started("w")
        for _, actor in here.inner.supervisor_of(tree.CONNECTIONS).actors():
            assert isinstance(actor, HttpConnection)
            assert isinstance(actor.wire, SocketWire)
            actor.wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # less than a frame
        writer, allowed = link_of(there, here)._writer, trio.Semaphore(0)
        assert writer is not None
        wire, receive = writer.wire, SocketWire.receive

        async def receive_later(self: SocketWire, size: int = 65_536) -> bytes:
            if self is wire:
                await allowed.acquire()  # as while the loop of that worker is busy
            return await receive(self, size)

        monkeypatch.setattr(SocketWire, "receive", receive_later)
        floods: list[tuple[OpenSession, Any]] = []
        for number in range(4):
            session = await OpenSession.open(here.place, R4)
            away = await through(session, there)
            flood = {"size": 60_000, "count": 50, "name": f"f{number}"}
            body = away.request("tools/call", name="flood", arguments=flood)
            await (await there.place.connect()).send(away.post(body))
            floods.append((session, body["id"]))
        while len(here.house.started) < 5:  # noqa: ASYNC110
            await trio.sleep(0.01)
        await settle()
        for _ in range(20):  # then a request is in the middle of a frame
            allowed.release()
            await settle()
        async with trio.open_nursery() as nursery:
            for session, number in floods:
                own = attrs.evolve(session, client=await here.place.connect())
                cancelled = {"method": "notifications/cancelled", "params": {"requestId": number}}
                nursery.start_soon(own.say, cancelled)
            await settle()
            for _ in range(10_000):
                allowed.release()
        here.house.gates["w"].set()
        answer = await waiting.answer()
        assert b'"text":"w"' in answer.body


def relaying() -> list[str]:
    """The tasks that forward requests."""
    found, waiting = list[str](), [trio.lowlevel.current_root_task()]
    while waiting:
        task = waiting.pop()
        assert task is not None
        found += [task.name] if task.name.startswith("r-") else []
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


async def test_a_client_that_leaves_takes_the_task_along_that_sent_its_request(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        away = await through(await OpenSession.open(here.place, R4), there)
        name = "x" * MAX_PIECE  # too long to be sent without waiting
        client = await away.begin("work", name=name)
        await here.house.wait_started(name)
        assert len(relaying()) == 1
        await client.aclose()
        await settle()
        assert relaying() == []


async def test_numbers_of_streams_begin_anew_without_those_that_are_in_use(tmp_path: Path) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        away = await through(await OpenSession.open(here.place, R4), there)
        link = link_of(there, here)
        waiting = await away.begin("work", name="w")  # has number 1, still after the last one
        await here.house.wait_started("w")
        link._latest = NUMBERS - 2
        for _ in range(4):
            other = await through(session, there)
            assert (await other.call("echo", text="hi")).result["content"][0]["text"] == "hi"
        assert sorted(link._streams) == [1]
        assert link._latest == NUMBERS + 4  # without 0 and 1
        link._give_back(4)
        assert sorted(link._streams) == [1]  # it was begun, long ago
        here.house.gates["w"].set()
        assert (await waiting.answer()).status == 200


def test_which_of_two_requests_was_sent_later_is_known_beyond_the_last_number() -> None:
    assert is_later(5, 4)
    assert is_later(2, NUMBERS - 3)
    assert not is_later(4, 4)
    assert not is_later(NUMBERS - 3, 2)


async def test_streams_that_wait_leave_room_for_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_STREAMS", 2)
    monkeypatch.setattr(link_module, "MAX_LISTENING", 4)
    async with office(tmp_path) as (_, (here, there)):
        sessions = [await OpenSession.open(here.place, R4) for _ in range(6)]
        streams = [await (await through(session, there)).listen() for session in sessions[:4]]
        last = await through(sessions[4], there)
        await last.client.send(last.get())
        assert (await last.client.answer()).status == 503
        away = await through(sessions[5], there)
        assert (await away.call("echo", text="hi")).status == 200
        for session, name in zip(sessions, ("a", "b"), strict=False):
            await (await through(session, there)).begin("work", name=name)
        await here.house.wait_started("a", "b")
        assert (await away.call("echo", text="hi")).status == 503
        await streams[0].client.aclose()
        await settle()
        link = link_of(there, here)
        assert (link.facts()["requests"], link.facts()["listening"]) == (2, 3)
        again = await (await through(sessions[4], there)).listen()
        here.house.server.notify_changed("tools")
        assert (await again.message())["method"] == "notifications/tools/list_changed"


async def test_the_end_of_a_stream_is_heard_though_the_link_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with office(tmp_path) as (_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        stream = await (await through(session, there)).listen()
        monkeypatch.setattr(SocketWire, "send_soon", lambda self, data: False)
        assert (await session.delete()).status == 204
        assert await stream.rest() == []
        await settle()
        assert link_of(there, here).facts()["listening"] == 0
