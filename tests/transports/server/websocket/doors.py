"""The doors at which a WebSocket may come in: callboard's own, ASGI, and trio-websocket."""

from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio
from trio_websocket import HandshakeError, wrap_server_stream
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from callboard.serve.mount import WebSocketDoor
from callboard.transports.server.asgi import AsgiApp
from callboard.transports.wire import Wire

DoorName: TypeAlias = Literal["native", "asgi", "trio-websocket"]
DOORS: Final[tuple[DoorName, ...]] = ("native", "asgi", "trio-websocket")
BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


@attrs.define(eq=False)
class AsgiFront:
    """An ASGI server for one WebSocket: as little of one as will do."""

    app: AsgiApp
    wire: Wire
    _protocol: WSConnection = attrs.field(factory=lambda: WSConnection(ConnectionType.SERVER), init=False)
    _is_connected: bool = attrs.field(default=False, init=False)
    _refusal: int = attrs.field(default=0, init=False)
    _events: list[Any] = attrs.field(factory=list, init=False)
    _text: str = attrs.field(default="", init=False)

    async def run(self) -> None:
        try:
            request = await self._event()
            assert isinstance(request, Request)
            path, _, query = request.target.partition("?")
            scope = {
                "type": "websocket",
                "http_version": "1.1",
                "path": path,
                "raw_path": path.encode(),
                "query_string": query.encode(),
                "headers": [(b"host", request.host.encode()), *request.extra_headers],
                "subprotocols": request.subprotocols,
                "client": ("127.0.0.1", 1),
                "extensions": {"websocket.http.response": {}},
            }
            await self.app(scope, self.receive, self.send)
        except (*BROKEN, ProtocolError):
            pass
        finally:
            self.wire.close()

    async def _event(self) -> Any:
        while not self._events:
            self._protocol.receive_data(await self.wire.receive() or None)
            self._events.extend(self._protocol.events())
        return self._events.pop(0)

    async def receive(self) -> Any:
        if not self._is_connected:
            self._is_connected = True
            return {"type": "websocket.connect"}
        while True:
            try:
                event = await self._event()
            except BROKEN:
                return {"type": "websocket.disconnect", "code": 1006}
            match event:
                case TextMessage(data=data, message_finished=ends):
                    self._text += data
                    if ends:
                        text, self._text = self._text, ""
                        return {"type": "websocket.receive", "text": text}
                case BytesMessage(data=data):
                    return {"type": "websocket.receive", "bytes": bytes(data)}
                case Ping():
                    await self.wire.send(self._protocol.send(event.response()))
                case CloseConnection(code=code):
                    with suppress(ProtocolError, *BROKEN):
                        await self.wire.send(self._protocol.send(event.response()))
                    return {"type": "websocket.disconnect", "code": int(code)}

    async def send(self, message: Any) -> None:
        await self.wire.send(self._protocol.send(self._said(message)))

    def _said(self, message: Any) -> Any:
        match message["type"]:
            case "websocket.accept":
                return AcceptConnection(subprotocol=message["subprotocol"], extra_headers=message["headers"])
            case "websocket.send":
                return TextMessage(data=message["text"])
            case "websocket.close":
                return CloseConnection(code=message["code"], reason=message["reason"])
            case "websocket.http.response.start":
                return RejectConnection(status_code=message["status"], headers=message["headers"], has_body=True)
            case _:
                return RejectData(data=message["body"], body_finished=not message["more_body"])


@attrs.define(eq=False)
class WireStream(trio.abc.Stream):
    """A wire as a stream of Trio's."""

    wire: Wire

    async def send_all(self, data: Any) -> None:
        await self.wire.send(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self.wire.receive()

    async def aclose(self) -> None:
        self.wire.close()
        await trio.lowlevel.checkpoint()


async def front_trio(door: WebSocketDoor, wire: Wire) -> None:
    """A trio-websocket server for one connection."""
    with suppress(HandshakeError, *BROKEN):
        async with trio.open_nursery() as nursery:
            try:
                request = await wrap_server_stream(nursery, WireStream(wire))
                await door.serve(request)
            finally:
                wire.close()
                nursery.cancel_scope.cancel()
