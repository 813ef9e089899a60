"""The way back from a browser: a listener on this machine that takes one redirect, and nothing else."""

import hmac
import os
import socket
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

import attrs
import trio

from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import RequestParser
from callboard.codecs.http.writer import write_answer
from callboard.codecs.oauth.addresses import is_here
from callboard.codecs.oauth.redirect import MAX_PARAMETERS, MAX_QUERY
from callboard.errors import NotAuthorized
from callboard.transports.wire import SocketWire

REQUEST_TIME: Final = 5.0
"""Seconds for a browser to say what it wants, and to take in the answer."""

MAX_VISITORS: Final = 8
"""Most connections at once; the next one waits."""

MAX_HEAD: Final = 32 * 1024
"""Longest head of a request, in bytes. Browsers send cookies of other programs on this machine along."""

MAX_HEADERS: Final = 100
"""Most headers of a request."""

_PAGE: Final = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>callboard</title>
<p>%b</p></html>
"""
_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


@attrs.define(eq=False)
class Loopback:
    """Waits for the one redirect that bears *state*. Others are turned away, and so is the same one a second time."""

    _authority: bytes
    _path: bytes
    _state: str = attrs.field(repr=False)
    _query: str | None = attrs.field(default=None, init=False, repr=False)
    _came: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def wait_redirect(self, listener: trio.socket.SocketType) -> str:
        """The query of the redirect that bears the state. Its sender has had an answer by then."""
        turn = trio.Semaphore(MAX_VISITORS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._accept, listener, turn)
            await self._came.wait()
            nursery.cancel_scope.cancel()
        return self._query or ""

    async def _accept(self, listener: trio.socket.SocketType, turn: trio.Semaphore) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await turn.acquire()
                connected, _ = await listener.accept()
                plain = socket.socket(fileno=connected.detach())
                plain.setblocking(False)
                nursery.start_soon(self._serve, SocketWire(plain, REQUEST_TIME), turn)

    async def _serve(self, wire: SocketWire, turn: trio.Semaphore) -> None:
        """Deal with one connection: one request, one answer."""
        status = 0
        try:
            with trio.move_on_after(REQUEST_TIME):
                status, text = await self._answer(wire)
                await wire.send(write_answer(status, _HEADERS, _PAGE % text.encode(), closes=True))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the browser is gone
        finally:
            wire.close()
            turn.release()
            if status == 200:
                self._came.set()

    async def _answer(self, wire: SocketWire) -> tuple[int, str]:
        parser = RequestParser(_admit, max_body=0, max_header=MAX_HEAD, max_headers=MAX_HEADERS)
        try:
            while True:
                data = await wire.receive()
                if not data:
                    raise trio.BrokenResourceError("the browser closed the connection")
                for received in parser.feed(data):
                    return self._take(received.head)
        except HttpRefusal as refusal:
            return refusal.status, "Bad request."

    def _take(self, head: Head) -> tuple[int, str]:
        if head.get(b"host") != self._authority or head.path != self._path:
            return 404, "Not found."
        query = head.query.decode("latin-1")
        if self._query is not None or not _bears(query, self._state):
            return 400, "No login is in progress for this request."
        self._query = query
        self._came.set()
        return 200, "Login complete. You can close this page."


async def listen(host: str, ports: Sequence[int]) -> trio.socket.SocketType:
    """Listen on the first of *ports* that is free. Raises `NotAuthorized`."""
    if not is_here(host):
        raise NotAuthorized(f"{host[:100]!r} is not a loopback address")
    address = "127.0.0.1" if host == "localhost" else host
    failure = "no free port"
    for port in ports:
        listener = trio.socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # elsewhere it lets others listen there too
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await listener.bind((address, port))
            listener.listen(MAX_VISITORS)
        except OSError as error:
            listener.close()
            failure = error.strerror or str(error)
            continue
        return listener
    raise NotAuthorized(f"cannot listen for the redirect: {failure}")


def _admit(head: Head) -> None:
    """Raises `HttpRefusal` for what no redirect is."""
    if head.method != "GET":
        raise HttpRefusal(405, "only GET", closes=True)
    if len(head.query) > MAX_QUERY:
        raise HttpRefusal(414, "too long", closes=True)


def _bears(query: str, state: str) -> bool:
    try:
        given = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        return False
    states = [value for name, value in given if name == "state"]
    return len(states) == 1 and hmac.compare_digest(states[0].encode(), state.encode())
