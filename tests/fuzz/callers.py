"""Odd clients: each knows what a good one says at its door, and a seeded hand spoils some of it."""

import json
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, Final

import attrs
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError

from callboard.codecs.revisions import LATEST, LEGACY, MODERN, Revision
from callboard.codecs.revisions.revision import R1, R2
from tests.fuzz.doors import HOST, LOST, Doors, Ledger, hear_http, hear_http2, hear_lines, hear_socket
from tests.fuzz.mutate import TOKENS, mutated
from tests.fuzz.odd import GARBAGE
from tests.fuzz.strict import Complaints, Json
from tests.fuzz.values import odd, spoiled, written
from tests.transports.server.http.sessions import initialize
from tests.transports.server.http.stage import META, VERSION, Client, mirror, request
from tests.transports.server.websocket.stage import OPENING, Refused, Socket, masked
from tests.transports.server.websocket.stage import request as opening

ODDNESS: Final = (0.0, 0.1, 0.3, 0.6)
LEFT_ALONE: Final = 50.0
"""Seconds of virtual time after which a client that only listens leaves."""
SAID: Final[tuple[tuple[str, Json], ...]] = (
    ("ping", {}),
    ("server/discover", {}),
    ("tools/list", {}),
    ("tools/list", {"cursor": "x"}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("tools/call", {"name": "echo", "arguments": {"text": "x"}}),
    ("tools/call", {"name": "unknown", "arguments": {}}),
    ("tools/call", {"name": "route", "arguments": {"city": "Oslo", "zone": 3, "sure": True}}),
    ("tools/call", {"name": "chat", "arguments": {"words": ["a", "b"]}}),
    ("tools/call", {"name": "chat", "arguments": {"words": ["a"], "name": "shut"}}),
    ("tools/call", {"name": "errand", "arguments": {"name": "shut"}}),
    ("tools/call", {"name": "work", "arguments": {"name": "shut"}}),
    ("tools/call", {"name": "poll", "arguments": {"words": ["a"], "name": "shut"}}),
    ("tools/call", {"name": "ask", "arguments": {}}),
    ("tools/call", {"name": "folders", "arguments": {}}),
    ("tools/call", {"name": "large", "arguments": {"size": 3000}}),
    ("tools/call", {"name": "news", "arguments": {}}),
    ("tools/call", {"name": "flood", "arguments": {"size": 50, "count": 30, "name": "f"}}),
    ("resources/read", {"uri": "note://x"}),
    ("resources/read", {"uri": "nothing://"}),
    ("resources/subscribe", {"uri": "note://x"}),
    ("resources/unsubscribe", {"uri": "note://x"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "note://{name}"}, "argument": {"name": "name", "value": ""}},
    ),
    ("prompts/get", {"name": "unknown"}),
    ("logging/setLevel", {"level": "debug"}),
    ("tasks/list", {}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["note://x"]}}),
    ("unknown/method", {"a": 1}),
)
TOLD: Final[tuple[Json, ...]] = (
    {"method": "notifications/initialized"},
    {"method": "notifications/cancelled", "params": {"requestId": 3, "reason": "tired"}},
    {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
    {"method": "notifications/roots/list_changed"},
    {"method": "notifications/unknown", "params": {}},
    {"id": 1, "result": {"roots": []}},
    {"id": 1, "result": {"action": "accept", "content": {"name": "Ada"}}},
    {"id": 2, "error": {"code": -1, "message": "no"}},
)
HEADERS: Final[tuple[tuple[str, str | None], ...]] = (
    *(
        ("accept", None),
        ("accept", "*/*"),
        ("content_type", "text/plain"),
        ("content_type", None),
        ("host", "evil.example"),
    ),
    *(("mcp_protocol_version", "1999-01-01"), ("mcp_protocol_version", "2025-06-18"), ("mcp_protocol_version", None)),
    *(("mcp_method", "ping"), ("mcp_name", "=?base64?zzz?="), ("mcp_name", None), ("mcp_session_id", "x" * 300)),
    *(
        ("content_length", "5"),
        ("content_length", "99999999"),
        ("content_length", None),
        ("transfer_encoding", "chunked"),
    ),
    *(
        ("connection", "close"),
        ("expect", "100-continue"),
        ("origin", "null"),
        ("last_event_id", "9-9"),
        ("upgrade", "h2c"),
    ),
    *(("authorization", "Bearer x"), ("accept_encoding", "gzip"), ("x_odd", "\xff"), ("cookie", "a" * 4000)),
)


@attrs.define(eq=False)
class Caller:
    """What one client does, decided by its seed."""

    doors: Doors
    complaints: Complaints
    draw: Random
    where: str = ""
    oddness: float = attrs.field(init=False)
    revision: Revision = attrs.field(init=False)
    ledger: Ledger = attrs.field(init=False)
    http: str = attrs.field(init=False)
    """Which of the doors of HTTP it comes to."""
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    def __attrs_post_init__(self) -> None:
        self.oddness = self.draw.choice(ODDNESS)
        self.revision = self.draw.choice(tuple(Revision))
        self.http = self.draw.choice(("native", "asgi"))
        self.ledger = Ledger(self.complaints, self.where)

    def is_odd(self, factor: float = 1.0) -> bool:
        return self.draw.random() < self.oddness * factor

    # Messages.

    def message(self, revision: Revision | None = None) -> tuple[bytes, str, Json]:
        """What it says next: the bytes, and which request that was before it was spoiled."""
        speaks = revision or self.revision
        if self.draw.random() < 0.15:
            return self._sent({"jsonrpc": "2.0", **self.draw.choice(TOLD)}, None), "", {}
        method, params = self.draw.choice(SAID)
        about = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": {"elicitation": {"form": {}}}}
        body: Json = {**params, "_meta": about} if speaks in MODERN else dict(params)
        if self.draw.random() < 0.3:
            body.setdefault("_meta", {})["progressToken"] = self.draw.randrange(5)
        if self.draw.random() < 0.3 and speaks in MODERN:
            body["_meta"][f"{META}logLevel"] = "debug"
        request_id: Any = next(self._ids) if not self.is_odd(0.2) else odd(self.draw)
        whole = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": body}
        return self._sent(whole, speaks), method, params

    def _sent(self, whole: Json, revision: Revision | None) -> bytes:
        """The message as it goes out, and noted."""
        if not self.is_odd():
            self.ledger.note(whole, revision)
            return written(whole)
        if self.draw.random() < 0.2:
            return self.draw.choice(GARBAGE)
        value = spoiled(self.draw, whole, self.draw.choice((1, 1, 2, 4)))
        if self.draw.random() < 0.1:
            value = [value, whole]
        self.ledger.note(value, None)
        data = written(value)
        if self.draw.random() < 0.2:
            data = mutated(self.draw, [data])
            with suppress(ValueError):
                self.ledger.note(json.loads(data), None)
        return data

    async def pause(self) -> None:
        if self.draw.random() < 0.3:
            await trio.sleep(self.draw.choice((0.0, 0.01, 1.0)))

    async def stay(self) -> None:
        """Listen for a while, or not at all."""
        await trio.sleep(self.draw.choice((0.0, 0.0, 0.1, 1.0, LEFT_ALONE)))

    def times(self) -> range:
        return range(self.draw.choice((1, 2, 4, 10)))

    # Requests of HTTP.

    def post(self, client: Client, **headers: str | None) -> bytes:
        """A POST, its head spoiled or not."""
        data, method, params = self.message()
        more = mirror(method, params) if self.revision in MODERN and method else {}
        more = {**more, **headers}
        if self.is_odd(0.3):
            more |= dict([self.draw.choice(HEADERS)])
        return self._spoil(client.post(data, **more))

    def _spoil(self, data: bytes) -> bytes:
        return mutated(self.draw, [data]) if self.is_odd(0.2) else data

    async def send(self, client: Client, data: bytes) -> None:
        """In one piece, or in two with a pause between them."""
        at = self.draw.randrange(len(data) + 1) if self.draw.random() < 0.2 else len(data)
        await client.send(data[:at])
        if data[at:]:
            await self.pause()
            await client.send(data[at:])

    # Doors.

    async def modern(self) -> None:
        self.revision = LATEST
        client = self.doors.client(self.http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_http, client, self.ledger)
            with suppress(*LOST):
                for _ in self.times():
                    await self.send(client, self.post(client))
                    await self.pause()
            await self.stay()
            await client.aclose()
            nursery.cancel_scope.cancel()

    async def legacy(self) -> None:
        self.revision = self.draw.choice(sorted(LEGACY - {R1}))
        client = self.doors.client(self.http)
        whole = initialize(self.revision, id="init")
        await client.send(client.post(written(spoiled(self.draw, whole)) if self.is_odd(0.3) else whole))
        try:
            answer = await client.answer()
        except LOST:
            return
        session = answer.headers.get("mcp-session-id")
        if session is None:
            await client.aclose()
            return
        version = self.revision.value if self.revision > R2 else None
        about: dict[str, str | None] = {"mcp_session_id": session, "mcp_protocol_version": version}
        other = self.doors.client(self.http)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_http, client, self.ledger)
            nursery.start_soon(hear_http, other, self.ledger)
            with suppress(*LOST):
                if not self.is_odd(0.3):
                    await client.send(client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **about))
                for _ in self.times():
                    await self.send(
                        *self.draw.choice(((client, self.post(client, **about)), (other, self._without_body(about))))
                    )
                    await self.pause()
            await self.stay()
            await client.aclose()
            await other.aclose()
            nursery.cancel_scope.cancel()

    def _without_body(self, about: dict[str, str | None]) -> bytes:
        method = self.draw.choice(("GET", "GET", "GET", "DELETE", "OPTIONS", "PUT", "HEAD"))
        last = self.draw.choice((None, None, "0-1", "1-1", "x", "9" * 30))
        usual: dict[str, str | None] = {"host": HOST, "accept": "text/event-stream", "last_event_id": last}
        return self._spoil(
            request(method, self.draw.choice(("/mcp", "/mcp", "/mcp/", "/sse", "/x")), **(usual | about))
        )

    async def pair(self) -> None:
        self.revision = R1
        client, poster = self.doors.client(self.http), self.doors.client(self.http)
        quiet = Ledger(self.complaints, self.where)  # what is said to a post is no message of the session
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_http, client, self.ledger)
            nursery.start_soon(hear_http, poster, quiet)
            with suppress(*LOST):
                await client.send(self._spoil(request("GET", "/sse", host=HOST, accept="text/event-stream")))
                await trio.sleep(0.01)
                target = self.ledger.addresses[0] if self.ledger.addresses else b"/messages?session=x"
                hello = initialize(R1, id="init")
                self.ledger.note(hello, R1)
                await poster.send(poster.post(hello).replace(b"POST /mcp", b"POST " + target, 1))
                await poster.send(poster.post(TOLD[0] | {"jsonrpc": "2.0"}).replace(b"POST /mcp", b"POST " + target, 1))
                for _ in self.times():
                    await self.send(poster, self.post(poster).replace(b"POST /mcp", b"POST " + target, 1))
                    await self.pause()
            await self.stay()
            await poster.aclose()
            await client.aclose()
            nursery.cancel_scope.cancel()

    async def http2(self) -> None:
        self.revision = LATEST
        wire = self.doors.wire("asgi")
        mine = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
        mine.initiate_connection()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_http2, wire, mine, self.ledger)
            with suppress(*LOST, ProtocolError):
                for _ in self.times():
                    self._stream(mine)
                    data = mine.data_to_send()
                    await wire.send(mutated(self.draw, [data]) if self.is_odd(0.2) else data)
                    await self.pause()
            await self.stay()
            wire.close()
            nursery.cancel_scope.cancel()

    def _stream(self, mine: H2Connection) -> None:
        """One request, on a stream of its own."""
        data, method, params = self.message()
        usual: dict[str, str | None] = {
            "content_type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        more = usual | (mirror(method, params) if method else {})
        if self.is_odd(0.3):
            more |= dict([self.draw.choice(HEADERS)])
        named = [(name.replace("_", "-"), value) for name, value in more.items() if value is not None]
        verb = "POST" if not self.is_odd(0.1) else self.draw.choice(("GET", "DELETE", "CONNECT", ""))
        head = [(":method", verb), (":path", "/mcp"), (":scheme", "http"), (":authority", HOST), *named]
        if self.is_odd(0.1):
            self.draw.shuffle(head)
        stream = mine.get_next_available_stream_id()
        mine.send_headers(stream, head)
        if self.is_odd(0.1):
            mine.reset_stream(stream)
        else:
            mine.send_data(stream, data[:16_000], end_stream=not self.is_odd(0.1))

    async def admin(self) -> None:
        client = self.doors.client("admin")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_http, client, self.ledger)
            with suppress(*LOST):
                for _ in self.times():
                    path = self.draw.choice(("/livez", "/readyz", "/livez?x", "/", "*", "//livez"))
                    more = dict([self.draw.choice(HEADERS)]) if self.is_odd() else {}
                    verb = self.draw.choice(("GET", "GET", "POST", "OPTIONS"))
                    await self.send(client, self._spoil(request(verb, path, **({"host": HOST} | more))))
                    await self.pause()
            await self.stay()
            await client.aclose()
            nursery.cancel_scope.cancel()

    async def websocket(self) -> None:
        socket = Socket(self.doors.wire(), pongs=self.draw.random() < 0.8)
        more = {"Sec-WebSocket-Protocol": "mcp"} if self.draw.random() < 0.8 else {}
        if self.is_odd(0.3):
            more |= {
                "Mcp-Session-Id": self.draw.choice(("x", "a" * 32)),
                "Mcp-Received": self.draw.choice(("0", "-1", "x")),
            }
        try:
            await socket.open(self._spoil(opening({**OPENING, **more})))
        except (*LOST, Refused):
            socket.close()
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_socket, socket, self.ledger)
            with suppress(*LOST):
                if self.revision in LEGACY:
                    hello = initialize(self.revision, id="init")
                    self.ledger.note(hello, self.revision)
                    await socket.send(written(hello))
                    await socket.send(written(TOLD[0] | {"jsonrpc": "2.0"}))
                for _ in self.times():
                    await socket.write(self._frame())
                    await self.pause()
            await self.stay()
            socket.close()
            nursery.cancel_scope.cancel()

    def _frame(self) -> bytes:
        data, _, _ = self.message()
        if not self.is_odd(0.4):
            return masked(1, data)
        frame = masked(
            self.draw.choice((0, 1, 1, 2, 3, 8, 9, 10, 15)),
            self.draw.choice((data, b"", b"x" * 130, b"\x03\xe8bye", b"\xff\xff", data[: len(data) // 2])),
            fin=self.draw.random() < 0.7,
            rsv=self.draw.choice((0, 0, 0, 4)),
        )
        return mutated(self.draw, [frame]) if self.draw.random() < 0.3 else frame * self.draw.choice((1, 1, 50))

    async def lines(self) -> None:
        stream = await self.doors.lines()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear_lines, stream, self.ledger)
            with suppress(*LOST):
                if self.revision in LEGACY and not self.is_odd(0.2):
                    hello = initialize(self.revision, id="init")
                    self.ledger.note(hello, self.revision)
                    await stream.send_all(written(hello) + b"\n")
                    await stream.send_all(written(TOLD[0] | {"jsonrpc": "2.0"}) + b"\n")
                for _ in self.times():
                    data = self.message()[0] if not self.is_odd(0.2) else b"".join(self.draw.choices(TOKENS, k=9))
                    await stream.send_all(data + b"\n")
                    await self.pause()
            await self.stay()
            await stream.aclose()
            nursery.cancel_scope.cancel()


DOORS: Final = ("modern", "legacy", "pair", "http2", "websocket", "lines", "admin")


async def visit(doors: Doors, complaints: Complaints, draw: Random) -> None:
    """One odd client at one of the doors."""
    where = draw.choice(DOORS)
    await getattr(Caller(doors, complaints, draw, where), where)()
