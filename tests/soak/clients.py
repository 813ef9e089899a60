"""Clients of every kind, from raw bytes: requests over HTTP, and those that listen, in both eras."""

import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio
from trio_websocket import ConnectionClosed

from benchmarks.nemesis_fronts import ABOUT, websocket
from benchmarks.nemesis_stand import Stand

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
HELLO: Final = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
TINY: Final = 4096
"""Bytes that the system keeps for a client that reads nothing."""

_NUMBER: Final = re.compile(rb'"uri":"nemesis://b0/(\d+)"')
_MORE: Final = re.compile(rb'"notifications/resources/list_changed"')


def frame_of(method: str, request_id: object = 1, **params: Any) -> bytes:
    about = {} if request_id is None else {"id": request_id}
    return json.dumps({"jsonrpc": "2.0", **about, "method": method, "params": params}, separators=(",", ":")).encode()


def modern(method: str, request_id: object = 1, **params: Any) -> bytes:
    """A frame of a modern client, who says in each who it is."""
    meta = {**ABOUT, **params.pop("meta", {})}
    return frame_of(method, request_id, **params, _meta=meta)


def head_of(url: str, frame: bytes, *, session: str = "", token: str = "", verb: str = "POST") -> bytes:
    """The head of a request that carries *frame*: legacy in a *session*, modern without."""
    at = urlsplit(url)
    lines = [f"{verb} {at.path} HTTP/1.1", f"Host: {at.netloc}", "Accept: application/json, text/event-stream"]
    if frame:
        lines += ["Content-Type: application/json", f"Content-Length: {len(frame)}"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    said = json.loads(frame) if frame.endswith(b"}") else {}
    if session:
        lines += [f"Mcp-Session-Id: {session}", f"MCP-Protocol-Version: {LEGACY}"]
    elif said.get("method") != "initialize":
        params = said.get("params", {})
        lines += [f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {said.get('method')}"]
        lines += [f"Mcp-Name: {params[name]}" for name in ("name", "uri") if name in params]
    return "\r\n".join([*lines, "", ""]).encode()


async def connect(url: str, receive: int = 0) -> trio.SocketStream:
    """A connection to *url*. With *receive*, the system keeps only so many bytes for it."""
    at = urlsplit(url)
    if not receive:
        return await trio.open_tcp_stream(at.hostname or "", at.port or 0)
    line = trio.socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    await line.connect((at.hostname or "", at.port or 0))
    return trio.SocketStream(line)


@attrs.frozen
class Answer:
    """A whole answer. Status 0: the connection ended without one."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def message(self) -> dict[str, Any]:
        """The last message in it, whether it is JSON or a stream of events; nothing if there is none."""
        lines = [line.removeprefix(b"data:") for line in self.body.splitlines() if line.startswith(b"data:")]
        try:
            found: dict[str, Any] = json.loads(lines[-1] if lines else self.body)
        except ValueError:
            return {}
        return found


async def ask(url: str, frame: bytes, *, session: str = "", token: str = "", verb: str = "POST") -> Answer:
    """One request on a connection of its own, and its whole answer."""
    async with await connect(url) as stream:
        with suppress(trio.BrokenResourceError):  # it may be refused before all of it was sent
            await stream.send_all(head_of(url, frame, session=session, token=token, verb=verb) + frame)
        return await whole_answer(stream)


async def whole_answer(stream: trio.SocketStream) -> Answer:
    """The next answer on a connection, whether it has a length or comes in chunks."""
    data = bytearray()
    while (gap := data.find(b"\r\n\r\n")) < 0:
        if not (more := await some(stream)):
            return Answer(0, {}, bytes(data))
        data += more
    head, body = bytes(data[:gap]), data[gap + 4 :]
    status = int(head.split()[1])
    fields = dict(_field(line) for line in head.split(b"\r\n")[1:])
    length = fields.get(b"content-length")
    while not (len(body) >= int(length) if length else status in (202, 204) or body.endswith(b"0\r\n\r\n")):
        if not (more := await some(stream)):
            return Answer(0, {}, bytes(data))
        body += more
    return Answer(status, fields, bytes(body))


async def some(stream: trio.SocketStream) -> bytes:
    """What comes next; nothing, once the connection is over."""
    try:
        return bytes(await stream.receive_some(65_536))
    except trio.BrokenResourceError:
        return b""


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.strip().lower(), value.strip()


async def session_at(url: str, *, token: str = "", capabilities: dict[str, Any] | None = None) -> str:
    """Shake hands as a legacy client; the id of the session."""
    hello = {**HELLO, "capabilities": capabilities or {}}
    answer = await ask(url, frame_of("initialize", **hello), token=token)
    assert answer.status == 200, answer
    session = answer.headers[b"mcp-session-id"].decode()
    told = await ask(url, frame_of("notifications/initialized", None), session=session, token=token)
    assert told.status == 202, told
    return session


# Clients that listen.


@attrs.define(eq=False)
class Ear:
    """One that follows a resource: the numbers of what changed, in order; whether it was told of more, or cut off."""

    kind: str
    heard: list[int] = attrs.field(factory=list)
    more: int = 0
    is_cut: bool = False
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        """Take in bytes; a message may be cut anywhere."""
        data = self._rest + data
        end = 0
        for found in _NUMBER.finditer(data):
            self.heard.append(int(found[1]))
            end = found.end()
        self.more += len(_MORE.findall(data))
        self._rest = data[max(end, len(data) - 40) :] if not _MORE.search(data[-80:]) else b""
        self.is_cut = self.is_cut or b"notifications/cancelled" in data or b'"code":-31003' in data


LISTEN: Final = {"notifications": {"resourceSubscriptions": ["nemesis://b0"]}}
Read = Callable[[], Awaitable[bytes]]


@asynccontextmanager
async def following(kind: str, stand: Stand, *, slow: bool = False) -> AsyncIterator[tuple[Ear, Read]]:
    """A client of *kind* ("modern http", "legacy ws", ...) that follows b0; and how to read what comes for it."""
    opened = _over_http if kind.endswith("http") else _over_websocket
    async with opened(kind, stand, TINY if slow else 0) as read:
        yield Ear(kind), read


@asynccontextmanager
async def _over_http(kind: str, stand: Stand, receive: int) -> AsyncIterator[Read]:
    url = stand.http
    if kind.startswith("modern"):
        frame, session, verb = modern("subscriptions/listen", "l", **LISTEN), "", "POST"
    else:
        session, frame, verb = await session_at(url), b"", "GET"
        told = await ask(url, frame_of("resources/subscribe", uri="nemesis://b0"), session=session)
        assert told.status == 200, told
    async with await connect(url, receive) as stream:
        await stream.send_all(head_of(url, frame, session=session, verb=verb) + frame)
        data = b""
        while (b"acknowledged" if frame else b"\r\n\r\n") not in data:
            more = await stream.receive_some(4096)
            assert more, data
            data += more

        async def read() -> bytes:
            return bytes(await stream.receive_some(65_536))

        yield read


@asynccontextmanager
async def _over_websocket(kind: str, stand: Stand, receive: int) -> AsyncIterator[Read]:
    async with websocket(stand.ws) as line:

        async def say(frame: bytes, answer: str) -> None:
            await line.send_message(frame.decode())
            while answer not in await line.get_message():
                pass

        if kind.startswith("modern"):
            await say(modern("subscriptions/listen", "l", **LISTEN), "acknowledged")
        else:
            await say(frame_of("initialize", "i", **HELLO), '"i"')
            await line.send_message(frame_of("notifications/initialized", None).decode())
            await say(frame_of("resources/subscribe", "s", uri="nemesis://b0"), '"s"')

        async def read() -> bytes:
            return str(await line.get_message()).encode()

        yield read


async def listen(ear: Ear, read: Read) -> None:
    """Read all that comes, as fast as it comes."""
    try:
        while data := await read():
            ear.feed(data)
    except (ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    ear.is_cut = True
