"""The listener: what happens when the system has no room, and what it can listen on."""

import errno
import os
import socket
import tracemalloc
from pathlib import Path

import pytest
import trio

from callboard.codecs.http.access import EVERYONE
from callboard.transports.limits import Settings
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.listener import PAUSE, Edge, http_edge
from callboard.transports.wire import Wire
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import PATIENCE, Client, serving, settle

EACH_SLOW = 64 * 1024
"""Most bytes that a peer which has not finished its head may cost, both ends of it counted here."""


class Reluctant(socket.socket):
    """A socket that fails to accept as often as it is told to."""

    failures: list[int]
    __slots__ = ("failures",)

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            number = self.failures.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ECONNABORTED, errno.EPROTO])
async def test_a_listener_outlives_what_the_system_says_to_it(number: int) -> None:
    with trio.fail_after(PATIENCE), Reluctant() as listening:
        listening.failures = [number] * 3
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        async with open_house().server.host() as host:
            endpoint = Endpoint(host, EVERYONE, Settings(write_time=1))
            edge = await host.root.add(http_edge("http", endpoint, [listening]))
            started = trio.current_time()
            bare = trio.socket.socket()
            with bare:
                await bare.connect(listening.getsockname())
                client = Client(trio.SocketStream(bare), bare, b"x")
                assert (await client.call("echo", text="x")).result
            assert trio.current_time() - started < 3 * PAUSE + 1
            assert not any(child.restarts for child in edge.tree().children)


@pytest.mark.finding("faults-C1")
async def test_a_listener_outlives_a_connection_that_cannot_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(open_house().server) as place:
        with monkeypatch.context() as patched:

            def fail(*_: object) -> Wire:
                raise MemoryError

            patched.setattr(Edge, "wire", fail)
            for _ in range(20):
                assert await (await place.connect()).ended() == b""
        assert (await (await place.connect()).call("echo", text="x")).result
        assert not any(child.restarts for child in place.edge.tree().children)


async def test_a_unix_socket_is_served_like_any_other(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE), socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "mcp.sock"))
        listening.listen()
        async with open_house().server.host() as host:
            await host.root.add(http_edge("http", Endpoint(host, EVERYONE, Settings(write_time=1)), [listening]))
            stream = await trio.open_unix_socket(str(tmp_path / "mcp.sock"))
            async with stream:
                client = Client(stream, stream.socket, b"anything")
                assert (await client.call("echo", text="x")).result


async def test_several_sockets_are_one_edge() -> None:
    with trio.fail_after(PATIENCE), socket.socket() as first, socket.socket() as second:
        for listening in (first, second):
            listening.bind(("127.0.0.1", 0))
            listening.listen()
        async with open_house().server.host() as host:
            endpoint = Endpoint(host, EVERYONE, Settings(write_time=1, max_connections=2))
            await host.root.add(http_edge("http", endpoint, [first, second]))
            clients = []
            for listening in (first, second, first):
                stream = await trio.open_tcp_stream(*listening.getsockname())
                clients.append(Client(stream, stream.socket, b"x"))
            for client in clients[:2]:
                assert (await client.call("echo", text="x")).result
            assert await clients[2].ended() == b""  # together they have room for two
            for client in clients:
                await client.aclose()


async def test_14_slow_peers_are_cheap() -> None:
    async with serving(open_house().server, Settings(header_time=10, write_time=1)) as place:
        (await place.connect()).reset()  # what is made once is made
        await settle()
        tracemalloc.start()
        try:
            for _ in range(100):
                client = await place.connect()
                await client.send(b"POST /mcp HTTP/1.1\r\nX-Slow: " + b"a" * 1000)
            await settle()
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert place.connections == 100
        assert size / 100 < EACH_SLOW
