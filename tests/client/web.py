"""A web server that is played by a test, over connections of memory: it sees each request, and answers as it likes."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import attrs
import h11
import msgspec
import pytest
import trio

from callboard.actors.client.link import Link
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.revisions import LATEST, Revision
from callboard.codecs.revisions.revision import R2, R3, R4
from callboard.codecs.sse import encode_comment, encode_event
from callboard.errors import CannotConnect
from callboard.transports.client.http import HttpLink
from callboard.transports.client.pool import Origin, Pool
from callboard.transports.client.sse_pair import open_pair
from callboard.transports.wire import Wire
from tests.client.stage import EVERYTHING, INFO, Json
from tests.transports.server.websocket.wires import MemoryWire, wire_pair

HERE: Final = Origin("http", "127.0.0.1", 8000)
legacy_revisions = pytest.mark.parametrize("revision", [R2, R3, R4])


@attrs.frozen(eq=False)
class Seen:
    """A request as it came in."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: Any
    at: float

    @property
    def rpc(self) -> str:
        """The method of the message in it."""
        return str(self.body.get("method", "")) if isinstance(self.body, dict) else ""


@attrs.define(eq=False)
class Reply:
    """The answer to one request, piece by piece."""

    seen: Seen
    wire: MemoryWire
    connection: h11.Connection

    async def write(self, data: bytes) -> None:
        await self.wire.send(data)

    async def _send(self, event: h11.Event) -> None:
        data = self.connection.send(event)
        if data:
            await self.wire.send(bytes(data))

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        await self._send(h11.Response(status_code=status, headers=list(headers.items())))

    async def piece(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        await self._send(h11.EndOfMessage())

    def cut(self) -> None:
        """Close the connection in the middle of things."""
        self.wire.close()

    async def whole(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.begin(status, {"content-type": kind, "content-length": str(len(body)), **named})
        await self.piece(body)
        await self.end()

    async def json(self, status: int = 200, /, _headers: Mapping[str, str] | None = None, **message: Any) -> None:
        await self.whole(status, msgspec.json.encode({"jsonrpc": "2.0", **message}), **(_headers or {}))

    async def answer(self, **result: Any) -> None:
        """A modern result."""
        await self.json(id=self.seen.body["id"], result={"resultType": "complete", **result})

    async def legacy(self, **result: Any) -> None:
        """A legacy one."""
        await self.json(id=self.seen.body["id"], result=result)

    async def refuse(self, status: int, code: int, message: str = "no", **data: Any) -> None:
        error = {"code": code, "message": message, **({"data": data} if data else {})}
        await self.json(status, id=self.seen.body["id"], error=error)

    async def stream(self) -> None:
        await self.begin(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})

    async def event(self, message: Any, event_id: str | None = None, **more: Any) -> None:
        data = b"" if message is None else msgspec.json.encode({"jsonrpc": "2.0", **message})
        await self.piece(encode_event(data, event_id=event_id, **more))

    async def comment(self) -> None:
        await self.piece(encode_comment("still here"))


Handler: TypeAlias = Callable[[Reply], Awaitable[None]]


@attrs.define(eq=False)
class Web:
    """Gives every request to *handler*, in a task for each connection."""

    handler: Handler
    nursery: trio.Nursery
    seen: list[Seen] = attrs.field(factory=list)
    is_down: bool = False
    is_refusing: bool = False
    """Whether nobody listens there while it is down."""
    connections: int = 0
    wires: list[MemoryWire] = attrs.field(factory=list)

    def die(self) -> None:
        """End as a process does that is killed: every connection breaks, and nobody listens any more."""
        self.is_down = self.is_refusing = True
        for wire in self.wires:
            wire.close()

    async def dial(self, origin: Origin, _: ssl.SSLContext | None) -> Wire:
        await trio.lowlevel.checkpoint()
        if self.is_down:
            failure = CannotConnect(f"{origin}: Connection refused")
            failure.is_refused = self.is_refusing
            raise failure
        theirs, ours = wire_pair()
        self.connections += 1
        self.wires.append(ours)
        self.nursery.start_soon(self._serve, ours)
        return theirs

    async def _serve(self, wire: MemoryWire) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            while (seen := await self._request(wire, connection)) is not None:
                self.seen.append(seen)
                await self.handler(Reply(seen, wire, connection))
                if connection.our_state is not h11.DONE:
                    return
                connection.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the client has left
        finally:
            wire.close()

    async def _request(self, wire: MemoryWire, connection: h11.Connection) -> Seen | None:
        request, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                data = await wire.receive()
                connection.receive_data(data)
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                headers = {name.decode(): value.decode() for name, value in request.headers}
                message = msgspec.json.decode(body) if body else None
                return Seen(request.method.decode(), request.target.decode(), headers, message, trio.current_time())
            else:
                return None

    def link(self, headers: Mapping[str, str] | None = None) -> HttpLink:
        given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        return HttpLink(Pool(HERE, dial=self.dial), b"/mcp", given)

    def ways(self, *, pair: bool = False, key: str | None = None) -> TransportRoutes:
        """The ways to it, as those to a URL are."""

        @asynccontextmanager
        async def http() -> AsyncIterator[Link]:
            link = self.link()
            yield link
            link.pool.close()

        other = (TransportRoute("sse", lambda: open_pair(self.link()), is_legacy=True),) if pair else ()
        return TransportRoutes(key, (TransportRoute("http", http), *other))

    def requests(self, *rpc: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.rpc in rpc]


@asynccontextmanager
async def web(handler: Handler) -> AsyncIterator[Web]:
    async with trio.open_nursery() as nursery:
        yield Web(handler, nursery)
        nursery.cancel_scope.cancel()


def modern(handler: Handler, **capabilities: Json) -> Handler:
    """Answers `server/discover`; the rest is for *handler*."""

    async def handle(reply: Reply) -> None:
        if reply.seen.rpc == "server/discover":
            offered = capabilities or EVERYTHING
            await reply.answer(supportedVersions=[LATEST.value], capabilities=offered, ttlMs=0, cacheScope="private")
        else:
            await handler(reply)

    return handle


def legacy(handler: Handler, revision: Revision, *, session: str | None = "s-1") -> Handler:
    """Knows nothing of `server/discover`, and does the handshake; the rest is for *handler*."""

    async def handle(reply: Reply) -> None:
        match reply.seen.rpc:
            case "server/discover":
                await reply.whole(400, b"what?", "text/plain")
            case "initialize":
                result = {"protocolVersion": revision.value, "capabilities": EVERYTHING, "serverInfo": INFO}
                headers = {} if session is None else {"mcp-session-id": session}
                await reply.json(200, headers, id=reply.seen.body["id"], result=result)
            case "notifications/initialized":
                await reply.whole(202)
            case _ if reply.seen.method == "DELETE":
                await reply.whole(204)
            case _:
                await handler(reply)

    return handle


async def nothing_unasked(reply: Reply) -> None:
    """What a server says to GET that has no stream to offer."""
    await reply.whole(405)


async def nothing_much(reply: Reply) -> None:
    """Answer whatever is asked, with nothing."""
    if reply.seen.method == "GET":
        await nothing_unasked(reply)
    elif "id" in reply.seen.body and "method" in reply.seen.body:
        await reply.legacy(content=[])
    else:
        await reply.whole(202)
