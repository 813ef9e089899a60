"""Targets of `connect`: URLs, commands, files that name either, and servers in this process."""

import ssl
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

import attrs

from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.client.target_hints import no_target
from callboard.config.entry import Remote, is_entry, read_entry
from callboard.errors import CannotConnect, CannotServe, InvalidTarget
from callboard.transports.client.credentials import Auth
from callboard.transports.client.http import HttpLink
from callboard.transports.client.pool import Origin, Pool, shown
from callboard.transports.client.process import Command, OnStderr, running
from callboard.transports.client.sse_pair import open_pair
from callboard.transports.memory import memory_pair

if TYPE_CHECKING:  # a client of a URL needs neither a server nor a WebSocket, and both take time to load
    from callboard.server.server import Server

_HTTP: Final = ("http", "https")
_WEBSOCKET: Final = ("ws", "wss")


@attrs.frozen(kw_only=True)
class ClientAccess:
    """Headers, TLS and credentials for every server that is reached over the network."""

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    auth: Auth | None = None
    on_stderr: OnStderr | None = None
    """Is given each line that a server of ours writes to its standard error, in place of the log."""


@attrs.frozen
class TransportRoute:
    """One way in which a target may be reached."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Link]]
    is_legacy: bool = False
    """Whether no modern server is at its end."""


@attrs.frozen
class TransportRoutes:
    """The ways to one target, the likeliest first."""

    key: Hashable
    """Key of the target for later connections; None if it need not be remembered."""
    ways: tuple[TransportRoute, ...]


Target: TypeAlias = "str | Sequence[str] | Command | Remote | Server | TransportRoutes"
"""A URL, `FILE.py:NAME`, `FILE.json#NAME`, a command with its arguments, a `Server`, or ways of one's own."""


def ways_to(target: Target, access: ClientAccess) -> TransportRoutes:
    """How *target* may be reached. Raises `CannotConnect`, and `InvalidTarget` for what is none."""
    if isinstance(target, str):
        target = _named(target)
    if isinstance(target, TransportRoutes):
        return target
    if isinstance(target, Remote):
        return _by_url(target, access)
    if not isinstance(target, Command | Sequence):
        return TransportRoutes(None, (TransportRoute("memory", lambda: _in_memory(target)),))
    command = target if isinstance(target, Command) else Command.of(target)
    return TransportRoutes(
        (command.args, command.cwd), (TransportRoute("stdio", lambda: running(command, access.on_stderr)),)
    )


def _named(text: str) -> "Remote | Command | Server":
    if "://" in text:
        return Remote(url=text)
    if is_entry(text):
        return read_entry(text)
    from callboard.server.load import NoSuchServer, is_module_target, load_server  # with all that a server needs

    if ".py" not in text and not (":" in text and is_module_target(text)):
        raise no_target(text)
    try:
        return load_server(text)
    except NoSuchServer as error:
        raise InvalidTarget(str(error)) from None
    except CannotServe as error:
        raise CannotConnect(str(error)) from None


@asynccontextmanager
async def _in_memory(server: "Server") -> AsyncIterator[Link]:
    from callboard.actors.server.session_tree import open_session

    async with server.host() as host:
        there, here = memory_pair()
        await open_session(host, here, "client")
        try:
            yield DuplexLink(there)
        finally:
            there.close()


def _by_url(remote: Remote, access: ClientAccess) -> TransportRoutes:
    try:
        parts = urlsplit(remote.url)
    except ValueError as error:
        raise InvalidTarget(f"invalid server URL {shown(remote.url)}: {error}") from None
    origin = Origin.of(parts)
    target = _asked_for(parts)
    headers = _encoded({**remote.headers, **access.headers})
    credentials = None if access.auth is None else access.auth.credentials(remote.url)

    def link() -> HttpLink:
        return HttpLink(Pool(origin, access.tls), target, headers, credentials)

    if origin.scheme in _WEBSOCKET:
        from callboard.transports.client.websocket import open_websocket
        from callboard.transports.client.websocket_socket import Door

        door = Door(origin, target, headers, access.tls, credentials=credentials)
        return TransportRoutes((origin, target), (TransportRoute("websocket", lambda: open_websocket(door)),))
    http = TransportRoute("http", lambda: _http(link()))
    pair = TransportRoute("sse", lambda: open_pair(link()), is_legacy=True)
    ways = {"http": (http,), "sse": (pair,)}.get(remote.kind, (pair, http) if _is_pair(parts) else (http, pair))
    return TransportRoutes((origin, target), ways)


@asynccontextmanager
async def _http(link: HttpLink) -> AsyncIterator[Link]:
    try:
        yield link
    finally:
        link.pool.close()


def _is_pair(parts: SplitResult) -> bool:
    """Whether the path is the one that such servers have."""
    return parts.path.rstrip("/").endswith("/sse")


def _asked_for(parts: SplitResult) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise InvalidTarget(
            f"invalid server URL {shown(parts.geturl())}: characters other than ASCII must be percent-encoded"
        )
    return target.encode()


def _encoded(headers: Mapping[str, str]) -> Sequence[tuple[bytes, bytes]]:
    """Raises `CannotConnect` for what could not stand in a header."""
    for name, value in headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise CannotConnect(f"invalid header name {name[:100]!r}")
        if not value.isascii() or not value.isprintable():
            raise CannotConnect(f"invalid value of header {name}")  # which may be a secret
    return list({name.lower().encode(): value.strip().encode() for name, value in headers.items()}.items())
