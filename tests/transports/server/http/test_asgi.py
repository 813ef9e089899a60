"""The ASGI door: the same endpoint behind hypercorn. What the doors share is tested at the native one."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from callboard import Context, Server, connect
from callboard.codecs.http.access import Access
from callboard.errors import CannotConnect
from callboard.transports.limits import Settings
from callboard.transports.server.asgi import AsgiResponse
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.listener import http_edge
from tests.transports.server.http.stage import PATIENCE, QUICK, Place, request, settle


def company(log: list[str]) -> Server:
    server = Server("behind asgi")

    @server.tool
    async def greet(name: str) -> str:
        return f"Hello {name}"

    @server.tool
    async def count(*, ctx: Context) -> str:
        async for _ in ctx.progress(range(3)):
            await trio.sleep(0.02)
        return "counted"

    @server.tool
    async def wait(*, ctx: Context) -> str:
        log.append("waits")
        try:
            await trio.sleep_forever()
        finally:
            log.append("cancelled")

    return server


@asynccontextmanager
async def behind_hypercorn(server: Server, settings: Settings = QUICK) -> AsyncIterator[Place]:
    with trio.fail_after(PATIENCE), socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        port = listening.getsockname()[1]
        async with server.host() as host, AsyncExitStack() as clients:
            endpoint = Endpoint(host, Access.of("127.0.0.1", port), settings, legacy_sse=True)
            edge = await host.root.add(http_edge("http", endpoint, [listening], with_http2=True))
            yield Place(host, endpoint, edge, port, None, clients)
            await clients.aclose()
            await edge.address.stop()


async def test_a_single_answer_is_json_and_the_connection_goes_on() -> None:
    async with behind_hypercorn(company([])) as place:
        client = await place.connect()
        for name in ("Ada", "Grace"):
            answer = await client.call("greet", name=name)
            assert answer.headers["content-type"] == "application/json"
            assert answer.result["content"] == [{"type": "text", "text": f"Hello {name}"}]


async def test_what_must_be_said_first_makes_it_a_stream() -> None:
    async with behind_hypercorn(company([])) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="count", meta={"progressToken": 1}))
        stream = await client.stream_of()
        assert stream.head.headers["x-accel-buffering"] == "no"
        *reports, answer = await stream.rest()
        assert [report["params"]["progress"] for report in reports] == [1, 2, 3]
        assert answer["result"]["content"][0]["text"] == "counted"


async def test_a_client_that_leaves_cancels_its_modern_request() -> None:
    log: list[str] = []
    async with behind_hypercorn(company(log)) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="wait"))
        while not log:
            await settle()
        await client.aclose()
        while "cancelled" not in log:
            await settle()


async def test_a_listener_hears_of_a_change_and_of_the_end() -> None:
    server = company([])
    async with behind_hypercorn(server) as place:
        client = await place.connect()
        await client.send(client.modern("subscriptions/listen", notifications={"toolsListChanged": True}))
        stream = await client.stream_of()
        assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
        server.remove_tool("wait")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"


async def test_hosts_and_origins_and_paths_are_checked_before_the_body() -> None:
    async with behind_hypercorn(company([])) as place:
        client = await place.connect()
        assert (await place.ask(client.post({}, host="evil.example"))).status == 421
        assert (await place.ask(client.post({}, origin="http://evil.example"))).status == 403
        assert (await place.ask(request("GET", "/nothing", host=client.host.decode()))).status == 404


async def test_a_body_with_two_lengths_is_refused() -> None:
    async with behind_hypercorn(company([])) as place:
        client = await place.connect()
        answer = await place.ask(client.post(b"0\r\n\r\n", "transfer-encoding: chunked"))
        assert answer.status == 400


async def test_a_body_that_takes_too_long_or_is_too_large_is_refused() -> None:
    settings = Settings(write_time=1.0, body_idle=0.2, max_frame=1000)
    async with behind_hypercorn(company([]), settings) as place:
        client = await place.connect()
        assert (await place.ask(client.post(b"{", content_length="100"))).status == 408
        assert (await place.ask(client.post(b" " * 2000))).status == 413


async def test_the_older_pair_of_addresses_works() -> None:
    async with behind_hypercorn(company([])) as place:
        client = await place.connect()
        await client.send(request("GET", "/sse", host=client.host.decode(), accept="text/event-stream"))
        stream = await client.stream_of()
        named = await stream.event()
        assert named is not None
        assert named.event == "endpoint"
        hello: dict[str, Any] = {"protocolVersion": "2024-11-05", "capabilities": {}}
        hello["clientInfo"] = {"name": "test", "version": "1"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        posted = client.post(message).replace(b"POST /mcp", b"POST " + named.data, 1)
        assert (await place.ask(posted)).status == 202
        assert (await stream.message())["result"]["protocolVersion"] == "2024-11-05"


async def test_http_2_is_spoken() -> None:
    async with behind_hypercorn(company([])) as place:
        client = await place.connect()
        message = client.post(client.message("tools/call", name="greet", arguments={"name": "h2"}))
        _, _, body = message.partition(b"\r\n\r\n")
        headers = [
            *((":method", "POST"), (":path", "/mcp"), (":scheme", "http"), (":authority", client.host.decode())),
            *(("content-type", "application/json"), ("accept", "application/json, text/event-stream")),
            *(("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "greet")),
        ]
        status, data = await _over_http_2(client.stream, headers, body)
        assert status == "200"
        assert b"Hello h2" in data


async def _over_http_2(stream: trio.abc.Stream, headers: list[tuple[str, str]], body: bytes) -> tuple[str, bytes]:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    connection.initiate_connection()
    connection.send_headers(1, headers)
    connection.send_data(1, body, end_stream=True)
    await stream.send_all(connection.data_to_send())
    status, data = "", b""
    while True:
        for event in connection.receive_data(bytes(await stream.receive_some(65_536))):
            match event:
                case h2.events.ResponseReceived(headers=received):
                    status = dict(received or [])[b":status"].decode()
                case h2.events.DataReceived(data=piece):
                    data += piece or b""
                case h2.events.StreamEnded():
                    return status, data


async def test_a_client_that_does_not_read_is_given_up_by_whoever_writes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    response = AsgiResponse(write_time=10.0)
    lost: list[float] = []
    response.on_lost = lambda: lost.append(trio.current_time())
    began = trio.current_time()
    await response.begin(())
    for _ in range(100):
        await response.write(b"x" * 1000)
    assert [at - began for at in lost] == [10.0]
    assert response.is_over


async def test_a_websocket_behind_a_real_asgi_server_is_one_as_any_other() -> None:
    server, config, shutdown = company([]), Config(), trio.Event()
    config.bind, config.errorlog, config.accesslog = ["127.0.0.1:0"], None, None
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            run = partial(serve, server.asgi(), config, shutdown_trigger=shutdown.wait)
            [url] = await nursery.start(run)
            async with connect(url.replace("http", "ws") + "/mcp") as client:
                assert "Hello Ada" in str((await client.call("greet", name="Ada")).content)
            with pytest.raises(CannotConnect, match="HTTP 404"):
                async with connect(url.replace("http", "ws") + "/elsewhere"):
                    pass
            shutdown.set()
