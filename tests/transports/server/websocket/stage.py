"""A server behind connections of memory, and clients that speak WebSocket byte by byte if they must."""

import base64
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import Any, Final, cast

import attrs
import msgspec
import trio
from trio.testing import wait_all_tasks_blocked
from wsproto.connection import CLIENT, Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Message, TextMessage
from wsproto.events import Ping as PingEvent
from wsproto.events import Pong as PongEvent

from callboard import Server
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.codecs.http.access import Access
from callboard.codecs.revisions import LEGACY, Revision
from callboard.serve.mount import WebSocketDoor
from callboard.supervisor import Address, Snapshot, SupervisorSpec
from callboard.supervisor.groups import own_nursery
from callboard.testing import EVERYTHING, Answer, Peer
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.memory import MemoryConnection
from callboard.transports.server.asgi import AsgiApp
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.guard import Authenticate, Guard
from callboard.transports.server.http.slow_requests import SlowRequests
from callboard.transports.server.websocket.resumable import SESSION_KEY
from callboard.transports.server.websocket.upgrade import WebSocketUpgrade
from callboard.transports.wire import Wire
from tests.by_the_book import Stickler
from tests.transports.server.websocket.doors import AsgiFront, DoorName, front_trio
from tests.transports.server.websocket.wires import wire_pair

Json = dict[str, Any]
KEY: Final = base64.b64encode(b"0123456789abcdef").decode()
PATIENCE: Final = 3600.0
"""Seconds of virtual time for a test: pings alone would keep the clock going for ever."""

DOOR: Final[ContextVar[DoorName]] = ContextVar("door", default="native")
"""The door that clients come in by."""

OPENING: Final = {
    "Host": "127.0.0.1:8000",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}


class Refused(Exception):
    """The handshake was answered with something else than 101."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"{status}: {body.decode(errors='replace')}")
        self.status = status
        self.headers = headers
        self.body = body


class Gone(Exception):
    """The server closed. *code* is None if it did not say why."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


def request(headers: Mapping[str, str] | Iterable[tuple[str, str]] = OPENING, line: str = "GET /mcp HTTP/1.1") -> bytes:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return "".join([line, "\r\n", *(f"{name}: {value}\r\n" for name, value in pairs), "\r\n"]).encode()


def masked(opcode: int, payload: bytes, *, fin: bool = True, rsv: int = 0, key: bytes = b"abcd") -> bytes:
    """One frame of a client's, with whatever in it that may not be there."""
    head = bytes([(fin << 7) | (rsv << 4) | opcode])
    size = len(payload)
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return head + key + bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))


@attrs.define(eq=False)
class Socket:
    """A client's end of one WebSocket. As a connection of a `Peer` it carries whole messages."""

    wire: Wire
    pongs: bool = True
    """Whether it answers pings."""
    headers: Mapping[str, str] = attrs.field(factory=dict, init=False)
    pings: list[bytes] = attrs.field(factory=list, init=False)
    ponged: list[bytes] = attrs.field(factory=list, init=False)
    _parser: Connection = attrs.field(factory=lambda: Connection(CLIENT), init=False)
    _events: deque[Event] = attrs.field(factory=deque, init=False)
    _text: str = attrs.field(default="", init=False)

    async def open(self, opening: bytes) -> None:
        """Raises `Refused`, or `Gone` if there was no answer at all."""
        await self.wire.send(opening)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += await self._read()
        head, _, rest = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if not status.startswith("HTTP/1.1 101 "):
            size = int(self.headers.get("content-length", 0))
            while len(rest) < size:
                rest += await self._read()
            raise Refused(int(status.split()[1]), self.headers, rest)
        self._parser.receive_data(rest)

    async def _read(self) -> bytes:
        try:
            data = await self.wire.receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            raise Gone(None)
        return data

    async def send(self, frame: bytes) -> None:
        await self.write(masked(1, frame))

    async def write(self, data: bytes) -> None:
        """Bytes as they are."""
        await self.wire.send(data)

    async def receive(self) -> bytes:
        """The next message. Answers pings on the way. Raises `Gone` when the server has closed."""
        while True:
            event = await self._event()
            if isinstance(event, TextMessage):
                self._text += event.data
                if event.message_finished:
                    text, self._text = self._text, ""
                    return text.encode()
            else:
                assert not isinstance(event, BytesMessage | Message)
                await self._control(event)

    async def _control(self, event: Event) -> None:
        if isinstance(event, PingEvent):
            self.pings.append(bytes(event.payload))
            if self.pongs:
                await self.write(masked(10, bytes(event.payload)))
        elif isinstance(event, PongEvent):
            self.ponged.append(bytes(event.payload))
        elif isinstance(event, CloseConnection):
            raise Gone(int(event.code), event.reason or "")

    async def _event(self) -> Event:
        while not self._events:
            self._events.extend(self._parser.events())
            if not self._events:
                self._parser.receive_data(await self._read())
        return self._events.popleft()

    async def wait_gone(self) -> Gone:
        """Read whatever comes until the server closes; that is returned."""
        try:
            while True:
                await self.receive()
        except Gone as gone:
            return gone

    async def finish(self, code: int = 1000) -> Gone:
        """Close, and wait for the server's answer."""
        await self.write(masked(8, code.to_bytes(2, "big")))
        gone = await self.wait_gone()
        assert await self.is_at_end()
        return gone

    async def is_at_end(self) -> bool:
        """Whether the server closes the connection without another word."""
        try:
            await self._read()
        except Gone:
            return True
        return False

    async def say(self, message: Json) -> None:
        await self.send(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    async def hear(self) -> Json:
        message: Json = msgspec.json.decode(await self.receive())
        return message

    def close(self) -> None:
        self.wire.close()


@attrs.define(eq=False)
class House:
    """A hosted server that takes in connections."""

    host: Host
    door: WebSocketUpgrade
    endpoint: Endpoint
    settings: Settings
    nursery: trio.Nursery
    name: DoorName = "native"
    app: AsgiApp | None = attrs.field(default=None, init=False)
    guests: WebSocketDoor | None = attrs.field(default=None, init=False)
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _sockets: list[Socket] = attrs.field(factory=list, init=False)
    _addresses: list[Address[Any]] = attrs.field(factory=list, init=False)

    def connect(self) -> tuple[Socket, Address[Any]]:
        """A connection on which nothing was said yet, and the server's actor for it."""
        theirs, ours = wire_pair()
        ours.write_time = self.settings.write_time if self.name == "native" else math.inf  # others have no deadline
        if self.name != "native":
            self._sockets.append(Socket(theirs))
            return self._sockets[-1], self._front(ours)
        connection = HttpConnection(self.endpoint, ours, self.settings, SlowRequests())
        connections = self.host.root.supervisor_of("edge/connections")
        address = connections.spawn(connection, name=f"c-{next(self._names)}")
        self._sockets.append(Socket(theirs))
        self._addresses.append(address)
        return self._sockets[-1], address

    def _front(self, ours: Wire) -> Address[Any]:
        """Have another library read a connection."""
        edge = self.host.root.supervisor_of("edge/connections")
        self.app = self.app or AsgiApp(self.endpoint, edge)
        self.guests = self.guests or WebSocketDoor(self.host, Access.on_any_port(), self.door, edge)
        is_asgi = self.name == "asgi"
        self.nursery.start_soon(AsgiFront(self.app, ours).run if is_asgi else partial(front_trio, self.guests, ours))
        return cast("Address[Any]", None)

    async def dial(self, headers: Mapping[str, str] | None = None) -> Socket:
        """A WebSocket. *headers* are added to what a client must say. Raises `Refused`."""
        socket, _ = self.connect()
        await socket.open(request({**OPENING, "Sec-WebSocket-Protocol": "mcp", **(headers or {})}))
        return socket

    async def peer(
        self,
        revision: Revision,
        *,
        headers: Mapping[str, str] | None = None,
        answers: Mapping[str, Answer] | None = None,
        log_level: str | None = None,
        kind: type[Peer] = Stickler,
    ) -> Peer:
        """A client of one revision, held to the schema unless *kind* says otherwise."""
        return await as_peer(await self.dial(headers), revision, answers=answers, log_level=log_level, kind=kind)

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()

    def forget(self) -> None:
        """Keep nothing of the connections so far, which have ended."""
        self._sockets.clear()
        self._addresses.clear()

    def sessions(self) -> list[Snapshot]:
        """The sessions in the tree."""
        tree = self.host.root.supervisor_of("sessions").tree()
        return [child for session in tree.children for child in session.children if child.name == "session"]

    async def wait_dropped(self) -> float:
        """Wait until all connections have ended; the moment at which they had."""
        for address in self._addresses:
            await address.wait_ended()
        moment = trio.current_time()
        await wait_all_tasks_blocked()  # what ends with them has ended, too
        return moment

    async def wait_ended(self) -> float:
        """Wait until all sessions of now have ended; the moment at which they had."""
        for address, _ in self.host.root.supervisor_of("sessions").actors():
            await address.wait_ended()
        return trio.current_time()

    def connections(self) -> tuple[Snapshot, ...]:
        return self.host.root.supervisor_of("edge/connections").tree().children


async def as_peer(
    socket: Socket,
    revision: Revision,
    *,
    answers: Mapping[str, Answer] | None = None,
    log_level: str | None = None,
    kind: type[Peer] = Stickler,
) -> Peer:
    client = kind(cast("MemoryConnection", socket), revision, dict(EVERYTHING), answers or {}, log_level)
    if revision in LEGACY:
        await client.initialize()
    return client


def socket_of(peer: Peer) -> Socket:
    return cast("Socket", peer.connection)


def session_of(peer: Peer) -> str:
    """The id by which a client may come back."""
    session_id: str = peer.agreed["_meta"][SESSION_KEY]["id"]
    return session_id


def back(session_id: str, received: int) -> dict[str, str]:
    """The headers of a client that comes back."""
    return {"Mcp-Session-Id": session_id, "Mcp-Received": str(received)}


@asynccontextmanager
async def house(
    server: Server, settings: Settings = DEFAULTS, *, authenticate: Authenticate | Guard | None = None
) -> AsyncIterator[House]:
    async with server.host(parking=Parking(server.info.name)) as host:
        door = WebSocketUpgrade(host, settings, authenticate)
        access = Access.of("127.0.0.1", 8000)
        endpoint = Endpoint(host, access, settings, guard=authenticate, on_upgrade=door.serve)
        await host.root.add(
            SupervisorSpec("edge", children=(SupervisorSpec("connections", drain=settings.write_time),))
        )
        async with own_nursery() as nursery:
            here = House(host, door, endpoint, settings, nursery, DOOR.get())
            try:
                with trio.fail_after(PATIENCE):
                    yield here
            finally:
                here.close()
                nursery.cancel_scope.cancel()
