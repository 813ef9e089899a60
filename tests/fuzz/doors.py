"""The doors of a server in memory, and ears that judge whatever comes out of them."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final, cast

import attrs
import trio
import trio.testing
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded
from h2.exceptions import ProtocolError

from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.server.session_tree import open_session
from callboard.codecs.http.access import Access
from callboard.codecs.revisions import Revision
from callboard.codecs.sse import Event, EventDecoder
from callboard.serve.admin import LIMITS, AdminHandler, Health
from callboard.server.served import Hosted
from callboard.supervisor import Supervisor
from callboard.transports.limits import Settings
from callboard.transports.lines import LineConnection
from callboard.transports.server import _hypercorn
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.listener import http_edge
from callboard.transports.server.http.slow_requests import SlowRequests
from callboard.transports.server.http2 import Http2, Opening
from callboard.transports.server.websocket.upgrade import WebSocketUpgrade
from tests.fuzz.odd import GONE
from tests.fuzz.strict import Complaints, Json, complaint_of
from tests.transports.server.http.stage import Client, Gone, Stream
from tests.transports.server.websocket.stage import Gone as SocketGone
from tests.transports.server.websocket.stage import Refused, Socket
from tests.transports.server.websocket.wires import MemoryWire, wire_pair

PROTOCOL: Final = _hypercorn.Http2Protocol
"""Loaded now: in the middle of a run it would be a stall."""
LOST: Final = (*GONE, Gone, SocketGone)
HOST: Final = "127.0.0.1:8000"


class WireStream(trio.abc.Stream):
    """A wire of memory as Trio knows streams."""

    def __init__(self, wire: MemoryWire) -> None:
        self.wire = wire

    async def send_all(self, data: Any) -> None:
        await self.wire.send(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self.wire.receive()

    async def aclose(self) -> None:
        self.wire.close()
        await trio.lowlevel.checkpoint()


@attrs.define(eq=False)
class Doors:
    """A server, with HTTP, HTTP+SSE and WebSocket at one address, and lines at another."""

    host: Host
    endpoint: Endpoint
    edge: Supervisor
    slow_requests: SlowRequests
    http2: Http2
    health: AdminHandler
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    def wire(self, door: str = "native") -> MemoryWire:
        """A connection to a door, on which nothing was said yet."""
        theirs, ours = wire_pair()
        ours.write_time = self.endpoint.settings.write_time
        handler = self.health if door == "admin" else self.endpoint
        settings = LIMITS if door == "admin" else self.endpoint.settings
        connection = HttpConnection(handler, ours, settings, self.slow_requests)
        actor = Opening(connection, self.http2) if door == "asgi" else connection
        self.edge.supervisor_of("connections").spawn(actor, name=f"c-{next(self._names)}")
        return theirs

    def client(self, door: str = "native") -> Client:
        """A client that speaks HTTP/1."""
        return Client(WireStream(self.wire(door)), cast("Any", None), HOST.encode())

    async def lines(self) -> trio.StapledStream[Any, Any]:
        """A client at a pipe."""
        near, far = trio.testing.memory_stream_pair()
        connection = LineConnection(far, far, self.endpoint.settings.max_frame)
        await open_session(self.host, connection, f"lines-{next(self._names)}")
        return near

    @property
    def held(self) -> dict[str, int]:
        """What clients hold now: nothing, once all have gone for long."""
        return {
            "requests in flight": self.host.in_flight.total,
            "sessions": self.host.root.supervisor_of("sessions").child_count,
            "requests": self.host.root.supervisor_of("requests").child_count,
            "connections": self.edge.supervisor_of("connections").child_count,
            "requests of HTTP/2": self.edge.supervisor_of("requests").child_count,
            "legacy sessions": len(self.endpoint.legacy),
            "pairs": len(self.endpoint.pairs),
        }


@asynccontextmanager
async def opened(server: Hosted, settings: Settings) -> AsyncIterator[Doors]:
    async with server.host(parking=Parking(server.info.name)) as host:
        upgrade = WebSocketUpgrade(host, settings, None).serve
        access = Access.of("127.0.0.1", 8000)
        endpoint = Endpoint(host, access, settings, legacy_sse=True, on_upgrade=upgrade)
        edge = await host.root.add(http_edge("http", endpoint, [], with_http2=True))
        slow_requests = next(actor for _, actor in edge.actors() if isinstance(actor, SlowRequests))
        health = AdminHandler(Health(server, host), access)
        yield Doors(host, endpoint, edge, slow_requests, Http2(endpoint), health)


@attrs.define(eq=False)
class Ledger:
    """What one client asked, so that its answers can be judged: by the revision of the request if that was good, else
    by any, since it cannot be told as what a spoiled request was read."""

    complaints: Complaints
    where: str
    _asked: dict[Any, tuple[str, Revision | None]] = attrs.field(factory=dict, init=False)
    addresses: list[bytes] = attrs.field(factory=list, init=False)
    """Where an HTTP+SSE stream says to post."""

    def note(self, message: Any, revision: Revision | None) -> None:
        """A message was sent; *revision* if nothing is wrong with it."""
        for one in message if isinstance(message, list) else [message]:
            if isinstance(one, dict) and isinstance(one.get("method"), str) and isinstance(one.get("id"), int | str):
                known = self._asked.get(one["id"])
                self._asked[one["id"]] = (one["method"], revision if known is None else None)

    def heard(self, data: bytes) -> None:
        """A message came, or several in one batch."""
        try:
            value = json.loads(data)
        except ValueError:
            self.complaints.add(f"{self.where}: not JSON", data[:300])
            return
        for message in value if isinstance(value, list) else [value]:
            self._judge(message)

    def _judge(self, message: Json) -> None:
        self.complaints.messages += 1
        method, revision = self._asked.get(message.get("id"), ("", None))
        likely: Iterable[Revision] = Revision if revision is None else (revision,)
        if "result" in message and not method:
            return  # whose answer it is was spoiled: that it is JSON is all that can be said
        found = [complaint_of(one, message, {message.get("id"): method}) for one in reversed(tuple(likely))]
        if all(found):
            self.complaints.add(f"{self.where}: {found[0]}", message)


async def hear_http(client: Client, ledger: Ledger) -> None:
    """Judge all answers on a connection, until it ends."""
    try:
        while True:
            head = await client.head()
            kind = head.headers.get("content-type", "")
            if head.status in (100, 101, 204):
                continue
            if "content-length" in head.headers:
                body = await client._exactly(int(head.headers["content-length"]))
                if body and kind == "application/json":
                    ledger.heard(body)
            elif head.headers.get("transfer-encoding") == "chunked":
                await _hear_stream(Stream(client, head), ledger)
            else:
                await client._rest()
    except LOST:
        return
    except (AssertionError, ValueError, KeyError) as error:
        ledger.complaints.add(f"{ledger.where}: not HTTP: {type(error).__name__}", error)


async def _hear_stream(stream: Stream, ledger: Ledger) -> None:
    while (event := await stream.event()) is not None:
        if event.event == "endpoint":
            ledger.addresses.append(event.data)
        elif event.data:
            ledger.heard(event.data)


async def hear_http2(wire: MemoryWire, reader: H2Connection, ledger: Ledger) -> None:
    """Judge all answers on an HTTP/2 connection, until it ends. *reader* is the client's side of it."""
    kinds: dict[int, bytes] = {}
    bodies: dict[int, bytes] = {}
    try:
        while data := await wire.receive():
            for event in reader.receive_data(data):
                if isinstance(event, ResponseReceived):
                    kinds[event.stream_id or 0] = dict(event.headers or []).get(b"content-type", b"")
                elif isinstance(event, DataReceived):
                    reader.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                    bodies[event.stream_id or 0] = bodies.get(event.stream_id or 0, b"") + (event.data or b"")
                elif isinstance(event, StreamEnded):
                    _hear_body(kinds.get(event.stream_id or 0, b""), bodies.pop(event.stream_id or 0, b""), ledger)
            if rest := reader.data_to_send():
                await wire.send(rest)
    except (*LOST, ProtocolError):
        return  # what the client sent may have been such that its own side is at a loss


def _hear_body(kind: bytes, body: bytes, ledger: Ledger) -> None:
    if body and kind == b"application/json":
        ledger.heard(body)
    elif kind == b"text/event-stream":
        for event in EventDecoder().feed(body):
            if isinstance(event, Event) and event.data:
                ledger.heard(event.data)


async def hear_socket(socket: Socket, ledger: Ledger) -> None:
    """Judge all messages on a WebSocket, until it ends."""
    try:
        while True:
            ledger.heard(await socket.receive())
    except (*LOST, Refused):
        return


async def hear_lines(stream: trio.StapledStream[Any, Any], ledger: Ledger) -> None:
    """Judge all lines, until the end."""
    rest = b""
    try:
        while data := await stream.receive_some(65_536):
            *lines, rest = (rest + bytes(data)).split(b"\n")
            for line in lines:
                ledger.heard(line)
    except LOST:
        return
