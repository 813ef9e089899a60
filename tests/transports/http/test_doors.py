"""What no client may do to a door: end it, or hide a second request behind one that was refused."""

import json
import socket
import struct
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import pytest
import trio

from callboard import Server
from callboard.serving import Ready, serve
from callboard.supervisor import live_trees
from callboard.transports.settings import Settings
from tests.transports.http.stage import PATIENCE, Client, request

SETTINGS: Final = Settings(drain_time=1.0, write_time=1.0, header_time=0.3, first_byte_time=0.4, keep_alive=0.6)


def hosted(ran: list[str]) -> Server:
    server = Server("behind a door")

    @server.tool
    async def run(text: str) -> str:
        ran.append(text)
        return text

    return server


class At:
    """A server that listens, and who asks it."""

    def __init__(self, ready: Ready) -> None:
        self.urls = {one.transport: urlsplit(one.url or "") for one in ready.listening}

    def port(self, transport: str) -> int:
        return self.urls[transport].port or 0

    async def connect(self, transport: str = "http") -> Client:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port(transport))
        return Client(stream, stream.socket, self.urls[transport].netloc.encode())

    async def throw(self, transport: str, data: bytes) -> bytes:
        """What comes back for *data* until the server hangs up, or says nothing more for a moment."""
        client = await self.connect(transport)
        try:
            await client.send(data)
            with trio.move_on_after(0.05):
                await client.ended()
        except trio.BrokenResourceError:
            pass
        finally:
            await client.aclose()
        return bytes(client._buffer)

    async def is_well(self) -> bool:
        client = await self.connect()
        try:
            answer = await client.call("run", text="still there")
        finally:
            await client.aclose()
        return answer.status == 200 and await self.status("/livez") == 200

    async def status(self, path: str) -> int:
        client = await self.connect("admin")
        try:
            await client.send(request("GET", path, host=client.host.decode()))
            return (await client.answer()).status
        finally:
            await client.aclose()


@asynccontextmanager
async def serving(ran: list[str] | None = None, **options: Any) -> AsyncIterator[At]:
    enough = trio.Event()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            given: Any = {"http": 0, "door": "asgi", "admin": 0, "settings": SETTINGS, **options}

            async def run(*, task_status: trio.TaskStatus[Ready]) -> None:
                server = hosted([] if ran is None else ran)
                await serve(server, until=enough.wait, task_status=task_status, **given)

            yield At(await nursery.start(run))
            enough.set()


def restarts() -> int:
    """How often anything was restarted."""

    def count(snapshot: Any) -> int:
        return int(snapshot.restarts) + sum(count(child) for child in snapshot.children)

    return sum(count(root.tree()) for root in live_trees())


def setting(number: int, value: int) -> str:
    return urlsafe_b64encode(struct.pack(">HI", number, value)).decode().rstrip("=")


def upgrade(settings: str, **more: str) -> bytes:
    return request("GET", "/", host="evil", upgrade="h2c", connection="Upgrade, HTTP2-Settings", http2_settings=settings)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def over_http_2(*headers: tuple[bytes, bytes], body: bytes | None = None) -> bytes:
    """A request in HTTP/2 that says just these headers, whether it may or not."""
    config = h2.config.H2Configuration(
        header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    connection.send_headers(1, list(headers), end_stream=body is None)
    if body is not None:
        connection.send_data(1, body, end_stream=True)
    return connection.data_to_send()


GET_2: Final = ((b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"x"))

MALFORMED: Final = {
    "h2c with settings that are no base64": upgrade("AAA"),
    "h2c with a window that is too large": upgrade(setting(4, 0xFFFFFFFF)),
    "h2c with a frame size that is too small": upgrade(setting(5, 1)),
    "h2c with half a setting": upgrade("AAAA"),
    "a WebSocket with a name that is no text": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \xff\xfe\r\n\r\n",
    "a WebSocket with a protocol that is no text": b"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Protocol: \xff\r\n\r\n",
    "a path that is no text": b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    "a preface and nothing else": PREFACE,
    "half a preface": PREFACE[:12],
    "a preface and noise": PREFACE + b"\xff" * 64,
    "HTTP/2 settings that are wrong": PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0xFFFFFFFF)),
    "HTTP/2 data for a stream that never was": PREFACE + frame(4, 0, 0) + frame(0, 0, 7, b"x"),
    "HTTP/2 without a path": over_http_2(*GET_2),
    "HTTP/2 with a path that is no text": over_http_2(*GET_2, (b":path", b"/\xff")),
    "HTTP/2 with a method that is no text": over_http_2((b":method", b"\xff"), *GET_2[1:], (b":path", b"/")),
    "HTTP/2 CONNECT": over_http_2((b":method", b"CONNECT"), (b":authority", b"x")),
    "HTTP/2 for a WebSocket": over_http_2(
        *((b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"http"), (b":path", b"/mcp")),
        *((b":authority", b"x"), (b"sec-websocket-version", b"13")),
        *((b"sec-websocket-protocol", b"\xff"), (b"sec-websocket-extensions", b"\xff")),
    ),
    "HTTP/2 with a priority that depends on itself": PREFACE
    + frame(4, 0, 0)
    + frame(2, 0, 3, struct.pack(">IB", 3, 0)),
    "HTTP/2 that ends a stream twice": over_http_2(*GET_2, (b":path", b"/mcp")) + frame(0, 1, 1, b"") * 2,
    "HTTP/2 that leaves": over_http_2(*GET_2, (b":path", b"/mcp")) + frame(7, 0, 0, b"\0" * 8) + frame(3, 0, 1, b"\0" * 4),
    "only zeros": b"\0" * 64,
}


@pytest.mark.finding("faults-C1")
async def test_no_malformed_request_ends_a_door_or_the_admin_listener() -> None:
    async with serving() as at:
        for transport in ("http", "admin"):
            for data in MALFORMED.values():
                await at.throw(transport, data)
        assert await at.is_well()
        assert restarts() == 0
