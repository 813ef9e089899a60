"""Clients of a process that serves: the same few moves over HTTP, WebSocket and stdio, in both eras.

Each notes every message that it hears, to the end of its connections: nothing that came too late goes unseen.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Literal, Self, TypeAlias, get_args
from urllib.parse import urlsplit

import attrs
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from callboard.codecs.revisions import meta
from callboard.codecs.revisions.revision import R4, R5
from tests.process import Process
from tests.transports.server.http.stage import Client, Gone, Stream, mirror, request

Json: TypeAlias = dict[str, Any]
Era: TypeAlias = Literal["modern", "legacy"]
Transport: TypeAlias = Literal["http", "websocket", "stdio"]
ERAS: Final[tuple[Era, ...]] = get_args(Era)
TRANSPORTS: Final[tuple[Transport, ...]] = get_args(Transport)

ABILITIES: Final[Json] = {"elicitation": {"form": {}}}
ABOUT: Final = {meta.PROTOCOL_VERSION: R5.value, meta.CLIENT_CAPABILITIES: ABILITIES}
SESSION: Final = "dev.callboard/session"
RESUMED: Final = "notifications/dev.callboard/resumed"
ANSWER: Final = {"action": "accept", "content": {"name": "Ada"}}


@attrs.define(eq=False)
class Line(ABC):
    """One client, and all that it has heard."""

    era: Era
    nursery: trio.Nursery
    name: str = attrs.field(default="client", kw_only=True)
    heard: list[Json] = attrs.field(factory=list, init=False)
    faults: list[str] = attrs.field(factory=list, init=False)
    """Answers that were no HTTP."""
    _stirred: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    @abstractmethod
    async def say(self, message: Json) -> None:
        """Send one message, as a client of this era does."""

    @abstractmethod
    async def drop(self) -> None:
        """Close the connection, or all of them, without a word."""

    async def come_back(self) -> None:
        """After `drop`: connect again, to the same session if there is one."""
        await trio.lowlevel.checkpoint()  # over HTTP each message has a connection, and from stdio there is no way back

    async def leave(self) -> None:
        """End the session, as a client does that is done."""
        await self.drop()

    async def open(self) -> None:
        """Shake hands, in the legacy era."""
        if self.era == "legacy":
            await self.say(self.hello())
            await self.wait_answer("hello")
            await self.say({"method": "notifications/initialized"})

    def hello(self) -> Json:
        info = {"name": self.name, "version": "1"}
        params = {"protocolVersion": R4.value, "capabilities": ABILITIES, "clientInfo": info}
        return {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params}

    async def ask(self, method: str, *, id: str | None = None, token: str | None = None, **params: Any) -> str:
        """Send a request, and return its id."""
        key = f"own-{next(self._ids)}" if id is None else id
        about = {**ABOUT, meta.CLIENT_INFO: {"name": self.name, "version": "1"}} if self.era == "modern" else {}
        about |= {} if token is None else {"progressToken": token}
        await self.say({"id": key, "method": method, "params": {**params, **({"_meta": about} if about else {})}})
        return key

    async def cancel(self, id: str) -> None:
        """Tell the server that the answer is not wanted any more."""
        await self.say({"method": "notifications/cancelled", "params": {"requestId": id}})

    def note(self, message: Json) -> None:
        self.heard.append(message)
        self._stirred.set()
        self._stirred = trio.Event()

    def answers(self, id: str) -> list[Json]:
        return [message for message in self.heard if message.get("id") == id and "method" not in message]

    async def wait_answer(self, id: str) -> Json:
        return await self.wait_heard(lambda message: message.get("id") == id and "method" not in message)

    async def wait_question(self, label: str = "") -> Json:
        """What the server asks of a legacy client, for the call of this *label* if there are many."""
        return await self.wait_heard(
            lambda message: message.get("method") == "elicitation/create" and label in message["params"]["message"]
        )

    async def wait_heard(self, is_wanted: Callable[[Json], bool]) -> Json:
        while not (found := [message for message in self.heard if is_wanted(message)]):
            await self._stirred.wait()
        return found[0]

    async def answer_question(self, label: str = "") -> None:
        await self.say({"id": (await self.wait_question(label))["id"], "result": ANSWER})

    async def retry(self, id: str, label: str, *, by: "Line | None" = None) -> Json:
        """Go on with a modern call that is parked: as another request, of this client or *by* another; its answer."""
        asked, line = (await self.wait_answer(id))["result"], self if by is None else by
        retried = await line.ask(
            "tools/call",
            id=f"{id}-retried",
            name="parked",
            arguments={"label": label},
            inputResponses=dict.fromkeys(asked["inputRequests"], ANSWER),
            requestState=asked["requestState"],
        )
        return await line.wait_answer(retried)


@attrs.define(eq=False)
class HttpLine(Line):
    """A connection for each message."""

    url: str
    _session: str | None = attrs.field(default=None, init=False)
    _posts: dict[object, Client] = attrs.field(factory=dict, init=False)

    async def say(self, message: Json) -> None:
        client = await self._connect()
        if "method" in message:
            self._posts[message.get("id")] = client
        self.nursery.start_soon(self._read, client)  # it closes the connection, whatever happens
        await client.send(client.post({"jsonrpc": "2.0", **message}, **self._headers(message)))

    async def open(self) -> None:
        """As `Line.open`; here the answer's head has the session."""
        if self.era == "modern":
            return
        client = await self._connect()
        await client.send(client.post(self.hello()))
        answer = await client.answer()
        self._session = answer.headers["mcp-session-id"]
        self.note(answer.json)
        await client.send(client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **self._headers({})))
        assert (await client.answer()).status == 202
        await client.aclose()

    async def drop(self) -> None:
        for client in self._posts.values():
            await client.aclose()
        self._posts.clear()

    async def leave(self) -> None:
        if self._session is not None:
            client = await self._connect()
            await client.send(request("DELETE", "/mcp", host=client.host.decode(), **self._headers({})))
            assert (await client.answer()).status == 204
            await client.aclose()
        await self.drop()

    async def cancel(self, id: str) -> None:
        """As `Line.cancel`; the modern era has no such notification over HTTP: to close the stream is to cancel."""
        if self.era == "modern":
            await self._posts[id].aclose()
        else:
            await super().cancel(id)

    def _headers(self, message: Json) -> dict[str, str | None]:
        if self.era == "modern":
            return mirror(message.get("method", ""), message.get("params", {}))
        return {"mcp_session_id": self._session, "mcp_protocol_version": R4.value}

    async def _connect(self) -> Client:
        at = urlsplit(self.url)
        stream = await trio.open_tcp_stream(at.hostname or "", at.port or 0)
        return Client(stream, stream.socket, at.netloc.encode())

    async def _read(self, client: Client) -> None:
        """Note what is answered, until either side closes."""
        try:
            while True:
                head = await client.head()
                if head.headers.get("content-type") == "text/event-stream":
                    stream = Stream(client, head)
                    while (event := await stream.event()) is not None:
                        if event.data:
                            self.note(json.loads(event.data))
                elif (size := int(head.headers.get("content-length", 0))) > 0:
                    self.note(json.loads(await client._exactly(size)))
        except (Gone, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except (ValueError, AssertionError) as error:
            self.faults.append(repr(error))
        finally:
            await client.aclose()


@attrs.define(eq=False)
class WebSocketLine(Line):
    """One socket."""

    url: str
    _stream: trio.SocketStream = attrs.field(init=False)
    _socket: WebSocketConnection = attrs.field(init=False)

    async def say(self, message: Json) -> None:
        await self._socket.send_message(json.dumps({"jsonrpc": "2.0", **message}))

    async def open(self) -> None:
        await self._connect({})
        await super().open()

    async def drop(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def leave(self) -> None:
        await self._socket.aclose()

    async def come_back(self) -> None:
        if self.era == "modern":
            await self._connect({})
        else:
            session = self.heard[0]["result"]["_meta"][SESSION]["id"]
            await self._connect({"Mcp-Session-Id": session, "Mcp-Received": str(len(self.heard))})

    async def _connect(self, headers: dict[str, str]) -> None:
        at = urlsplit(self.url)
        self._stream = await trio.open_tcp_stream(at.hostname or "", at.port or 0)
        more = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._socket = await wrap_client_stream(
            self.nursery, self._stream, at.netloc, at.path, subprotocols=["mcp"], extra_headers=more
        )
        self.nursery.start_soon(self._read, self._stream, self._socket)

    async def _read(self, stream: trio.SocketStream, socket: WebSocketConnection) -> None:
        try:
            while True:
                message = json.loads(await socket.get_message())
                if message.get("method") != RESUMED:  # it is not one of the session's
                    self.note(message)
        except ConnectionClosed:
            pass
        finally:
            await trio.aclose_forcefully(stream)


@attrs.define(eq=False)
class StdioLine(Line):
    """The pipes of the process itself."""

    process: Process

    async def say(self, message: Json) -> None:
        await self.process.say(message)

    async def open(self) -> None:
        self.nursery.start_soon(self._read)
        await super().open()

    async def drop(self) -> None:
        await self.process.hang_up()

    async def _read(self) -> None:
        while (line := await self.process.line()) is not None:
            self.note(json.loads(line))


@attrs.frozen
class Lines:
    """A client of each transport, all of one era, and the process that they speak to."""

    process: Process
    http: HttpLine
    websocket: WebSocketLine
    stdio: StdioLine
    control: HttpLine
    """One more, modern, by which a test holds the strings."""

    @classmethod
    async def opened(cls, process: Process, era: Era, nursery: trio.Nursery) -> Self:
        """Connect to a process that was started with `--json`, `--http` and `--ws` beside `--stdio`."""
        await process.wait_said(b'"pid"')
        told = json.loads(next(line for line in process.words.splitlines() if '"pid"' in line))
        urls = {place["transport"]: place.get("url") for place in told["listening"]}
        here = cls(
            process,
            HttpLine(era, nursery, urls["http"]),
            WebSocketLine(era, nursery, urls["ws"]),
            StdioLine(era, nursery, process),
            HttpLine("modern", nursery, urls["http"]),
        )
        for transport in TRANSPORTS:
            await here.of(transport).open()
        return here

    def of(self, transport: Transport) -> Line:
        line: Line = getattr(self, transport)
        return line
