"""Lines over byte streams, and the pipes of a process. What a whole process does is in tests/cli/test_serving.py."""

import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from callboard import Server
from callboard.actors.server.host import Host
from callboard.actors.server.session import OUTBOX_BYTES
from callboard.actors.server.session_tree import open_session
from callboard.codecs.lines import LineDecoder
from callboard.codecs.revisions import MODERN, Revision, meta
from callboard.supervisor import Address
from callboard.transports.lines import IN_A_ROW, LineConnection
from callboard.transports.server.stdio import Pipes, Stdio, ThreadStream, open_fd

EVERY = pytest.mark.parametrize("revision", list(Revision), ids=str)


def hosted() -> Server:
    server = Server("lines", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    return server


def in_terms(revision: Revision, id: int, method: str, **params: Any) -> dict[str, Any]:
    if revision in MODERN:
        params["_meta"] = {meta.PROTOCOL_VERSION: revision.value, meta.CLIENT_CAPABILITIES: {}}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def handshake(revision: Revision) -> list[dict[str, Any]]:
    if revision in MODERN:
        return []
    who = {"protocolVersion": revision.value, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return [in_terms(revision, 0, "initialize", **who), {"jsonrpc": "2.0", "method": "notifications/initialized"}]


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(msgspec.json.encode(message) + b"\n" for message in messages)


def call(id: int, text: str) -> dict[str, Any]:
    return in_terms(Revision.V2026_07_28, id, "tools/call", name="echo", arguments={"text": text})


@attrs.define(eq=False)
class Client:
    """The other end of a byte stream: sends bytes, reads messages."""

    stream: trio.abc.Stream
    _decoder: LineDecoder = attrs.field(factory=LineDecoder, init=False)
    _read: list[Any] = attrs.field(factory=list, init=False)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def hear(self) -> Any:
        while not self._read:
            data = await self.stream.receive_some(65_536)
            assert data, "the server hung up"
            self._read += map(msgspec.json.decode, self._decoder.feed(bytes(data)))  # type: ignore[arg-type]
        return self._read.pop(0)


@asynccontextmanager
async def lined(limit: int = 1024) -> AsyncIterator[tuple[Client, Host]]:
    """A client on a memory stream, and the host at its other end."""
    there, here = memory_stream_pair()
    async with hosted().host() as host:
        await open_session(host, LineConnection(here, here, limit), "s")
        yield Client(there), host
        await there.aclose()


# Any byte stream.


@EVERY
@pytest.mark.requirement("M069", "M070", "L073")
async def test_another_byte_stream_carries_the_same_lines_messages_and_life_cycle(revision: Revision) -> None:
    with trio.fail_after(10):
        listener = trio.socket.socket()
        await listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = Client(await trio.open_tcp_stream(*listener.getsockname()))
        accepted, _ = await listener.accept()
        stream = trio.SocketStream(accepted)
        async with hosted().host() as host:
            await open_session(host, LineConnection(stream, stream), "tcp")
            await client.send(lines(*handshake(revision)))
            if revision not in MODERN:
                assert (await client.hear())["result"]["protocolVersion"] == revision
            await client.send(lines(in_terms(revision, 7, "tools/call", name="echo", arguments={"text": "over TCP"})))
            answer = await client.hear()
            assert answer["id"] == 7
            assert answer["result"]["content"][0]["text"] == "over TCP"
            await client.stream.aclose()
        await stream.aclose()
        listener.close()


async def test_both_eras_share_one_stream(autojump_clock: MockClock) -> None:
    async with lined() as (client, _):
        legacy, modern = Revision.V2025_03_26, Revision.V2026_07_28
        await client.send(lines(*handshake(legacy)))
        await client.send(lines(in_terms(modern, 1, "tools/list"), in_terms(legacy, 2, "tools/list")))
        answers = {answer["id"]: answer["result"] for answer in [await client.hear() for _ in range(3)]}
        assert answers[1]["resultType"] == "complete"
        assert "resultType" not in answers[2]


async def test_a_line_over_the_limit_is_refused_without_an_id_and_reading_goes_on(autojump_clock: MockClock) -> None:
    async with lined(limit=1024) as (client, _):
        await client.send(lines(call(1, "x" * 2000), call(2, "short")))
        refused, answer = await client.hear(), await client.hear()
        assert refused["error"]["code"] == -32600
        assert "id" not in refused
        assert "1024" in refused["error"]["message"]
        assert answer["id"] == 2


async def test_blank_lines_are_no_messages_and_garbage_is_answered_once(autojump_clock: MockClock) -> None:
    async with lined() as (client, _):
        await client.send(b"\n \r\n\t\n" + b"garbage\n" + lines(call(1, "x")))
        assert (await client.hear())["error"]["code"] == -32700
        assert (await client.hear())["id"] == 1


async def test_a_last_line_without_its_newline_counts(autojump_clock: MockClock) -> None:
    there, here = memory_stream_pair()
    async with hosted().host() as host:
        session = await open_session(host, LineConnection(here, here), "s")
        await there.send_all(lines(in_terms(Revision.V2026_07_28, 1, "tools/list"))[:-1])
        await there.send_eof()
        assert (await Client(there).hear())["id"] == 1
        await session.address.wait_ended()


async def test_newlines_inside_a_frame_never_make_two_lines(autojump_clock: MockClock) -> None:
    there, here = memory_stream_pair()
    await LineConnection(here, here).send(b'{\n "pretty": "printed\\n"\r\n}')
    assert await there.receive_some() == b'{  "pretty": "printed\\n"  }\n'


async def test_many_short_lines_leave_others_their_turn(autojump_clock: MockClock) -> None:
    there, here = memory_stream_pair()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await there.send_all(b"[]\n" * 10 * IN_A_ROW)
        await there.aclose()
        assert len([line async for line in LineConnection(here, here)]) == 10 * IN_A_ROW
        nursery.cancel_scope.cancel()
    assert turns >= 9


# Pipes.


@contextmanager
def two_pipes() -> Iterator[tuple[Pipes, int, int]]:
    """What a process is given, and the ends that whoever started it keeps: to write to it, and to read from it."""
    incoming, to_it = os.pipe()
    from_it, outgoing = os.pipe()
    try:
        yield Pipes(incoming, outgoing), to_it, from_it
    finally:
        os.close(incoming)
        os.close(outgoing)


@asynccontextmanager
async def piped() -> AsyncIterator[tuple[trio.lowlevel.FdStream, trio.lowlevel.FdStream, Address[Any], Host]]:
    with trio.fail_after(10), two_pipes() as (pipes, to_it, from_it):
        async with (
            trio.lowlevel.FdStream(to_it) as writing,
            trio.lowlevel.FdStream(from_it) as reading,
            hosted().host() as host,
        ):
            edge = host.root.spawn(Stdio(host, pipes), name="stdio")
            yield writing, reading, edge, host
            await edge.stop()
        assert os.get_blocking(pipes.incoming)
        assert os.get_blocking(pipes.outgoing)


async def test_the_end_of_input_ends_it_and_what_is_in_flight_and_what_was_answered_is_written() -> None:
    async with piped() as (writing, reading, edge, host):
        waits = in_terms(Revision.V2026_07_28, 1, "tools/call", name="wait", arguments={})
        await writing.send_all(lines(waits, in_terms(Revision.V2026_07_28, 2, "tools/list")))
        await writing.aclose()
        await edge.wait_ended()
        assert (await Client(reading).hear())["id"] == 2
        await wait_all_tasks_blocked()
        assert not host.root.supervisor_of("requests").actors()


async def test_a_reader_that_goes_away_ends_it() -> None:
    async with piped() as (writing, reading, edge, _):
        await reading.aclose()
        await writing.send_all(lines(in_terms(Revision.V2026_07_28, 1, "tools/list")))
        await edge.wait_ended()


async def test_a_full_pipe_is_back_pressure_and_nothing_is_lost() -> None:
    size, count = 1_000_000, 30
    async with piped() as (writing, reading, _, host):
        sent: list[int] = []

        async def send() -> None:
            for number in range(count):
                await writing.send_all(lines(call(number, "x" * size)))
                sent.append(number)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while not any(fact["in_flight"] for fact in _facts(host)):
                await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked(0.2)
            # What waits is what fits into the outbox, and the answers of those who found no room in it.
            assert len(sent) < OUTBOX_BYTES // size + host.most_in_flight
            client = Client(reading)
            client._decoder = LineDecoder(size * 2)
            answers = [await client.hear() for _ in range(count)]
        assert sorted(answer["id"] for answer in answers) == list(range(count))
        assert all(len(answer["result"]["content"][0]["text"]) == size for answer in answers)


def _facts(host: Host) -> Iterator[Any]:
    for snapshot in host.root.supervisor_of("sessions").tree().walk():
        if snapshot.kind == "Session":
            yield snapshot.facts


async def test_stopped_while_nobody_reads_it_does_not_hang() -> None:
    async with piped() as (writing, _, edge, host):
        await writing.send_all(lines(*(call(number, "x" * 60_000) for number in range(32))))  # a pipe holds a megabyte
        await wait_all_tasks_blocked(0.1)
        assert any(snapshot.mailbox_depth for snapshot in host.root.tree().walk())
        edge.kill()
        await edge.wait_ended()


async def test_a_file_that_cannot_be_waited_for_is_read_and_written_all_the_same() -> None:
    with trio.fail_after(10), tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answered:
        asked.write(lines(in_terms(Revision.V2026_07_28, 1, "tools/list")))
        asked.seek(0)
        async with hosted().host() as host:
            edge = host.root.spawn(Stdio(host, Pipes(asked.fileno(), answered.fileno())), name="stdio")
            await edge.wait_ended()
        answered.seek(0)
        assert msgspec.json.decode(answered.read())["id"] == 1


async def test_nothing_to_read_is_the_end() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        with trio.fail_after(10):
            async with hosted().host() as host:
                await host.root.spawn(Stdio(host, Pipes(nothing, nothing)), name="stdio").wait_ended()
    finally:
        os.close(nothing)


async def test_a_terminal_keeps_its_flags_and_a_socket_gets_them_back() -> None:
    keyboard, terminal = os.openpty()
    left, right = socket.socketpair()
    try:
        async with open_fd(terminal) as stream:
            assert isinstance(stream, ThreadStream)
            assert os.get_blocking(terminal)
            os.write(keyboard, b"typed\n")
            with trio.fail_after(10):
                assert await stream.receive_some(100) == b"typed\n"
        async with open_fd(left.fileno()), open_fd(left.fileno()):
            assert not os.get_blocking(left.fileno())
        assert os.get_blocking(left.fileno())
    finally:
        os.close(keyboard)
        os.close(terminal)
        left.close()
        right.close()


async def test_a_thread_that_cannot_write_says_that_the_peer_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "read-only"
    path.touch(mode=stat.S_IRUSR)
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(trio.BrokenResourceError):
            await ThreadStream(fd).send_all(b"x")
    finally:
        os.close(fd)
    with pytest.raises(trio.BrokenResourceError):
        await ThreadStream(fd).receive_some(1)
