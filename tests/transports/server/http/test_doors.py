"""What no client may do to a door: end it, or hide a second request behind one that was refused."""

import re
import struct
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import trio
import trio.testing

from callboard import Server
from callboard.codecs.http.access import Access
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.supervisor import SupervisorSpec, live_trees
from callboard.transports.limits import Settings
from callboard.transports.server.asgi import AsgiApp
from callboard.transports.server.http.endpoint import Endpoint
from tests.transports.server.http.stage import PATIENCE, Client, request

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
        self.urls: dict[str, SplitResult] = {one.transport: urlsplit(one.url or "") for one in ready.listening}

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
async def serving(ran: list[str] | None = None, patience: float = PATIENCE, **options: Any) -> AsyncIterator[At]:
    enough = trio.Event()
    with trio.fail_after(patience):
        async with trio.open_nursery() as nursery:
            given: Any = {"http": 0, "http_engine": "asgi", "admin": 0, "settings": SETTINGS, **options}

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


def upgrade(settings: str) -> bytes:
    return request(
        "GET", "/", host="evil", upgrade="h2c", connection="Upgrade, HTTP2-Settings", http2_settings=settings
    )


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
    "HTTP/2 that leaves": over_http_2(*GET_2, (b":path", b"/mcp"))
    + frame(7, 0, 0, b"\0" * 8)
    + frame(3, 0, 1, b"\0" * 4),
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


@pytest.mark.finding("faults-C1")
async def test_an_offer_to_upgrade_to_http_2_is_ignored() -> None:
    async with serving() as at:
        host = f"127.0.0.1:{at.port('admin')}"
        offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAMAAABkAAQAoAAA"}
        answer = await at.throw("admin", request("GET", "/livez", host=host, **offer))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.finding("faults-C1")
@pytest.mark.parametrize("edge", ["http", "admin"])
async def test_an_edge_whose_parts_crash_is_restarted_and_listens_again(
    edge: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving(patience=1000) as at:
        (root,) = live_trees()
        supervisor = root.supervisor_of(edge)
        before = supervisor.address
        for _ in range(8):  # more than one level allows, so the whole edge is made anew, too
            for address, actor in supervisor.actors():
                if type(actor).__name__ in ("WriteBatch", "SlowRequests", "KeepAlive", "HttpListener"):
                    address.kill("by a test")
            await trio.sleep(7)
        assert before == supervisor.address
        assert await at.is_well()


# Framing: one request must never be two.

HIDDEN: Final = "the hidden one ran"


def hidden(client: Client) -> bytes:
    return client.modern("tools/call", name="run", arguments={"text": HIDDEN})


def framings(client: Client) -> dict[str, bytes]:
    """Requests that two readers could end in different places, each with another one behind it."""
    host = client.host.decode()
    usual = {"host": host, "content_type": "application/json", "accept": "application/json, text/event-stream"}
    behind = hidden(client)
    length = str(len(behind) + 5)
    chunked = request("POST", "/mcp", "transfer-encoding: chunked", **usual)
    return {
        "both": request("POST", "/mcp", f"content-length: {length}", "transfer-encoding: chunked", **usual)
        + b"0\r\n\r\n"
        + behind,
        "both, the other way": request("POST", "/mcp", "transfer-encoding: chunked", "content-length: 5", **usual)
        + b"0\r\n\r\n"
        + behind,
        "two lengths": request("POST", "/mcp", "content-length: 0", f"content-length: {length}", **usual) + behind,
        "the same length twice": request("POST", "/mcp", "content-length: 0", "content-length: 0", **usual) + behind,
        "a list of lengths": request("POST", "/mcp", "content-length: 0, 0", **usual) + behind,
        "a signed length": request("POST", "/mcp", "content-length: +0", **usual) + behind,
        "a folded line": request("POST", "/mcp", "content-length: 0", "x-a: b\r\n content-length: 5", **usual) + behind,
        "bare line feeds": request("POST", "/mcp", "content-length: 0", **usual).replace(b"\r\n", b"\n") + behind,
        "HTTP/1.2": request("POST", "/mcp", "content-length: 0", **usual).replace(b"HTTP/1.1", b"HTTP/1.2") + behind,
        "HTTP/2.0 in a line": request("POST", "/mcp", "content-length: 0", **usual).replace(b"HTTP/1.1", b"HTTP/2.0")
        + behind,
        "another coding": chunked.replace(b"chunked", b"xchunked") + b"0\r\n\r\n" + behind,
        "a blank before the colon": request("POST", "/mcp", "content-length : 0", **usual) + behind,
        "a chunk size with a blank": chunked + b"0 \r\n\r\n" + behind,
        "a trailer that frames": chunked + b"0\r\ncontent-length: 5\r\n\r\n",
    }


@pytest.mark.finding("security-5")
@pytest.mark.parametrize("engine", ["native", "asgi"])
async def test_no_request_hides_behind_one_that_two_readers_end_in_different_places(engine: str) -> None:
    ran: list[str] = []
    async with serving(ran, http_engine=engine) as at:
        probe = await at.connect()
        for name, data in framings(probe).items():
            answer = await at.throw("http", data)
            assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), (name, answer)
            if name != "a trailer that frames":  # that one is read to its end, and is an empty body
                assert b"connection: close\r\n" in answer, (name, answer)
                assert len(re.findall(rb"HTTP/1.1 \d", answer)) == 1, (name, answer)
        await probe.aclose()
        assert ran == []


@pytest.mark.finding("security-5")
@pytest.mark.parametrize(
    ("version", "headers", "status"),
    [
        ("1.1", [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")], 400),
        ("1.1", [(b"content-length", b"5"), (b"content-length", b"5")], 400),
        ("1.1", [(b"content-length", b"5, 5")], 400),
        ("1.0", [(b"transfer-encoding", b"chunked")], 400),
        ("1.1", [(b"transfer-encoding", b"gzip, chunked")], 501),
        ("1.2", [], 505),
        ("1.1", [(b"x-large", b"x" * 40_000)], 431),
        ("1.1", [(b"x-%d" % number, b"") for number in range(200)], 431),
        ("1.1", [(b"host", b"evil")], 421),
    ],
)
async def test_a_mounted_application_closes_what_it_refuses(
    version: str, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"hello", "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    async with hosted([]).host() as host:
        endpoint = Endpoint(host, Access.on_any_port())
        app = AsgiApp(endpoint, (await host.root.add(SupervisorSpec("asgi"))))
        scope = {"type": "http", "http_version": version, "method": "POST", "path": "/mcp", "query_string": b""}
        usual = [(b"content-type", b"application/json"), (b"accept", b"*/*")]
        usual += [] if any(name == b"host" for name, _ in headers) else [(b"host", b"localhost")]
        await app({**scope, "headers": usual + headers}, receive, send)
    assert told[0]["status"] == status
    assert (b"connection", b"close") in told[0]["headers"]
