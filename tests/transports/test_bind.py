"""Addresses as people write them, and the sockets behind them."""

import os
import socket
import stat
from pathlib import Path

import pytest
import trio

from callboard.errors import CannotServe
from callboard.transports.bind import KEEP_ALIVE, USER_TIMEOUT, BindAddress, listen
from callboard.transports.wire import SocketWire

HERE = "127.0.0.1"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("127.0.0.1:8000", BindAddress("127.0.0.1", 8000)),
        (":8000", BindAddress(HERE, 8000)),
        ("8000", BindAddress(HERE, 8000)),
        (8000, BindAddress(HERE, 8000)),
        (" 0 ", BindAddress(HERE, 0)),
        ("[::1]:8000", BindAddress("::1", 8000)),
        ("[::]:65535", BindAddress("::", 65535)),
        ("localhost:8000", BindAddress("localhost", 8000)),
        ("my-host.example.com:1", BindAddress("my-host.example.com", 1)),
        ("unix:/run/a.sock", BindAddress(path="/run/a.sock")),
        ("unix:relative.sock", BindAddress(path="relative.sock")),
    ],
)
def test_an_address_is_read_as_it_is_meant(written: str | int, meant: BindAddress) -> None:
    assert BindAddress.parse(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        *("", "localhost", "localhost:", "::1:8000", "[::1]", "http://localhost:8000", "localhost:65536", "a b:80"),
        *("localhost:-1", "localhost:8o80", "localhost:٨", "a/b:80", "unix:", "[::1:80", "x:1:2", -1),
    ],
)
def test_what_is_no_address_is_refused_in_words(written: str | int) -> None:
    with pytest.raises(CannotServe, match=r"expected HOST:PORT|needs a path"):
        BindAddress.parse(written)


@pytest.mark.parametrize(
    ("place", "url"),
    [
        (BindAddress(HERE, 80), "http://127.0.0.1:80/mcp"),
        (BindAddress("::1", 80), "http://[::1]:80/mcp"),
        (BindAddress("localhost", 80), "http://localhost:80/mcp"),
        (BindAddress("0.0.0.0", 80), "http://127.0.0.1:80/mcp"),  # noqa: S104  # nothing is bound here
        (BindAddress("::", 80), "http://[::1]:80/mcp"),
        (BindAddress(path="/run/a b.sock"), "http+unix://%2Frun%2Fa%20b.sock/mcp"),
    ],
)
def test_a_url_is_one_that_a_client_can_connect_to(place: BindAddress, url: str) -> None:
    assert place.url("http") == url


@pytest.mark.parametrize("written", ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "localhost:80", "80", "unix:/x"])
def test_what_only_this_machine_can_reach_is_local(written: str) -> None:
    assert BindAddress.parse(written).is_local
    assert not BindAddress("192.0.2.1", 80).is_local


async def test_any_port_is_one_that_listens() -> None:
    async with listen(BindAddress(HERE, 0)) as bound:
        assert bound.place.port > 0
        (listening,) = bound.sockets
        socket.create_connection((HERE, bound.place.port)).close()
        assert not listening.getblocking()
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HERE, bound.place.port))


async def test_a_name_is_every_address_that_it_has_here_and_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(*_: object, **__: object) -> list[object]:
        kind = (socket.SOCK_STREAM, 6, "")
        return [
            (socket.AF_INET, *kind, (HERE, 0)),
            (socket.AF_INET, *kind, (HERE, 0)),  # as systems with two entries have it
            (socket.AF_INET, *kind, ("127.0.0.2", 0)),
            (socket.AF_INET, *kind, ("192.0.2.1", 0)),  # not of this machine
        ]

    monkeypatch.setattr("trio.socket.getaddrinfo", both)
    async with listen(BindAddress("both.example", 0)) as bound:
        names = [listening.getsockname() for listening in bound.sockets]
        assert names == [(HERE, bound.place.port), ("127.0.0.2", bound.place.port)]


async def test_the_name_of_this_machine_listens_on_each_loopback_address() -> None:
    async with listen(BindAddress("localhost", 0)) as bound:
        assert {listening.getsockname()[0] for listening in bound.sockets} <= {HERE, "::1"}
        assert {listening.getsockname()[1] for listening in bound.sockets} == {bound.place.port}


async def test_a_taken_port_is_refused_and_leaves_nothing_open() -> None:
    async with listen(BindAddress(HERE, 0)) as bound:
        with pytest.raises(CannotServe, match=f"^127.0.0.1:{bound.place.port}: address already in use$"):
            async with listen(bound.place):
                pass


async def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(CannotServe, match=r"^192.0.2.1:0: cannot assign requested address$"):
        async with listen(BindAddress("192.0.2.1", 0)):
            pass


# Unix sockets.


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # the path of a Unix socket may be 107 bytes long, and no longer
    return Path("a.sock")


async def test_a_unix_socket_is_its_user_s_alone_and_goes_with_its_server(path: Path) -> None:
    before = os.umask(0)
    try:
        async with listen(BindAddress(path=str(path))) as bound:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600  # noqa: ASYNC240
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
            assert len(bound.sockets) == 1
        assert not path.exists()  # noqa: ASYNC240
    finally:
        os.umask(before)


async def test_a_live_unix_socket_is_not_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen(0)
        for _ in range(3):  # its backlog is full after the first: it lives all the same
            with pytest.raises(CannotServe, match="address already in use"):
                async with listen(BindAddress(path=str(path))):
                    pass
        assert path.is_socket()  # noqa: ASYNC240


async def test_a_stale_unix_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()  # noqa: ASYNC240
    async with listen(BindAddress(path=str(path))):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


async def test_a_file_that_is_no_socket_is_never_touched(path: Path) -> None:
    path.write_text("precious")  # noqa: ASYNC240
    with pytest.raises(CannotServe, match="not a socket"):
        async with listen(BindAddress(path=str(path))):
            pass
    assert path.read_text() == "precious"  # noqa: ASYNC240


async def test_what_somebody_else_put_there_meanwhile_is_left(path: Path) -> None:
    async with listen(BindAddress(path=str(path))):
        path.rename("moved")  # noqa: ASYNC240
        path.write_text("theirs")  # noqa: ASYNC240
    assert path.read_text() == "theirs"  # noqa: ASYNC240


async def test_a_unix_socket_in_no_folder_is_refused_in_words(path: Path) -> None:
    with pytest.raises(CannotServe, match=r"^unix:no/such/folder: no such file or directory$"):
        async with listen(BindAddress(path="no/such/folder")):
            pass


@pytest.mark.finding("faults-low-keepalive")
async def test_the_kernel_asks_silent_clients_whether_they_are_there() -> None:
    async with listen(BindAddress("127.0.0.1", 0)) as bound:
        (listening,) = bound.sockets
        stream = await trio.open_tcp_stream("127.0.0.1", bound.place.port)
        await trio.lowlevel.wait_readable(listening)
        accepted, _ = listening.accept()
        async with stream:
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                if hasattr(socket, "TCP_KEEPIDLE"):
                    idle, pause, times = (
                        accepted.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name, _ in KEEP_ALIVE
                    )
                    assert 1000 * (idle + pause * times) <= USER_TIMEOUT  # else one lost probe ends a good connection
                SocketWire(accepted, 10).stop_probing()
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
