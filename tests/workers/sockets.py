"""WebSocket clients of workers: on real sockets, at the address of one worker or of all."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import msgspec
import trio

from callboard.codecs.revisions.revision import LATEST, R4, Revision
from callboard.testing import Peer
from callboard.transports.memory import MemoryConnection
from callboard.transports.server.websocket.resumable import RESUMED, SESSION_KEY
from callboard.transports.wire import SocketWire
from tests.transports.server.websocket.stage import OPENING, Socket, as_peer, back, request, session_of, socket_of

Json = dict[str, Any]


async def dial(port: int, headers: Mapping[str, str] | None = None) -> Socket:
    """A WebSocket at *port*. Raises `Refused`."""
    with trio.socket.socket() as bare:
        await bare.connect(("127.0.0.1", port))
        wire = SocketWire(socket.socket(fileno=bare.detach()), 10.0)
    opened = Socket(wire)
    try:
        host = {"Host": f"127.0.0.1:{port}", "Sec-WebSocket-Protocol": "mcp"}
        await opened.open(request({**OPENING, **host, **(headers or {})}))
    except BaseException:
        opened.close()
        raise
    return opened


@asynccontextmanager
async def socket_peer(
    port: int, revision: Revision = R4, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Peer]:
    """A client of one revision, whose socket is closed with the block."""
    peer = await as_peer(await dial(port, headers), revision, kind=Peer)
    try:
        yield peer
    finally:
        socket_of(peer).close()


def local_port(socket: Socket) -> int:
    wire = socket.wire
    assert isinstance(wire, SocketWire)
    port: int = wire._socket.getsockname()[1]
    return port


@attrs.define(eq=False)
class Returning:
    """A client that counts what it has said and heard, and comes back as often as its socket drops."""

    port: int
    is_modern: bool = False
    """Whether it asks to come back in any era, and is of the modern one."""
    session: str = attrs.field(default="", init=False)
    said: list[bytes] = attrs.field(factory=list, init=False)
    heard: list[Json] = attrs.field(factory=list, init=False)
    socket: Socket = attrs.field(init=False)

    async def connect(self) -> None:
        """Begin, or go on with the session. Raises `Refused`."""
        if not self.session and self.is_modern:
            self.socket = await dial(self.port, {"Mcp-Resumable": "1"})
            self.session = (await self.socket.hear())["params"]["id"]
            return
        if not self.session:
            self.socket = await dial(self.port)
            params = {"protocolVersion": R4.value, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            await self.say({"id": 0, "method": "initialize", "params": params})
            self.session = (await self.hear())["result"]["_meta"][SESSION_KEY]["id"]
            await self.say({"method": "notifications/initialized"})
            return
        self.socket = await dial(self.port, back(self.session, len(self.heard)))
        told = await self.socket.hear()
        assert told["method"] == RESUMED
        for frame in self.said[told["params"]["received"] :]:
            await self.socket.send(frame)

    async def call(self, number: int, **params: Any) -> None:
        if self.is_modern:
            meta = {"protocolVersion": LATEST.value, "clientCapabilities": {}, "logLevel": "info"}
            params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = {"name": "c", "version": "1"}
        await self.say({"id": number, "method": "tools/call", "params": params})

    async def say(self, message: Json) -> None:
        self.said.append(msgspec.json.encode({"jsonrpc": "2.0", **message}))
        await self.socket.send(self.said[-1])

    async def hear(self) -> Json:
        self.heard.append(await self.socket.hear())
        return self.heard[-1]


def modern_peer(socket: Socket) -> Peer:
    return Peer(cast("MemoryConnection", socket), LATEST, {"elicitation": {}})


async def come_back(peer: Peer, port: int, received: int, headers: Mapping[str, str] | None = None) -> Json:
    """Drop the socket, and go on with the session at *port*; what the server says of it is returned."""
    socket_of(peer).close()
    again = await dial(port, {**back(session_of(peer), received), **(headers or {})})
    peer.connection = cast("MemoryConnection", again)
    told = await again.hear()
    assert told["method"] == RESUMED
    params: Json = told["params"]
    return params
