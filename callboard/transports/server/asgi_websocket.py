"""A WebSocket on the ASGI door: the server in front reads and writes it, and passes whole messages on."""

from typing import Any

import attrs
import trio

from callboard.codecs.http.head import Head
from callboard.codecs.websocket.frames import Close, Code, Text
from callboard.codecs.websocket.handshake import VERSION
from callboard.transports.server.asgi_types import Message, Receive, Scope, Send
from callboard.transports.server.websocket.guest import Headers

_KEY = b"MDEyMzQ1Njc4OWFiY2RlZg=="
"""The server in front has read the client's key, and answers it."""
_REFUSAL = "websocket.http.response"
_READ = frozenset(b"sec-websocket-" + name for name in (b"key", b"version", b"protocol", b"extensions"))
_LOST = 1006


@attrs.define(eq=False)
class AsgiSocket:
    """What ASGI calls a WebSocket. It has no pings: the server in front finds vanished peers."""

    _receive: Receive
    _send: Send
    _accepted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_over: bool = attrs.field(default=False, init=False)

    async def accept(self, subprotocol: str | None, headers: Headers) -> None:
        await self._say({"type": "websocket.accept", "subprotocol": subprotocol, "headers": list(headers)})
        self._accepted.set()

    async def receive(self) -> Text | Close | bytes | None:
        await self._accepted.wait()
        message: Any = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._is_over = True
            code = message.get("code", Code.NO_CODE)
            return None if code == _LOST else Close(code, message.get("reason") or "")
        text = message.get("text")
        return message.get("bytes") or b"" if text is None else Text(text.encode())

    async def send_text(self, frame: bytes) -> None:
        await self._say({"type": "websocket.send", "text": frame.decode()})

    async def ping(self, payload: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return b""  # it acknowledges nothing

    async def close(self, code: int, reason: str) -> None:
        await self._say({"type": "websocket.close", "code": code, "reason": reason})
        self._is_over = True

    async def _say(self, message: Message) -> None:
        if self._is_over:
            raise trio.BrokenResourceError("the peer disconnected")
        await self._send(message)


def as_handshake(scope: Scope, head: Head) -> Head:
    """The handshake as a client of HTTP/1.1 sends it. What the server in front has checked is as it must be."""
    headers = [(name, value) for name, value in head.headers if name not in _READ]
    offered = ", ".join(scope.get("subprotocols") or ()).encode("latin-1", "replace")
    headers += [(b"sec-websocket-version", VERSION), (b"sec-websocket-key", _KEY)]
    headers += [(b"upgrade", b"websocket")] if head.get(b"upgrade") is None else []
    headers += [(b"sec-websocket-protocol", offered)] if offered else []
    return Head("GET", head.target, headers, "1.1")


async def refuse_by(scope: Scope, send: Send, message: Message) -> None:
    """Pass on a part of an HTTP answer to a handshake. Servers that cannot send one answer with 403 themselves."""
    if _REFUSAL in (scope.get("extensions") or {}):
        kind = str(message["type"]).removeprefix("http.response")
        await send({**message, "type": f"{_REFUSAL}{kind}"})
    elif message["type"] == "http.response.start":
        await send({"type": "websocket.close", "code": int(Code.POLICY), "reason": ""})
