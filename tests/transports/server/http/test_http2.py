"""Limits of HTTP/2: those of HTTP/1."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import trio
import trio.testing

from callboard import Server, connect
from callboard.codecs.revisions import TextContent
from callboard.serve.options import Ready
from callboard.serve.run import serve
from tests.certificate import write_certificate
from tests.transports.server.http.stage import PATIENCE, Client
from tests.transports.server.http.test_doors import SETTINGS, At, frame, serving


class Http2:
    """A client of HTTP/2."""

    def __init__(self, stream: trio.abc.Stream, authority: str) -> None:
        config = h2.config.H2Configuration(header_encoding=None, validate_outbound_headers=False)
        self.connection = h2.connection.H2Connection(config)
        self.stream, self.authority = stream, authority
        self.connection.initiate_connection()
        self.status: dict[int, int] = {}
        self.data: dict[int, bytes] = {}
        self.over: set[int] = set()
        self.is_gone = False

    def head(self, *more: tuple[str, str], tool: str = "run") -> list[tuple[str, str]]:
        scheme = "https" if isinstance(self.stream, trio.SSLStream) else "http"
        return [
            *((":method", "POST"), (":path", "/mcp"), (":scheme", scheme), (":authority", self.authority)),
            *(("content-type", "application/json"), ("accept", "application/json, text/event-stream")),
            *(("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)),
            *more,
        ]

    async def call(self, text: str, *more: tuple[str, str]) -> int:
        """Call a tool; the number of the stream that it is answered on."""
        number = self.connection.get_next_available_stream_id()
        self.connection.send_headers(number, self.head(*more))
        body = Client(self.stream, None, b"").message("tools/call", name="run", arguments={"text": text})  # type: ignore[arg-type]
        self.connection.send_data(number, json.dumps(body).encode(), end_stream=True)
        await self.flush()
        return number

    async def flush(self) -> None:
        await self.stream.send_all(self.connection.data_to_send())

    async def until(self, number: int | None = None) -> None:
        """Read until a stream has ended; without one, until the server hangs up."""
        while not self.is_gone and (number is None or number not in self.over):
            data = bytes(await self.stream.receive_some(65_536))
            self.is_gone = not data
            for event in self.connection.receive_data(data) if data else ():
                match event:
                    case h2.events.ResponseReceived(stream_id=at, headers=received) if at is not None:
                        self.status[at] = int(dict(received or [])[b":status"])
                    case h2.events.DataReceived(stream_id=at, data=piece) if at is not None:
                        self.data[at] = self.data.get(at, b"") + (piece or b"")
                    case h2.events.StreamEnded(stream_id=at) | h2.events.StreamReset(stream_id=at) if at is not None:
                        self.over.add(at)
                    case _:
                        pass
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.flush()


@asynccontextmanager
async def by_http_2(at: At) -> AsyncIterator[Http2]:
    client = await at.connect()
    try:
        http2 = Http2(client.stream, client.host.decode())
        await http2.flush()
        yield http2
    finally:
        await client.aclose()


async def test_http_2_answers_many_requests_on_one_connection() -> None:
    async with serving() as at, by_http_2(at) as client:
        numbers = [await client.call(f"call {index}") for index in range(20)]
        for index, number in enumerate(numbers):
            await client.until(number)
            assert client.status[number] == 200
            assert f"call {index}".encode() in client.data[number]


async def test_one_port_serves_http_2_and_websocket() -> None:
    async with serving(ws=0) as at:
        assert at.port("http") == at.port("ws")
        async with connect(at.urls["ws"].geturl()) as web_socket, by_http_2(at) as client:
            result = await web_socket.call("run", text="over a socket")
            assert result.content == [TextContent(text="over a socket")]
            number = await client.call("over HTTP/2")
            await client.until(number)
            assert client.status[number] == 200


@pytest.mark.finding("security-15")
async def test_an_http_2_connection_has_the_limits_of_any_other() -> None:
    async with serving() as at, by_http_2(at) as client:
        number = await client.call("x", *((f"x-{index}", "y") for index in range(120)))
        await client.until(number)
        assert client.status[number] == 431
        number = await client.call("x", *((f"x-{index}", "y" * 4000) for index in range(10)))
        await client.until(number)
        assert client.status[number] == 431
        started = trio.current_time()
        await client.until()  # idle, it is cut after the keep-alive time
        assert trio.current_time() - started < SETTINGS.keep_alive + 1


@pytest.mark.finding("security-15")
async def test_a_head_in_http_2_that_drips_is_cut() -> None:
    async with serving() as at, by_http_2(at) as client:
        await client.stream.send_all(frame(1, 0, 1, b"\x83\x86\x84"))  # HEADERS, and the end of them never comes
        started = trio.current_time()
        await client.until()
        assert trio.current_time() - started < SETTINGS.header_time + 0.2


@pytest.mark.finding("security-15")
async def test_the_door_for_http_2_takes_no_more_connections_than_it_may() -> None:
    limits = attrs.evolve(SETTINGS, max_connections=3, first_byte_time=5.0)
    async with serving(settings=limits) as at:
        clients = [await at.connect() for _ in range(6)]
        cut = []
        for client in clients[3:]:
            with trio.fail_after(2):
                cut.append(await client.ended())
        assert cut == [b""] * 3
        for client in clients:
            await client.aclose()


@pytest.mark.finding("security-20")
@pytest.mark.parametrize("engine", ["native", "asgi"])
async def test_a_connection_that_says_nothing_is_cut_soon(engine: str) -> None:
    async with serving(http_engine=engine) as at:
        client = await at.connect()
        started = trio.current_time()
        assert await client.ended() == b""
        assert trio.current_time() - started < SETTINGS.first_byte_time + 0.2
        await client.aclose()


@pytest.mark.finding("security-20")
@pytest.mark.parametrize("engine", ["native", "asgi"])
async def test_a_tls_handshake_that_drips_is_cut(engine: str, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "localhost")
    async with serving(http_engine=engine, tls_cert=str(certificate), tls_key=str(key)) as at:
        client = await at.connect()
        started = trio.current_time()
        with suppress(trio.BrokenResourceError):
            for byte in b"\x16\x03\x01\x40\x00" + b"\0" * 100:  # a ClientHello of 16 KiB that comes byte by byte
                await client.send(bytes((byte,)))
                await trio.sleep(0.02)
        assert trio.current_time() - started < SETTINGS.first_byte_time + 0.3
        await client.aclose()


async def test_http_2_is_agreed_on_by_tls(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "localhost")
    context = ssl.create_default_context(cafile=certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(http="localhost:0", tls_cert=str(certificate), tls_key=str(key)) as at:
        bare = await trio.open_tcp_stream("localhost", at.port("http"))
        async with trio.SSLStream(bare, context, server_hostname="localhost", https_compatible=True) as stream:
            await stream.do_handshake()
            assert stream.selected_alpn_protocol() == "h2"
            client = Http2(stream, at.urls["http"].netloc)
            number = await client.call("by TLS")
            await client.until(number)
            assert client.status[number] == 200


@pytest.mark.finding("faults-C1")
async def test_a_body_that_is_too_large_in_http_2_costs_its_own_stream_only() -> None:
    async with serving(settings=attrs.evolve(SETTINGS, max_frame=20_000)) as at, by_http_2(at) as client:
        connection = client.connection
        number = connection.get_next_available_stream_id()
        connection.send_headers(number, client.head())
        for _ in range(3):
            connection.send_data(number, b" " * 16_000)
        await client.flush()
        await client.until(number)
        assert client.status[number] == 413
        other = await client.call("still there")
        await client.until(other)
        assert client.status[other] == 200


async def test_a_client_of_http_2_that_does_not_read_is_given_up() -> None:
    limits = attrs.evolve(SETTINGS, write_time=0.3, keep_alive=0.3)
    async with serving(settings=limits) as at, by_http_2(at) as client:
        client.connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        await client.call("x" * 1000)
        await client.until()
        assert client.is_gone


async def test_an_http_2_connection_ends_with_the_server_and_its_requests_are_answered_first() -> None:
    server, enough, asleep = Server("slow"), trio.Event(), trio.Event()

    @server.tool
    async def run(text: str) -> str:
        asleep.set()
        await trio.sleep(0.2)
        return text

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:

            async def serve_it(*, task_status: trio.TaskStatus[Ready]) -> None:
                await serve(
                    server, until=enough.wait, task_status=task_status, http=0, http_engine="asgi", settings=SETTINGS
                )

            at = At(await nursery.start(serve_it))
            async with by_http_2(at) as client, by_http_2(at) as idle:
                number = await client.call("slept")
                await asleep.wait()
                enough.set()
                await client.until(number)
                assert (client.status[number], b"slept" in client.data[number]) == (200, True)
                await client.until()
                await idle.until()
