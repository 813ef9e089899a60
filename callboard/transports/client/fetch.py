"""Small fetches from URLs that servers name: each URL is checked first, and the response is limited in size and time.

A name is looked up once, every address that it has is checked, and one of these is connected to: a name that means
something else at the next look gains nothing. No redirect is followed.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs
import trio

from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.oauth.addresses import Location, Reach, check_address, locate
from callboard.errors import BadAnswer, ConnectionLost, FetchFailed
from callboard.transports.client.pool import Channel
from callboard.transports.client.tls import secured, why_untrusted
from callboard.transports.wire import SocketWire, Wire

FETCH_TIME: Final = 5.0
"""Seconds for one fetch, from the question to the DNS to the last byte of the answer."""

MAX_FETCHED: Final = 64 * 1024
"""Largest answer that is fetched, in bytes."""

ATTEMPT_TIME: Final = 1.0
"""Seconds for one address to accept, if there is another: many names have one that leads nowhere."""

MAX_ADDRESSES: Final = 4
"""Most addresses of one name that are tried. All of them are checked."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host. Raises OSError."""
Connect: TypeAlias = Callable[[str, int], Awaitable[socket.socket]]
"""A connection to an address, which is none that has to be looked up. Raises OSError."""


@attrs.frozen
class Fetched:
    """An answer, whole."""

    head: AnswerHead
    body: bytes = attrs.field(repr=False)

    @property
    def status(self) -> int:
        return self.head.status


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve *host*."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def connect(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with trio.socket.socket(family, socket.SOCK_STREAM) as connecting:
        await connecting.connect((address, port))
        connected = socket.socket(fileno=connecting.detach())
    connected.setblocking(False)
    return connected


@attrs.frozen
class Fetcher:
    """Fetches within *reach*."""

    reach: Reach
    resolve: Resolve = resolve
    connect: Connect = connect
    tls: ssl.SSLContext | None = None

    async def get(self, url: str) -> Fetched:
        """Raises `UnsafeUrl`, `FetchFailed`."""
        return await self._fetch("GET", url, {"accept": "application/json"}, b"")

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Fetched:
        """Raises `UnsafeUrl`, `FetchFailed`."""
        own = {"accept": "application/json", "content-length": str(len(body))}
        return await self._fetch("POST", url, {**own, **headers}, body)

    async def _fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Fetched:
        there = locate(url, self.reach)
        request = _request(method, there, headers, body)
        with trio.move_on_after(FETCH_TIME):
            wire = await self._reach(there)
            try:
                channel = Channel(wire)
                await channel.send(request)
                head = await channel.head()
                return Fetched(head, b"" if head.status == 204 else await channel.whole(MAX_FETCHED))
            except (ConnectionLost, BadAnswer) as error:
                raise FetchFailed(f"{there.host}: {error}") from None
            finally:
                wire.close()
        raise FetchFailed(f"{there.host}: timed out after {FETCH_TIME:g} s")

    async def _reach(self, there: Location) -> Wire:
        try:
            connected = await self._connect(there)
            if there.scheme == "http":
                return SocketWire(connected, FETCH_TIME)
            return await secured(connected, there.host, self.tls, FETCH_TIME)
        except ssl.SSLError as error:
            raise FetchFailed(f"{there.host}: TLS: {why_untrusted(error)}") from None
        except (OSError, trio.BrokenResourceError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FetchFailed(f"{there.host}: {reason}") from None

    async def _connect(self, there: Location) -> socket.socket:
        addresses = await self.resolve(there.host, there.port)
        for address in addresses:
            check_address(address, there.host, self.reach)
        failure = OSError("cannot resolve the host name")
        tried = addresses[:MAX_ADDRESSES]
        for address in tried:
            try:
                with trio.move_on_after(FETCH_TIME if address == tried[-1] else ATTEMPT_TIME):
                    return await self.connect(address, there.port)
            except OSError as error:
                failure = error
        raise failure


def _request(method: str, there: Location, headers: Mapping[str, str], body: bytes) -> bytes:
    host = f"[{there.host}]" if ":" in there.host else there.host
    is_usual = there.port == (443 if there.scheme == "https" else 80)
    lines = [
        f"{method} {there.target} HTTP/1.1",
        f"host: {host if is_usual else f'{host}:{there.port}'}",
        "connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
