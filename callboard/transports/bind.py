"""Addresses to listen at, and their sockets.

TCP everywhere; Unix sockets where there are any. Nothing here accepts a connection.
"""

import errno
import os
import re
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import attrs
import trio

from callboard.codecs.http.access import is_loopback
from callboard.errors import CannotServe

BACKLOG: Final = 1024
"""Connections that wait in the kernel to be accepted."""

USER_TIMEOUT: Final = 30_000
"""Milliseconds after which the kernel gives up on a peer that acknowledges nothing, where it can."""

KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""When the kernel asks a silent peer whether it is still there, in seconds, and how often, where that can be set: a
request whose client has vanished is cancelled within half a minute, and not when its answer cannot be delivered. Linux
goes by `USER_TIMEOUT` and not by the count: three probes must fit into it, or one lost probe ends a good connection."""

TRIES: Final = 8
"""How often a free port is looked for that is free on every address of a name."""

_HERE: Final = "127.0.0.1"
_UNIX: Final = "unix:"
_ADDRESS: Final = re.compile(r"(?:(\[[0-9a-fA-F:.%\w]+\]|[^:\[\]/\s]*):)?([0-9]{1,5})", re.ASCII)
_NOT_HERE: Final = frozenset((errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL))


@attrs.frozen
class BindAddress:
    """An address to listen on: host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str | int) -> Self:
        """Read `127.0.0.1:8000`, `localhost:8000`, `[::1]:8000`, `:8000` or `8000` (this machine), `unix:/path`.

        Port 0 is any that is free. Raises `CannotServe`.
        """
        written = str(text).strip()
        if written.startswith(_UNIX):
            path = written.removeprefix(_UNIX)
            if not path:
                raise CannotServe("unix: needs a path, such as unix:/run/weather.sock")
            return cls(path=path)
        match = _ADDRESS.fullmatch(written)
        if match is None or int(match[2]) > 65_535:
            raise CannotServe(f"invalid address {written[:200]!r}: expected HOST:PORT, [IPV6]:PORT, PORT or unix:/path")
        return cls((match[1] or _HERE).strip("[]"), int(match[2]))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.path is not None or is_loopback(self.host)

    def url(self, scheme: str) -> str:
        """As a client is told. A name for all addresses is no address to connect to, so this machine's stands in."""
        if self.path is not None:
            return f"{scheme}+unix://{quote(self.path, safe='')}/mcp"
        host = {"0.0.0.0": _HERE, "::": "::1"}.get(self.host, self.host)  # noqa: S104  # compared, not bound
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/mcp"

    def __str__(self) -> str:
        if self.path is not None:
            return _UNIX + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_own_address(address: str) -> bool:
    """Whether *address* is one of this machine's now: only then a socket can be bound to it. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


@attrs.frozen
class Bound:
    """Sockets that listen, and where: with the port that was found, if any would do."""

    place: BindAddress
    sockets: tuple[socket.socket, ...]


@asynccontextmanager
async def listen(place: BindAddress) -> AsyncIterator[Bound]:
    """Listen at *place* until the block ends. Raises `CannotServe`."""
    if place.path is not None:
        await trio.lowlevel.checkpoint()
        with _listen_unix(place.path) as listening:
            yield Bound(place, (listening,))
        return
    with ExitStack() as stack:
        try:
            found = await trio.socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise CannotServe(f"{place}: {error.strerror or error}") from None
        addresses: list[tuple[socket.AddressFamily, str]]
        addresses = list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))
        sockets = _listen_all(place, addresses)
        for listening in sockets:
            stack.enter_context(closing(listening))
        yield Bound(attrs.evolve(place, port=sockets[0].getsockname()[1]), tuple(sockets))


def _listen_all(place: BindAddress, addresses: list[tuple[socket.AddressFamily, str]]) -> list[socket.socket]:
    for left in reversed(range(TRIES)):
        try:
            return _on_one_port(addresses, place.port)
        except OSError as error:
            # A port that was free on the first address and is taken on the next: look for another one.
            if place.port or error.errno != errno.EADDRINUSE or not left:
                raise CannotServe(f"{place}: {_reason(error)}") from None
    raise AssertionError("the last attempt returns or raises")


def _on_one_port(addresses: list[tuple[socket.AddressFamily, str]], port: int) -> list[socket.socket]:
    """One socket for each address that this machine has: of the two of `localhost`, often only one."""
    missing = OSError(errno.EADDRNOTAVAIL, "")
    with ExitStack() as on_failure:
        opened: list[socket.socket] = []
        for family, host in addresses:
            try:
                listening = _listen_tcp(family, host, port)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
            else:
                opened.append(on_failure.enter_context(closing(listening)))
                port = listening.getsockname()[1]
        if not opened:
            raise missing
        on_failure.pop_all()
        return opened


def _listen_tcp(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    with ExitStack() as on_failure:
        listening = on_failure.enter_context(closing(socket.socket(family, socket.SOCK_STREAM)))
        if os.name == "posix":  # elsewhere it means that another process may take the port over
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted ones inherit these
        for name, value in KEEP_ALIVE:
            if hasattr(socket, name):
                listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT)
        listening.setblocking(False)
        listening.bind((host, port))
        listening.listen(BACKLOG)
        on_failure.pop_all()
        return listening


@contextmanager
def _listen_unix(path: str) -> Iterator[socket.socket]:
    """A Unix socket that only this user may connect to. A stale one is replaced."""
    if not hasattr(socket, "AF_UNIX"):
        raise CannotServe(f"unix:{path}: Unix sockets are not supported on this system")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listening:
        try:
            _clear(path)
            before = os.umask(0o177)
            try:
                listening.bind(path)
            finally:
                os.umask(before)
            listening.setblocking(False)
            listening.listen(BACKLOG)
        except OSError as error:
            raise CannotServe(f"unix:{path}: {_reason(error)}") from None
        ours = Path(path).stat().st_ino
        try:
            yield listening
        finally:
            with suppress(OSError):
                if Path(path).stat().st_ino == ours:
                    Path(path).unlink()


def _clear(path: str) -> None:
    """Remove a stale socket. Raises `CannotServe` if anything else is there."""
    try:
        mode = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise CannotServe(f"unix:{path}: the file exists and is not a socket")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.setblocking(False)  # a listener with a full backlog is alive, too
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        except BlockingIOError:
            pass
    raise CannotServe(f"unix:{path}: address already in use")


def _reason(error: OSError) -> str:
    text = os.strerror(error.errno) if error.errno else str(error)
    return text[:1].lower() + text[1:]
