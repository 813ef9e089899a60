"""Clients of the legacy revisions: a session, its posts, and its streams."""

from itertools import count
from typing import Any, Self

import attrs

from callboard import Revision
from callboard.codecs.revisions import LEGACY
from tests.transports.server.http.stage import Answer, Client, Json, Place, Stream, request

HTTP_REVISIONS = sorted(LEGACY - {Revision.V2024_11_05})
"""Those that have sessions over HTTP."""

CAPABILITIES: Json = {"elicitation": {}, "sampling": {}, "roots": {}}


def initialize(revision: Revision | str, id: Any = 0, capabilities: Json | None = None) -> Json:
    params = {
        "protocolVersion": str(revision),
        "capabilities": CAPABILITIES if capabilities is None else capabilities,
        "clientInfo": {"name": "client", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}


@attrs.define(eq=False)
class OpenSession:
    """A session that was initialized. Each post and each stream may have a connection of its own."""

    place: Place
    revision: Revision
    id: str
    agreed: Json
    lines: tuple[str, ...]
    client: Client
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    @classmethod
    async def open(cls, place: Place, revision: Revision, *lines: str, is_ready: bool = True) -> Self:
        client = await place.connect()
        await client.send(client.post(initialize(revision), *lines))
        answer = await client.answer()
        assert answer.status == 200, answer
        session = cls(place, revision, answer.headers["mcp-session-id"], answer.result, lines, client)
        if is_ready:
            assert (await session.say({"method": "notifications/initialized"})).status == 202
        return session

    # What may be sent.

    def headers(self, more: dict[str, str | None]) -> dict[str, str | None]:
        has_version = self.revision >= Revision.V2025_06_18
        usual: dict[str, str | None] = {"mcp_protocol_version": str(self.revision)} if has_version else {}
        return {"mcp_session_id": self.id, **usual, **more}

    def post(self, message: Any, **more: str | None) -> bytes:
        return self.client.post(message, *self.lines, **self.headers(more))

    def get(self, last: str | None = None, **more: str | None) -> bytes:
        usual: dict[str, str | None] = {"accept": "text/event-stream", "last_event_id": last}
        return request("GET", "/mcp", *self.lines, host=self.client.host.decode(), **self.headers({**usual, **more}))

    def every(self, **more: str | None) -> list[bytes]:
        """One of each kind that names its session."""
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        ending = request("DELETE", "/mcp", *self.lines, host=self.client.host.decode(), **self.headers(more))
        return [self.post(ping, **more), self.post(told, **more), self.get(**more), self.get("0-1", **more), ending]

    def request(self, method: str, *, id: Any = None, **params: Any) -> Json:
        body = {"params": params} if params else {}
        return {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method, **body}

    # What is sent.

    async def say(self, message: Json | list[Json]) -> Answer:
        """Post on the session's first connection."""
        whole = message if isinstance(message, list) else {"jsonrpc": "2.0", **message}
        await self.client.send(self.post(whole))
        return await self.client.answer()

    async def ask(self, method: str, **params: Any) -> Answer:
        return await self.say(self.request(method, **params))

    async def call(self, tool: str, **arguments: Any) -> Answer:
        return await self.ask("tools/call", name=tool, arguments=arguments)

    async def begin(self, tool: str, *, id: Any = None, **arguments: Any) -> Client:
        """Call a tool on a connection of its own, and do not wait."""
        client = await self.place.connect()
        await client.send(self.post(self.request("tools/call", id=id, name=tool, arguments=arguments)))
        return client

    async def streamed(self, tool: str, *, id: Any = None, **arguments: Any) -> Stream:
        return await (await self.begin(tool, id=id, **arguments)).stream_of()

    async def listen(self, last: str | None = None) -> Stream:
        """Open a stream by GET."""
        client = await self.place.connect()
        await client.send(self.get(last))
        return await client.stream_of()

    async def delete(self) -> Answer:
        client = await self.place.connect()
        await client.send(self.every()[-1])
        return await client.answer()


def said(messages: list[Json]) -> list[str]:
    """The words of log messages, and `done` for what a tool returned."""
    return [
        message["params"]["data"] if "method" in message else message["result"]["content"][0]["text"]
        for message in messages
    ]
