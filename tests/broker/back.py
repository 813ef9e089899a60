"""A backend that is played by a test: it does what every server must by itself, and hands over what matters."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import attrs
import msgspec
import trio

from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.revisions import LATEST, MODERN, Revision, meta
from callboard.errors import CannotConnect
from callboard.transports.memory import MemoryConnection, memory_pair
from tests.client.stage import CACHED, EVERYTHING, INFO, Json

SUBSCRIPTION: Final = meta.SUBSCRIPTION_ID
_GONE: Final = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)


def tool(name: str, **more: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def text(words: str, **more: Any) -> Json:
    """The result of a tool."""
    return {"content": [{"type": "text", "text": words}], **more}


def form(message: str = "Who?") -> Json:
    """A question to the user, as the revisions have it that have it."""
    return {
        "message": message,
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }


def named(name: str) -> Json:
    """The user's answer to `form`."""
    return {"action": "accept", "content": {"name": name}}


@attrs.define(eq=False)
class Line:
    """One connection of the broker's to the backend: of a stdio server, one process."""

    back: "Back"
    connection: MemoryConnection
    link: DuplexLink | None = attrs.field(default=None, init=False)
    is_gone: bool = attrs.field(default=False, init=False)
    declared: Json = attrs.field(factory=dict, init=False)
    """What the broker said that its client can be asked, in the handshake."""
    heard: list[Json] = attrs.field(factory=list, init=False)
    listens: dict[object, Json] = attrs.field(factory=dict, init=False)
    answers: dict[object, Json] = attrs.field(factory=dict, init=False)
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def say(self, **message: Any) -> None:
        await self.connection.send(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    async def tell(self, method: str, **params: Any) -> None:
        await self.say(method=method, params=params)

    async def answer(self, request: Json, /, **result: Any) -> None:
        extra = {"resultType": "complete"} if self.back.is_modern else {}
        await self.say(id=request["id"], result={**extra, **result})

    async def refuse(self, request: Json, /, code: int, message: str = "no", **data: Any) -> None:
        await self.say(id=request["id"], error={"code": code, "message": message, **({"data": data} if data else {})})

    async def ask(self, method: str, **params: Any) -> str:
        """Ask the client something, as a legacy server does. Returns the id, by which `answered` finds the answer."""
        asked = f"q{next(self._ids)}"
        await self.say(id=asked, method=method, params=params)
        return asked

    async def answered(self, asked: str) -> Json:
        """The result or error that came for a question."""
        while asked not in self.answers:
            await self.back.wait_news()
        return self.answers[asked]

    def hang_up(self) -> None:
        self.connection.close()

    def told(self, method: str) -> list[Json]:
        """The params of all that came by one method."""
        return [message.get("params", {}) for message in self.heard if message.get("method") == method]


@attrs.define(eq=False)
class Back:
    """The backend: what it lists, who is connected, and what was asked of it and is not answered yet."""

    revision: Revision = LATEST
    tools: Sequence[Json] = attrs.field(factory=lambda: [tool("book"), tool("other")])
    prompts: Sequence[Json] = ({"name": "brief"},)
    resources: Sequence[Json] = ({"uri": "notes://one", "name": "one"},)
    templates: Sequence[Json] = ()
    capabilities: Json = attrs.field(factory=lambda: dict(EVERYTHING))
    refused: set[str] = attrs.field(factory=set)
    """Resources that nobody may follow."""
    key: str | None = None
    """What it is remembered by."""
    hangs: bool = False
    """Whether it says nothing to what it does not know."""
    dies: bool = False
    """Whether it ends at the first request that it does not know."""
    holds: set[str] = attrs.field(factory=set)
    """What it does not answer by itself, although it could: that is left to the test."""
    ends_in: float = 0.0
    """Seconds that each of its processes takes to end."""
    looks_like_http: bool = False
    """Whether it is, once it is up, as if nothing but answers told that it is there."""
    is_down: bool = attrs.field(default=False, init=False)
    is_deaf: bool = attrs.field(default=False, init=False)
    """Whether it reads nothing more."""
    lines: list[Line] = attrs.field(factory=list, init=False)
    _waiting: list[tuple[Line, Json]] = attrs.field(factory=list, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def is_modern(self) -> bool:
        return self.revision in MODERN

    @property
    def ways(self) -> TransportRoutes:
        return TransportRoutes(self.key, (TransportRoute("stdio", self._open),))

    async def hear(self, method: str = "tools/call") -> tuple[Line, Json]:
        """The next message of *method*, and where it came."""
        while True:
            for one in self._waiting:
                if one[1].get("method") == method:
                    self._waiting.remove(one)
                    return one
            await self.wait_news()

    async def wait_news(self) -> None:
        await self._news.wait()

    def told(self, method: str) -> list[Json]:
        """The params of all that came by one method, on whichever line."""
        return [params for line in self.lines for params in line.told(method)]

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Link]:
        if self.is_down:
            raise CannotConnect("nobody is at home")
        there, here = memory_pair()
        line = Line(self, here)
        self.lines.append(line)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, line)
                try:
                    line.link = DuplexLink(there)
                    yield line.link
                finally:
                    there.close()
                    with trio.CancelScope(shield=True):
                        await trio.sleep(self.ends_in)
                    line.is_gone = True
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None  # the nursery is ours: what went wrong comes out by its own name

    async def _serve(self, line: Line) -> None:
        try:
            while True:
                while self.is_deaf:  # noqa: ASYNC110 -- a test changes it at any time
                    await trio.sleep(1)
                message: Json = msgspec.json.decode(await line.connection.receive())
                line.heard.append(message)
                await self._take(line, message)
                self._news.set()
                self._news = trio.Event()
        except _GONE:
            line.hang_up()

    async def _take(self, line: Line, message: Json) -> None:
        method = message.get("method")
        if method == "tools/list" and line.link is not None:
            line.link.is_http = self.looks_like_http
        if method is None:
            line.answers[message["id"]] = message
        elif "id" not in message or method in self.holds:
            self._waiting.append((line, message))
        elif (result := self._by_itself(line, method, message.get("params", {}))) is not None:
            await line.answer(message, **result)
        elif method == "server/discover":
            if self.dies:
                line.hang_up()
            elif not self.hangs:
                await line.refuse(message, -32601, "no such method")
        elif method == "resources/subscribe":
            await line.refuse(message, -32602, "not that one")
        elif method == "subscriptions/listen":
            await self._acknowledge(line, message)
        else:
            self._waiting.append((line, message))

    def _by_itself(self, line: Line, method: str, params: Json) -> Mapping[str, Any] | None:
        lists: Mapping[str, tuple[str, Sequence[Json]]] = {
            "tools/list": ("tools", self.tools),
            "prompts/list": ("prompts", self.prompts),
            "resources/list": ("resources", self.resources),
            "resources/templates/list": ("resourceTemplates", self.templates),
        }
        if method in lists:
            member, entries = lists[method]
            return {member: entries, **(CACHED if self.is_modern else {})}
        if method == "initialize":
            line.declared = params["capabilities"]
            return {"protocolVersion": self.revision.value, "capabilities": self.capabilities, "serverInfo": INFO}
        if method == "server/discover" and self.is_modern:
            return {"supportedVersions": [self.revision.value], "capabilities": self.capabilities, **CACHED}
        if method in ("ping", "logging/setLevel", "resources/unsubscribe"):
            return {}
        return {} if method == "resources/subscribe" and params["uri"] not in self.refused else None

    async def _acknowledge(self, line: Line, message: Json) -> None:
        wanted = message["params"]["notifications"]
        if "resourceSubscriptions" in wanted:
            uris = [uri for uri in wanted["resourceSubscriptions"] if uri not in self.refused]
            wanted = {"resourceSubscriptions": uris} if uris else {}
        line.listens[message["id"]] = wanted
        about = {SUBSCRIPTION: message["id"]}
        await line.tell("notifications/subscriptions/acknowledged", notifications=wanted, _meta=about)
