"""Real sockets: trio-websocket as the client, and a raw one for what it does not do."""

import json
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import pytest
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream

from callboard import Context, Server
from callboard.actors.server.host import Host
from callboard.codecs.http.access import Access
from callboard.codecs.revisions.revision import R4
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.guard import Authenticate
from callboard.transports.server.http.listener import http_edge
from callboard.transports.server.websocket.resumable import RESUMED, SESSION_KEY
from callboard.transports.server.websocket.upgrade import WebSocketUpgrade
from callboard.transports.wire import SocketWire
from tests.transports.server.http import test_tls
from tests.transports.server.websocket.stage import OPENING, Socket, back, request

Json = dict[str, Any]
contexts = test_tls.contexts  # a fixture
PATIENCE: Final = 20.0

MESSAGE_SIZE: Final = 8 * 1024 * 1024
"""What a client of ours takes in: more than any server sends."""


def hosted() -> tuple[Server, trio.Event]:
    server, go = Server("real", version="1"), trio.Event()

    @server.tool
    async def repeat(words: str) -> str:
        return words

    @server.tool
    async def wait(*, ctx: Context) -> str:
        await go.wait()
        return "waited"

    return server, go


@attrs.frozen
class Served:
    host: Host
    door: WebSocketUpgrade
    port: int

    @asynccontextmanager
    async def connect(
        self, *, tls: ssl.SSLContext | None = None, resource: str = "/mcp", **options: Any
    ) -> AsyncIterator[WebSocketConnection]:
        """A WebSocket of trio-websocket's, on a stream of ours: its own it leaves open when the server closes first.

        Raises `ConnectionRejected`.
        """
        tcp = await trio.open_tcp_stream("127.0.0.1", self.port)
        stream = tcp if tls is None else trio.SSLStream(tcp, tls, server_hostname="localhost", https_compatible=True)
        try:
            async with stream, trio.open_nursery() as nursery:
                connection = await wrap_client_stream(nursery, stream, f"localhost:{self.port}", resource, **options)
                yield connection
                await connection.aclose()
        except BaseExceptionGroup as group:  # the nursery is ours
            raise group.exceptions[0] from None

    async def raw(self, **headers: str) -> tuple[Socket, socket.socket]:
        """A WebSocket on a socket of the system's."""
        connected = socket.create_connection(("127.0.0.1", self.port))
        connected.setblocking(False)
        raw = Socket(SocketWire(connected, 5))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await raw.open(request({**OPENING, "Host": f"127.0.0.1:{self.port}", **named}))
        return raw, connected

    async def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so that no event tells of."""
        while not is_so():  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.01)

    @property
    def sockets(self) -> list[str]:
        tree = self.host.root.supervisor_of("sessions").tree()
        sessions = [one for session in tree.children for one in session.children if one.name == "session"]
        return [str(session.facts["socket"]) for session in sessions]


@asynccontextmanager
async def served(
    server: Server,
    settings: Settings = DEFAULTS,
    *,
    authenticate: Authenticate | None = None,
    is_http: bool = True,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Served]:
    with trio.fail_after(PATIENCE), socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        access = Access.of("127.0.0.1", port, scheme="http" if tls is None else "https")
        async with server.host() as host:
            door = WebSocketUpgrade(host, settings, authenticate)
            endpoint = Endpoint(host, access, settings, guard=authenticate, is_http=is_http, on_upgrade=door.serve)
            await host.root.add(http_edge("edge", endpoint, [listening], tls))
            yield Served(host, door, port)


async def ask(client: WebSocketConnection | Socket, method: str, **params: Any) -> Json:
    """The answer to one request; what else comes is not looked at."""
    request_id = os.urandom(4).hex()
    message = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, ensure_ascii=False)
    await (client.send_message(message) if isinstance(client, WebSocketConnection) else client.send(message.encode()))
    while True:
        heard = await (client.get_message() if isinstance(client, WebSocketConnection) else client.receive())
        answer: Json = json.loads(heard)
        if answer.get("id") == request_id:
            return answer


async def initialize(client: WebSocketConnection | Socket) -> str:
    """Shake hands; the id to come back by."""
    params = {"protocolVersion": R4.value, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    agreed = await ask(client, "initialize", **params)
    told = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    await (client.send_message(told) if isinstance(client, WebSocketConnection) else client.send(told.encode()))
    session_id: str = agreed["result"]["_meta"][SESSION_KEY]["id"]
    return session_id


async def repeated(client: WebSocketConnection | Socket, words: str) -> str:
    answer = await ask(client, "tools/call", name="repeat", arguments={"words": words})
    said: str = answer["result"]["content"][0]["text"]
    return said


async def test_another_implementation_is_served() -> None:
    server, _ = hosted()
    async with served(server) as here, here.connect(subprotocols=["mcp", "other"]) as client:
        assert client.subprotocol == "mcp"
        await initialize(client)
        assert await repeated(client, "hello") == "hello"
        await client.ping(b"are you there")  # returns when the pong is here
        await client.aclose(1000, "bye")
        assert client.closed is not None
        assert client.closed.code == 1000
        await here.wait(lambda: not here.sockets)


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 3_000_000])
async def test_messages_of_all_sizes_pass(size: int) -> None:
    server, _ = hosted()
    async with (
        served(server) as here,
        here.connect(max_message_size=MESSAGE_SIZE, subprotocols=["mcp"]) as client,
    ):
        await initialize(client)
        assert await repeated(client, "ö" * (size // 2)) == "ö" * (size // 2)


async def test_a_message_that_is_too_big_is_1009_before_all_of_it_has_come() -> None:
    server, _ = hosted()
    async with served(server, Settings(max_frame=100_000)) as here:
        raw, _ = await here.raw()
        await raw.write(b"\x81\xff" + (1 << 40).to_bytes(8, "big") + b"mask" + b"x" * 200_000)
        gone = await raw.wait_gone()
        assert (gone.code, gone.reason) == (1009, "message larger than 100000 bytes")
        raw.close()
        async with here.connect() as client:
            await initialize(client)
            with pytest.raises(ConnectionClosed) as closed:
                await repeated(client, "x" * 100_001)
            assert closed.value.reason is not None
            assert closed.value.reason.code == 1009


async def test_a_binary_message_is_1003() -> None:
    server, _ = hosted()
    async with served(server) as here, here.connect() as client:
        await client.send_message(b"{}")
        with pytest.raises(ConnectionClosed) as closed:
            await client.get_message()
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1003


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"Origin", b"http://evil.example")], 403),
        ([(b"Origin", b"null")], 403),
        ([(b"Mcp-Session-Id", b"x"), (b"Mcp-Received", b"0")], 404),
        ([(b"Mcp-Received", b"0")], 400),
    ],
    ids=str,
)
async def test_who_is_refused_is_told_by_http(headers: list[tuple[bytes, bytes]], status: int) -> None:
    server, _ = hosted()
    async with served(server) as here:
        with pytest.raises(ConnectionRejected) as rejected:
            async with here.connect(extra_headers=headers):
                pass
        assert rejected.value.status_code == status
        with pytest.raises(ConnectionRejected) as rejected:
            async with here.connect(resource="/other"):
                pass
        assert rejected.value.status_code == 404


async def principal_of(token: str) -> str | None:
    return "ada" if token == "t-ada" else None  # noqa: S105 - it opens nothing


async def test_a_token_comes_by_header_or_by_subprotocol() -> None:
    server, _ = hosted()
    async with served(server, authenticate=principal_of) as here:
        with pytest.raises(ConnectionRejected) as rejected:
            async with here.connect(subprotocols=["mcp"]):
                pass
        assert rejected.value.status_code == 401
        assert (b"www-authenticate", b"Bearer") in rejected.value.headers
        async with here.connect(extra_headers=[(b"Authorization", b"Bearer t-ada")]) as client:
            await initialize(client)
        async with here.connect(subprotocols=["mcp", "mcp.auth.dC1hZGE"]) as client:
            assert client.subprotocol == "mcp"
            await initialize(client)


async def post(port: int, body: bytes) -> int:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        await stream.send_all(head.encode() + body)
        return int((await stream.receive_some()).split()[1])


async def test_a_port_may_be_shared_with_http_or_not() -> None:
    server, _ = hosted()
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": R4.value,
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            },
        }
    ).encode()
    async with served(server) as here, here.connect() as client:
        assert await post(here.port, body) == 200
        await initialize(client)
    async with served(server, is_http=False) as here, here.connect() as client:
        assert await post(here.port, body) == 426
        await initialize(client)


async def reset(connected: socket.socket) -> None:
    """As a network does it that forgets about a connection."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


async def half_close(connected: socket.socket) -> None:
    connected.shutdown(socket.SHUT_WR)


async def hang_up(connected: socket.socket) -> None:
    connected.close()


@pytest.mark.parametrize("end", [reset, half_close, hang_up])
async def test_a_dropped_socket_leaves_the_session_and_what_goes_on_in_it(
    end: Callable[[socket.socket], Awaitable[None]],
) -> None:
    server, go = hosted()
    async with served(server) as here:
        raw, connected = await here.raw()
        session_id = await initialize(raw)
        await raw.say({"id": "w", "method": "tools/call", "params": {"name": "wait", "arguments": {}}})
        (conversation,) = here.door._conversations.values()
        await here.wait(lambda: conversation.received == 3)  # a reset may swallow what is on its way
        await end(connected)
        await here.wait(lambda: here.sockets == ["none"])
        go.set()
        again, _ = await here.raw(**back(session_id, 1))
        told = await again.hear()
        assert told["method"] == RESUMED
        assert told["params"]["received"] == 3
        assert (await again.hear())["result"]["content"][0]["text"] == "waited"
        assert (await again.finish()).code == 1000
        raw.close()
        again.close()


async def test_a_peer_that_does_not_read_is_cut_off() -> None:
    server, _ = hosted()
    async with served(server, Settings(write_time=0.3)) as here:
        raw, connected = await here.raw()
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await initialize(raw)
        call = {"name": "repeat", "arguments": {"words": "x" * 3_000_000}}
        for number in range(4):
            await raw.say({"id": number, "method": "tools/call", "params": call})
        started = trio.current_time()
        await here.wait(lambda: here.sockets == ["none"])
        assert trio.current_time() - started < 5
        raw.close()


async def test_the_other_implementation_hears_1001_when_the_server_ends() -> None:
    server, go = hosted()
    async with served(server) as here, here.connect() as client:
        await initialize(client)
        call = {"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
        await client.send_message(json.dumps(call))
        await here.wait(lambda: here.door._conversations != {})
        await ask(client, "ping")
        here.host.root.supervisor_of("edge").address.begin_stop()
        go.set()
        assert json.loads(await client.get_message())["id"] == "w"
        with pytest.raises(ConnectionClosed) as closed:
            await client.get_message()
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1001


async def test_pings_and_everything_else_work_over_tls(contexts: test_tls.Contexts) -> None:
    server, _ = hosted()
    ours, theirs = contexts
    async with (
        served(server, Settings(ping_every=1.5), tls=ours) as here,  # two that are answered late end it
        here.connect(tls=theirs, max_message_size=MESSAGE_SIZE, subprotocols=["mcp"]) as client,
    ):
        await initialize(client)
        assert await repeated(client, "x" * 500_000) == "x" * 500_000
        (conversation,) = here.door._conversations.values()
        await here.wait(lambda: len(conversation.kept) == 0)  # a pong has acknowledged everything
        assert await repeated(client, "still here") == "still here"
        await client.aclose()
        await here.wait(lambda: not here.sockets)
