"""Any set of transports at once: what is opened, what is announced, what is refused, and how it ends."""

import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pytest
import trio
import trio.testing
import trio_websocket

from callboard import Context, Server
from callboard.codecs.revisions import Implementation, meta
from callboard.errors import DRAINING, CannotServe
from callboard.serve.banner import as_json, as_text
from callboard.serve.options import HTTP_ENGINES, Listening, Options, Ready, ServePlan, warnings_for
from callboard.serve.run import serve
from callboard.serve.tokens import TokenTable
from callboard.transports.bind import BindAddress, Bound
from callboard.transports.limits import Settings
from callboard.transports.server.stdio import Pipes
from tests.certificate import write_certificate

PATIENCE: Final = 20.0
TOKEN: Final = "0123456789abcdef-of-ada"  # noqa: S105  # it opens nothing
QUICK: Final = Settings(drain_time=2.0)
MODERN_META: Final = {meta.PROTOCOL_VERSION: "2026-07-28", meta.CLIENT_CAPABILITIES: {}}


def hosted() -> Server:
    server = Server("app", version="3.2.1")
    server.asleep = trio.Event()  # type: ignore[attr-defined]  # the test's own

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def who(*, ctx: Context) -> str:
        return ctx.principal

    @server.tool
    async def errand(seconds: float) -> str:
        server.asleep.set()  # type: ignore[attr-defined]
        await trio.sleep(seconds)
        return "slept"

    @server.tool
    async def request(seconds: float, *, ctx: Context) -> str:
        server.asleep.set()  # type: ignore[attr-defined]
        await trio.sleep(seconds)
        return "slept"

    return server


class Served:
    """A server that is ready, and the way to end it."""

    def __init__(self, server: Server, ready: Ready, enough: trio.Event) -> None:
        self.server, self.ready, self.enough = server, ready, enough

    def url(self, transport: str) -> str:
        found = next(one.url for one in self.ready.listening if one.transport == transport)
        assert found is not None
        return found


@asynccontextmanager
async def served(server: Server | None = None, **options: Any) -> AsyncIterator[Served]:
    server, enough = server or hosted(), trio.Event()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            given: Any = {"settings": QUICK, **options}

            async def run(*, task_status: trio.TaskStatus[Ready]) -> None:
                await serve(server, until=enough.wait, task_status=task_status, **given)

            here = Served(server, await nursery.start(run), enough)
            yield here
            here.enough.set()


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": MODERN_META}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def post(
    url: str, message: Any, *, token: str | None = None, tls: ssl.SSLContext | None = None, host: str | None = None
) -> tuple[int, Any]:
    """One request on a connection of its own: status, and what the body says."""
    split = urlsplit(url)
    stream: trio.abc.Stream
    if split.scheme.endswith("+unix"):
        stream = await trio.open_unix_socket(unquote(split.netloc))
        named = "localhost"
    else:
        stream = await trio.open_tcp_stream(split.hostname or "", split.port or 0)
        named = split.netloc
    if tls is not None:
        stream = trio.SSLStream(stream, tls, server_hostname=split.hostname, https_compatible=True)
    body = json.dumps(message).encode()
    headers = {
        "Host": host or named,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": message["method"],
        "Mcp-Name": message["params"].get("name", ""),
        "Connection": "close",
        **({} if token is None else {"Authorization": f"Bearer {token}"}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    async with stream:
        await stream.send_all(f"POST {split.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = b"".join([bytes(data) async for data in stream])
    first, _, rest = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), json.loads(rest) if rest else None


def said(answer: Any) -> str:
    words: str = answer["result"]["content"][0]["text"]
    return words


# What is opened.


async def test_http_and_websocket_each_at_an_address_of_its_own() -> None:
    async with served(http="127.0.0.1:0", ws="localhost:0") as here:
        assert said((await post(here.url("http"), call("echo", text="by HTTP")))[1]) == "by HTTP"
        async with trio_websocket.open_websocket_url(here.url("ws"), subprotocols=["mcp"]) as socket:
            await socket.send_message(json.dumps(call("echo", text="by WebSocket")))
            assert said(json.loads(await socket.get_message())) == "by WebSocket"
        status, _ = await post(here.url("ws").replace("ws:", "http:"), call("echo", text="x"))
        assert status == 426


async def test_http_and_websocket_share_one_address_if_it_is_one() -> None:
    async with served(http="127.0.0.1:0", ws="127.0.0.1:0") as here:
        assert urlsplit(here.url("http")).port == urlsplit(here.url("ws")).port
        assert said((await post(here.url("http"), call("echo", text="x")))[1]) == "x"
        async with trio_websocket.open_websocket_url(here.url("ws"), subprotocols=["mcp"]) as socket:
            await socket.send_message(json.dumps(call("echo", text="y")))
            assert said(json.loads(await socket.get_message())) == "y"


async def test_a_unix_socket_serves_whoever_may_open_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with served(http="unix:a.sock") as here:
        assert said((await post(here.url("http"), call("echo", text="x")))[1]) == "x"
    assert not (tmp_path / "a.sock").exists()


async def test_the_asgi_door_serves_the_same() -> None:
    async with served(http="127.0.0.1:0", http_engine="asgi", settings=Settings(drain_time=1, write_time=1)) as here:
        assert said((await post(here.url("http"), call("echo", text="x")))[1]) == "x"


async def test_http_with_sse_is_there_only_if_asked_for() -> None:
    async with served(http="127.0.0.1:0", legacy_sse=True) as here:
        assert here.url("sse") == here.url("http").removesuffix("mcp") + "sse"
    async with served(http="127.0.0.1:0") as here:
        assert [one.transport for one in here.ready.listening] == ["http"]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate for localhost that signs itself, and its key."""
    certificate, key = write_certificate(tmp_path, "localhost")
    return str(certificate), str(key)


async def test_with_a_certificate_it_is_https(certificate: tuple[str, str]) -> None:
    tls = ssl.create_default_context(cafile=certificate[0])
    async with served(http="localhost:0", tls_cert=certificate[0], tls_key=certificate[1]) as here:
        assert here.url("http").startswith("https://localhost:")
        assert said((await post(here.url("http"), call("echo", text="x"), tls=tls))[1]) == "x"


# Who may use it.


async def test_other_names_and_tokens_are_asked_for() -> None:
    async def authenticate(token: str) -> str | None:
        return "ada" if token == TOKEN else None

    async with served(http="127.0.0.1:0", allow_hosts=["mcp.example.com:80"], authenticate=authenticate) as here:
        url = here.url("http")
        assert (await post(url, call("who")))[0] == 401
        assert (await post(url, call("who"), token="wrong"))[0] == 401  # noqa: S106
        assert said((await post(url, call("who"), token=TOKEN))[1]) == "ada"
        assert said((await post(url, call("who"), token=TOKEN, host="mcp.example.com"))[1]) == "ada"
        assert (await post(url, call("who"), token=TOKEN, host="evil.example.com"))[0] == 421


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"http_engine": "back"}, "invalid http_engine 'back'"),
        ({"http": 0, "tls_cert": "c"}, "TLS needs a certificate and its key"),
        ({"legacy_sse": True}, "legacy SSE needs an HTTP address"),
        ({"http": "nowhere"}, "invalid address"),
        ({"http": 0, "allow_hosts": ["a b"]}, "not a host: 'a b'"),
        ({"http": 0, "allow_origins": ["null"]}, "not an origin: 'null'"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_starts(options: Options, words: str) -> None:
    began: list[Server] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        began.append(server)
        yield

    with pytest.raises(CannotServe, match=words):
        await serve(Server("app", lifespan=lifespan), **options)
    assert not began


def warnings(place: BindAddress, **options: Any) -> list[str]:
    return list(warnings_for(ServePlan(**options), {place: Bound(place, ())}))


def test_who_listens_to_other_machines_is_warned() -> None:
    assert warnings(BindAddress("127.0.0.1", 80)) == warnings(BindAddress(path="/x")) == []
    open_to_all = warnings(BindAddress("192.0.2.1", 80))
    assert open_to_all[0] == "other machines can reach 192.0.2.1:80 without authentication"
    assert open_to_all[1] == "the Host header of requests must be 192.0.2.1:80; accept others with --allow-host NAME"
    (only,) = warnings(BindAddress("192.0.2.1", 80), allow_hosts=["a.example"], authenticate=TokenTable())
    assert "token" not in only


# What is said.


@pytest.fixture
def ready() -> Ready:
    places = (
        Listening("http", "http://127.0.0.1:80/mcp"),
        Listening("ws", "ws://127.0.0.1:81/mcp"),
        Listening("stdio"),
    )
    return Ready(Implementation(name="weather", version="1.2.0"), places, ("careful",))


def test_people_are_told_where_in_a_form_that_they_can_paste(ready: Ready) -> None:
    first, http, ws, stdio, snippet, warning = as_text(ready).splitlines()
    assert first.startswith("weather 1.2.0 (callboard ")
    unversioned = Ready(Implementation(name="weather", version="0"), ready.listening)
    assert as_text(unversioned).startswith("weather (callboard ")
    assert http.split() == ["http", "http://127.0.0.1:80/mcp"]
    assert ws.split() == ["ws", "ws://127.0.0.1:81/mcp"]
    assert stdio.split()[0] == "stdio"
    assert json.loads(snippet) == {"mcpServers": {"weather": {"url": "http://127.0.0.1:80/mcp"}}}
    assert warning.strip() == "warning: careful"


def test_scripts_are_told_the_same_on_one_line(ready: Ready) -> None:
    assert "\n" not in as_json(ready)
    told = json.loads(as_json(ready))
    assert told["server"] == {"name": "weather", "version": "1.2.0"}
    assert told["listening"] == [
        {"transport": "http", "url": "http://127.0.0.1:80/mcp"},
        {"transport": "ws", "url": "ws://127.0.0.1:81/mcp"},
        {"transport": "stdio"},
    ]
    assert told["pid"] > 0


# How it ends.


@pytest.mark.parametrize("engine", HTTP_ENGINES)
@pytest.mark.parametrize("tool", ["errand", "request"])
async def test_asked_to_end_it_finishes_what_is_in_flight_and_lets_nobody_in(tool: str, engine: str) -> None:
    async with served(http="127.0.0.1:0", http_engine=engine, settings=Settings(write_time=0.1)) as here:
        answers = []

        async def ask() -> None:
            answers.append(await post(here.url("http"), call(tool, seconds=0.5)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await here.server.asleep.wait()  # type: ignore[attr-defined]
            here.enough.set()
            await trio.testing.wait_all_tasks_blocked(0.05)
            with pytest.raises(OSError, match="all attempts to connect"):
                await post(here.url("http"), call("echo", text="too late"))
        assert said(answers[0][1]) == "slept"


async def test_the_end_of_input_ends_the_other_transports_too_when_they_are_done() -> None:
    incoming, to_it = os.pipe()
    from_it, outgoing = os.pipe()
    try:
        async with served(http="127.0.0.1:0", stdio=Pipes(incoming, outgoing), settings=Settings()) as here:
            os.write(to_it, json.dumps(call("echo", text="by stdio")).encode() + b"\n")
            answer = await trio.to_thread.run_sync(os.read, from_it, 65_536)
            assert said(json.loads(answer)) == "by stdio"

            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    assert said((await post(here.url("http"), call("request", seconds=0.3)))[1]) == "slept"

                nursery.start_soon(ask)
                await here.server.asleep.wait()  # type: ignore[attr-defined]
                os.close(to_it)
            here.enough = trio.Event()  # nobody else ends it
    finally:
        for fd in (incoming, from_it, outgoing):
            os.close(fd)


async def test_what_takes_too_long_is_told_so() -> None:
    async def ask() -> None:
        status, answer = await post(here.url("http"), call("request", seconds=3600))
        assert (status, answer["error"]["code"]) == (503, DRAINING)

    async with served(http="127.0.0.1:0", settings=Settings(drain_time=0.2)) as here, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await here.server.asleep.wait()  # type: ignore[attr-defined]
        here.enough.set()


async def head_and_stream(url: str, method: str, headers: dict[str, str], body: bytes = b"") -> trio.SocketStream:
    """Send a request and leave its answer to be read."""
    split = urlsplit(url)
    stream = await trio.open_tcp_stream(split.hostname or "", split.port or 0)
    given = {"Host": split.netloc, "Accept": "application/json, text/event-stream", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    await stream.send_all(f"{method} {split.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    return stream


async def read_until(stream: trio.SocketStream, words: bytes) -> bytes:
    read = b""
    while words not in read:
        data = await stream.receive_some()
        assert data, read
        read += data
    return read


async def read_to_end(stream: trio.SocketStream) -> bytes:
    return b"".join([bytes(data) async for data in stream])


def posted(message: Any, **headers: str) -> tuple[dict[str, str], bytes]:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}, body


async def test_who_listens_is_told_and_streams_without_an_end_do_not_hold_it_up() -> None:
    listen = {"notifications": {"toolsListChanged": True}, "_meta": MODERN_META}
    modern = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    who = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    async with served(http="127.0.0.1:0", ws="127.0.0.1:0", settings=Settings()) as here:
        url = here.url("http")
        message = {"id": 7, "method": "subscriptions/listen", "params": listen}
        subscription = await head_and_stream(url, "POST", *posted(message, **modern))
        await read_until(subscription, b"acknowledged")
        opening = await head_and_stream(url, "POST", *posted({"id": 0, "method": "initialize", "params": who}))
        session = (await read_until(opening, b"serverInfo")).partition(b"mcp-session-id: ")[2].split()[0].decode()
        standalone = await head_and_stream(url, "GET", {"Mcp-Session-Id": session})
        await read_until(standalone, b"text/event-stream")
        async with trio_websocket.open_websocket_url(here.url("ws"), subprotocols=["mcp"]) as socket:
            await socket.send_message(json.dumps(call("echo", text="x")))
            await socket.get_message()
            started = trio.current_time()
            here.enough.set()
            told = await read_to_end(subscription)
            assert b'"id":7,"result"' in told
            await read_to_end(standalone)
            await read_to_end(opening)  # an idle one
            with pytest.raises(trio_websocket.ConnectionClosed) as closed:
                await socket.get_message()
            assert closed.value.reason is not None
            assert closed.value.reason.code == 1001
            await socket._stream.aclose()  # trio-websocket leaves that to the server, and then to nobody
        assert trio.current_time() - started < 3
        for stream in (subscription, opening, standalone):
            await stream.aclose()


async def test_cancelled_it_ends_at_once_and_says_so() -> None:
    server, answered = hosted(), list[Any]()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as clients, trio.open_nursery() as nursery:
            ready = await nursery.start(partial(serve, server, http="127.0.0.1:0"))

            async def ask() -> None:
                answered.append(await post(ready.listening[0].url, call("request", seconds=3600)))

            clients.start_soon(ask)
            await server.asleep.wait()  # type: ignore[attr-defined]
            nursery.cancel_scope.cancel()
    [(status, said)] = answered
    assert (status, said["error"]["code"]) == (503, DRAINING)
