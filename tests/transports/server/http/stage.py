"""A real listener on loopback, and a client that sends exact bytes and believes nothing."""

import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import count
from typing import Any, Final, TypeAlias

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from callboard import Server
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.codecs.http.access import Access
from callboard.codecs.sse import Event, EventDecoder
from callboard.supervisor import Supervisor
from callboard.transports.limits import Settings
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.guard import Authenticate, Guard
from callboard.transports.server.http.listener import http_edge

Json: TypeAlias = dict[str, Any]

PATIENCE: Final = 20.0
"""Seconds for a whole test. None needs more than two; the machine is shared."""

QUICK: Final = Settings(write_time=2.0)
"""As everybody gets them, but for what the end of a test would wait for."""

VERSION: Final = "2026-07-28"
META: Final = "io.modelcontextprotocol/"


@attrs.define(eq=False)
class Place:
    """A server that listens."""

    host: Host
    endpoint: Endpoint
    edge: Supervisor
    port: int
    tls: ssl.SSLContext | None
    _clients: AsyncExitStack

    async def connect(self, *, receive_buffer: int | None = None) -> "Client":
        """A connection of its own; closed at the end of the test at the latest."""
        bare = trio.socket.socket()
        if receive_buffer is not None:  # must be set before it connects
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await bare.connect(("127.0.0.1", self.port))
        stream: trio.abc.Stream = trio.SocketStream(bare)
        if self.tls is not None:
            inner = trio.SocketStream(bare)
            stream = trio.SSLStream(inner, self.tls, server_hostname="localhost", https_compatible=True)
        client = Client(stream, bare, f"127.0.0.1:{self.port}".encode())
        await self._clients.enter_async_context(aclosing(client))
        return client

    async def ask(self, data: bytes) -> "Answer":
        """Send *data* on a new connection, and return the answer."""
        client = await self.connect()
        await client.send(data)
        return await client.answer()

    @property
    def connections(self) -> int:
        return self.edge.supervisor_of("connections").child_count


async def settle() -> None:
    """Let everybody deal with what has arrived. On loopback what was sent has."""
    await wait_all_tasks_blocked(0.02)


@asynccontextmanager
async def serving(
    server: Server,
    settings: Settings = QUICK,
    *,
    authenticate: Authenticate | Guard | None = None,
    access: Access | None = None,
    parking: Parking | None = None,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    send_buffer: int | None = None,
) -> AsyncIterator[Place]:
    """Serve *server* on a free port. *tls*: the server's context and the client's."""
    with trio.fail_after(PATIENCE), socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if send_buffer is not None:  # what is accepted inherits it
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        port = listening.getsockname()[1]
        scheme = "http" if tls is None else "https"
        allowed = Access.of("127.0.0.1", port, scheme=scheme) if access is None else access
        async with server.host(parking=parking) as host, AsyncExitStack() as clients:
            endpoint = Endpoint(host, allowed, settings, guard=authenticate)
            edge = await host.root.add(http_edge("http", endpoint, [listening], None if tls is None else tls[0]))
            yield Place(host, endpoint, edge, port, None if tls is None else tls[1], clients)


@attrs.frozen
class Answer:
    """An answer as it stood on the wire. Header names are lower case; none stands twice."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Json:
        assert self.headers["content-type"] == "application/json"
        value: Json = json.loads(self.body)
        return value

    @property
    def replies(self) -> list[Any]:
        """The answers to a batch, or the one there is."""
        value: Any = self.json
        return value if isinstance(value, list) else [value]

    @property
    def code(self) -> int:
        """The code of the error."""
        code: int = self.json["error"]["code"]
        return code

    @property
    def result(self) -> Json:
        result: Json = self.json["result"]
        return result

    @property
    def events(self) -> list[Event]:
        assert self.headers["content-type"] == "text/event-stream"
        return [event for event in EventDecoder().feed(self.body) if isinstance(event, Event)]


class Gone(Exception):
    """The server hung up."""


@attrs.define(eq=False)
class Client:
    """One connection, byte by byte. What it is sent must be HTTP as the book has it, or a test fails."""

    stream: trio.abc.Stream
    socket: "trio.socket.SocketType"
    host: bytes
    _buffer: bytearray = attrs.field(factory=bytearray, init=False)
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self.stream)

    def reset(self) -> None:
        """Vanish with a reset, as a process that is killed with unread data does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.socket.close()

    async def answer(self) -> Answer:
        """The next answer, whole. Raises `Gone`."""
        head = await self.head()
        if head.status in (100, 204):
            return head
        if "content-length" in head.headers:
            return attrs.evolve(head, body=await self._exactly(int(head.headers["content-length"])))
        if head.headers.get("transfer-encoding") == "chunked":
            pieces = []
            while piece := await self._chunk():
                pieces.append(piece)
            return attrs.evolve(head, body=b"".join(pieces))
        assert head.headers["connection"] == "close"
        return attrs.evolve(head, body=await self._rest())

    async def head(self) -> Answer:
        """The head of the next answer."""
        raw = await self._until(b"\r\n\r\n")
        first, *lines = raw.split(b"\r\n")
        assert all(0x20 <= byte < 0x7F for line in lines for byte in line), raw
        version, status, _ = first.decode("ascii").split(" ", 2)
        assert version == "HTTP/1.1"
        pairs = [line.decode("ascii").split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        assert len(headers) == len(pairs), raw
        return Answer(int(status), headers)

    async def stream_of(self) -> "Stream":
        """The next answer, which must be a stream."""
        head = await self.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream"), head
        return Stream(self, head)

    async def ended(self) -> bytes:
        """Wait for the end of the connection; whatever came before it."""
        try:
            return await self._rest()
        except trio.BrokenResourceError:
            return bytes(self._buffer)

    # How a client speaks.

    def post(self, message: Any, *lines: str, **headers: str | None) -> bytes:
        """A POST of *message*, with the usual headers: `accept=None` leaves one out, *lines* come as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        usual: dict[str, str | None] = {
            "host": self.host.decode(),
            "content_type": "application/json",
            "accept": "application/json, text/event-stream",
            "content_length": str(len(body)),
        }
        return request("POST", "/mcp", *lines, **(usual | headers)) + body

    def modern(self, method: str, *lines: str, headers: Json | None = None, **params: Any) -> bytes:
        """A modern request, with all that it must say."""
        return self.post(self.message(method, **params), *lines, **(mirror(method, params) | (headers or {})))

    def message(self, method: str, *, id: Any = None, meta: Json | None = None, **params: Any) -> Json:
        said = {"protocolVersion": VERSION, "clientCapabilities": {"elicitation": {"form": {}}, "sampling": {}}}
        body = {**params, "_meta": {f"{META}{key}": value for key, value in said.items()} | (meta or {})}
        return {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method, "params": body}

    async def call(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool in the modern way."""
        await self.send(self.modern("tools/call", name=tool, arguments=arguments))
        return await self.answer()

    # Bytes.

    async def _more(self) -> None:
        data = await self.stream.receive_some(65_536)
        if not data:
            raise Gone(bytes(self._buffer))
        self._buffer += data

    async def _until(self, end: bytes) -> bytes:
        while (at := self._buffer.find(end)) < 0:
            await self._more()
        found = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._more()
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    async def _chunk(self) -> bytes:
        size = int(await self._until(b"\r\n"), 16)
        data = await self._exactly(size)
        assert await self._exactly(2) == b"\r\n"
        return data

    async def _rest(self) -> bytes:
        while True:
            try:
                await self._more()
            except Gone:
                return bytes(self._buffer)


@attrs.define(eq=False)
class Stream:
    """A streamed answer that is being read."""

    client: Client
    head: Answer
    decoder: EventDecoder = attrs.field(factory=EventDecoder, init=False)
    is_over: bool = attrs.field(default=False, init=False)
    _events: list[Event] = attrs.field(factory=list, init=False)

    async def event(self) -> Event | None:
        """The next event; None after the last one."""
        while not self._events:
            if self.is_over:
                return None
            await self._read()
        return self._events.pop(0)

    async def message(self) -> Json:
        """The message of the next event that has one."""
        while True:
            event = await self.event()
            assert event is not None, "the stream is over"
            if event.data:
                value: Json = json.loads(event.data)
                return value

    async def rest(self) -> list[Json]:
        """All messages up to the end."""
        found = []
        while (event := await self.event()) is not None:
            if event.data:
                found.append(json.loads(event.data))
        return found

    async def comment(self) -> None:
        """Wait for the next comment."""
        before = self.decoder.comments
        while self.decoder.comments == before:
            await self._read()

    async def _read(self) -> None:
        chunk = await self.client._chunk()
        self.is_over = not chunk
        self._events += [event for event in self.decoder.feed(chunk) if isinstance(event, Event)]


def request(method: str, target: str, *lines: str, **headers: str | None) -> bytes:
    """A request without its body. A header's name may be written with `_`; None leaves it out."""
    written = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join((f"{method} {target} HTTP/1.1", *written, *lines, "", "")).encode("latin-1")


def mirror(method: str, params: Json) -> dict[str, str | None]:
    """The headers that repeat what a modern request says."""
    name = params.get("uri" if method == "resources/read" else "name")
    return {"mcp_protocol_version": VERSION, "mcp_method": method, "mcp_name": name if isinstance(name, str) else None}
