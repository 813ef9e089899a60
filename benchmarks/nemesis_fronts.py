"""Clients that note all they send and all they hear: over WebSocket, many requests at once on each connection, and over
HTTP, one request at a time on each of many."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import attrs
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from benchmarks.nemesis_history import History

REVISION: Final = "2026-07-28"
ABOUT: Final = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "nemesis", "version": "1"},
}
MOST: Final = 60
"""Requests in flight on one connection: a broker lets one peer have 64."""

CLOSED: Final = {"error": {"code": 0, "message": "the connection was closed"}}
"""What ends requests if the broker hangs up."""

SENT: Final = 5.0
"""Seconds for the broker to take a request in."""


@attrs.frozen
class Outcome:
    """How a request ended: with a result, or with an error's code."""

    is_result: bool
    code: int
    seconds: float
    body: dict[str, Any]


@attrs.define(eq=False)
class Asked:
    """A request that was sent."""

    key: str
    began: float
    over: trio.Event = attrs.field(factory=trio.Event)
    outcome: Outcome | None = None


class Front(Protocol):
    """One way in."""

    async def send(self, backend: str, tool: str, **arguments: Any) -> Asked:
        """Send a call, and do not wait for its end."""


@attrs.define(eq=False)
class Scribe:
    """Gives requests their keys, and writes down how they end."""

    history: History
    open: dict[str, Asked] = attrs.field(factory=dict, init=False)
    """What has not ended yet."""
    _keys: "count[int]" = attrs.field(factory=count, init=False)

    def begin(self, backend: str, method: str, params: dict[str, Any]) -> tuple[Asked, bytes]:
        """Note a request, and put it into words. The key is its id, too."""
        key = f"k{next(self._keys)}" + params.pop("suffix", "")
        is_read = method == "resources/read"
        if is_read:
            params["uri"] = f"nemesis://{backend}/{key}"
        else:
            params["arguments"] = {"key": key, **params["arguments"]}
        about = {**ABOUT, "progressToken": key} if params.get("arguments", {}).get("steps") else ABOUT
        frame = {"jsonrpc": "2.0", "id": key, "method": method, "params": {**params, "_meta": about}}
        asked = self.open[key] = Asked(key, time.monotonic())
        tool = params.get("name", method)
        self.history.note("ask", asked.began, key=key, backend=backend, tool=tool, is_read=is_read)
        return asked, json.dumps(frame).encode()

    def end(self, asked: Asked, message: dict[str, Any]) -> None:
        """Note the outcome. A result tells by itself whose it is."""
        now = time.monotonic()
        self.open.pop(asked.key, None)
        if "result" in message:
            told = _told(message["result"])
            self.history.note("end", now, key=asked.key, outcome="result", of=told.get("key"), by=told.get("by"))
            asked.outcome = Outcome(True, 0, now - asked.began, message["result"])
        else:
            code = message["error"]["code"]
            self.history.note("end", now, key=asked.key, outcome=code)
            asked.outcome = Outcome(False, code, now - asked.began, message["error"])
        asked.over.set()

    async def drain(self, within: float) -> None:
        """Wait for all that is open; what does not end is hung."""
        with trio.move_on_after(within):
            for asked in list(self.open.values()):
                await asked.over.wait()

    def stray(self, key: object) -> None:
        self.history.note("stray", time.monotonic(), key=str(key))


def _told(result: dict[str, Any]) -> dict[str, Any]:
    content = result.get("content") or result.get("contents") or [{}]
    try:
        told = json.loads(content[0].get("text", ""))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def call_of(backend: str, tool: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A tool's call, or a read, which goes by the name `read`."""
    if tool == "read":
        return "resources/read", {"suffix": arguments.get("suffix", "")}
    return "tools/call", {"name": f"{backend}__{tool}", "arguments": arguments}


@attrs.define(eq=False)
class _Line:
    """One WebSocket, and what is in flight on it."""

    socket: WebSocketConnection
    in_flight: dict[str, Asked] = attrs.field(factory=dict)


@attrs.define(eq=False)
class WsFront:
    """Some WebSockets, of which the least busy one takes the next request."""

    scribe: Scribe
    lines: list[_Line] = attrs.field(factory=list)

    async def send(self, backend: str, tool: str, **arguments: Any) -> Asked:
        line = min(self.lines, key=lambda line: len(line.in_flight))
        asked, frame = self.scribe.begin(backend, *call_of(backend, tool, arguments))
        line.in_flight[asked.key] = asked
        with trio.CancelScope(shield=True, deadline=trio.current_time() + SENT):  # what is noted is sent
            await line.socket.send_message(frame.decode())
        return asked

    async def read(self, line: _Line) -> None:
        try:
            while True:
                self._hear(line, json.loads(await line.socket.get_message()))
        except ConnectionClosed:
            for asked in line.in_flight.values():
                self.scribe.end(asked, CLOSED)
            line.in_flight.clear()

    def _hear(self, line: _Line, message: dict[str, Any]) -> None:
        if message.get("method") == "notifications/progress":
            about = message["params"]
            self.scribe.history.note("reported", time.monotonic(), key=about["progressToken"], value=about["progress"])
        elif "id" in message:
            asked = line.in_flight.pop(message["id"], None)
            if asked is None:
                self.scribe.stray(message["id"])
            else:
                self.scribe.end(asked, message)


@asynccontextmanager
async def websockets(scribe: Scribe, url: str, connections: int) -> AsyncIterator[WsFront]:
    """*connections* WebSockets to *url*, until the block ends."""
    front = WsFront(scribe)
    async with trio.open_nursery() as nursery:
        for _ in range(connections):
            await nursery.start(_hold_open, front, url)
        yield front
        nursery.cancel_scope.cancel()


async def _hold_open(front: WsFront, url: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    async with websocket(url) as socket:
        line = _Line(socket)
        front.lines.append(line)
        task_status.started()
        await front.read(line)


@asynccontextmanager
async def websocket(url: str) -> AsyncIterator[WebSocketConnection]:
    """One WebSocket, on a stream that is closed in any case."""
    parts = urlsplit(url)
    stream = await trio.open_tcp_stream(parts.hostname or "", parts.port or 80)
    async with stream, trio.open_nursery() as nursery:
        socket = await wrap_client_stream(
            nursery, stream, parts.netloc, parts.path, subprotocols=["mcp"], max_message_size=1 << 26
        )
        yield socket
        with trio.move_on_after(1):
            await socket.aclose()
        nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class HttpFront:
    """As many connections as there are requests in flight; each is used again."""

    scribe: Scribe
    nursery: trio.Nursery
    url: str
    _idle: list[trio.SocketStream] = attrs.field(factory=list, init=False)

    async def send(self, backend: str, tool: str, **arguments: Any) -> Asked:
        method, params = call_of(backend, tool, arguments)
        asked, frame = self.scribe.begin(backend, method, params)
        name = params.get("uri", params.get("name", ""))
        self.nursery.start_soon(self._exchange, asked, post(self.url, frame, method, name))
        return asked

    async def _exchange(self, asked: Asked, request: bytes) -> None:
        stream = self._idle.pop() if self._idle else await self._open()
        await stream.send_all(request)
        status, _, body = await read_response(stream)
        self._idle.append(stream)
        message = json.loads(body) if body.startswith(b"{") else {"error": {"code": status}}
        self.scribe.end(asked, message)

    async def _open(self) -> trio.SocketStream:
        parts = urlsplit(self.url)
        return await trio.open_tcp_stream(parts.hostname or "", parts.port or 80)

    async def aclose(self) -> None:
        for stream in self._idle:
            await trio.aclose_forcefully(stream)


def post(url: str, frame: bytes, method: str, name: str) -> bytes:
    parts = urlsplit(url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {REVISION}\r\n"
        f"Mcp-Method: {method}\r\nMcp-Name: {name}\r\nContent-Length: {len(frame)}\r\n\r\n"
    )
    return head.encode() + frame


async def read_response(stream: trio.SocketStream) -> tuple[int, dict[bytes, bytes], bytes]:
    """One whole response with a length: its status, its headers, and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some(65_536)
        if not more:
            return 0, {}, b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    length = int(fields.get(b"content-length", b"0"))
    while len(body) < length:
        more = await stream.receive_some(65_536)
        if not more:
            return 0, {}, b""
        body += more
    return int(head.split(b" ", 2)[1]), fields, body


@asynccontextmanager
async def posts(scribe: Scribe, url: str) -> AsyncIterator[HttpFront]:
    """POSTs to *url*, until the block ends."""
    async with trio.open_nursery() as nursery:
        front = HttpFront(scribe, nursery, url)
        try:
            yield front
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):  # nothing is waited for
                await front.aclose()
