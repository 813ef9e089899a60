"""Faults of real servers on real sockets: each has a name, comes in bounded time, and leaves nothing behind."""

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio

from callboard.actors.client.conversation import Patience
from callboard.client import Client, connect
from callboard.errors import BadAnswer, CallboardError, CannotConnect, ConnectionLost, HttpRefused, RequestTimedOut
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.transports.client.pool import Origin, reach
from callboard.transports.client.tls import believed
from tests.certificate import certified
from tests.process import CALLBOARD, Process, started
from tests.shared import APPS
from tests.transports.server.http.house import House, open_house

APP: Final = str(APPS / "curious.py")
PATIENCE: Final = 20.0
"""Seconds for a whole test: on a machine that does nothing else each takes less than one."""
SHORT: Final = Patience(timeout=1)

Stream = trio.SocketStream
Handler = Callable[[Stream, bytes], Awaitable[None]]


def whole(body: bytes, status: str = "200 OK", *headers: str, kind: str = "application/json") -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode() + body


def result(request: Any, **members: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", **members}})


STREAM: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def listening(handle: Handler, *, greets: bool = True) -> AsyncIterator[str]:
    """A server on a port of this machine: the URL. It *greets* by itself; other requests are the handler's."""

    async def serve_one(stream: Stream) -> None:
        try:
            async with stream:
                buffer = b""
                while True:
                    while b"\r\n\r\n" not in buffer:
                        buffer += await received(stream)
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    size = int(
                        next((line[15:] for line in head.split(b"\r\n") if line.startswith(b"content-length")), 0)
                    )
                    while len(buffer) < size:
                        buffer += await received(stream)
                    body, buffer = buffer[:size], buffer[size:]
                    await answer(stream, body)
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError):
            return

    async def received(stream: Stream) -> bytes:
        data = await stream.receive_some()
        if not data:
            raise EOFError
        return bytes(data)

    async def answer(stream: Stream, body: bytes) -> None:
        request = msgspec.json.decode(body) if body else {}
        if greets and request.get("method") == "server/discover":
            offered = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            await stream.send_all(whole(result(request, **offered, ttlMs=0, cacheScope="public")))
        else:
            await handle(stream, body)

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, serve_one, [listener])
            yield f"http://127.0.0.1:{port}/mcp"
            nursery.cancel_scope.cancel()


async def outcome(client: Client) -> CallboardError:
    with pytest.raises(CallboardError) as failed:
        await client.call("x", patience=SHORT)
    return failed.value


# One fault after the other.


async def killed(stream: Stream, _: bytes) -> None:
    """With a reset, as a kernel says that nobody is there any more."""
    stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    await stream.aclose()


async def closed(stream: Stream, _: bytes) -> None:
    await stream.aclose()


async def cut_in_the_head(stream: Stream, _: bytes) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-ty")
    await stream.aclose()


async def cut_in_the_body(stream: Stream, body: bytes) -> None:
    await stream.send_all(whole(result(msgspec.json.decode(body), content=[]))[:-5])
    await stream.aclose()


async def cut_in_the_stream(stream: Stream, _: bytes) -> None:
    await stream.send_all(STREAM + chunk(b'data: {"jsonrpc":"2.0","method":"notifications/message",'))
    await stream.aclose()


async def hung(stream: Stream, _: bytes) -> None:
    await stream.receive_some()


async def hung_in_the_stream(stream: Stream, _: bytes) -> None:
    await stream.send_all(STREAM + chunk(b": here\n\n"))
    await stream.receive_some()


async def dripping(stream: Stream, _: bytes) -> None:
    """Never silent, and never done."""
    await stream.send_all(STREAM)
    while True:
        await stream.send_all(chunk(b": still here\n\n"))
        await trio.sleep(0.05)


async def garbage(stream: Stream, _: bytes) -> None:
    await stream.send_all(bytes(range(256)) * 8)


async def no_json(stream: Stream, _: bytes) -> None:
    await stream.send_all(whole(b"\xff\xfe{"))


async def another_id(stream: Stream, body: bytes) -> None:
    request = msgspec.json.decode(body)
    await stream.send_all(whole(result({**request, "id": request["id"] + 1}, content=[])))


async def moved(stream: Stream, _: bytes) -> None:
    await stream.send_all(whole(b"", "301 Moved Permanently", "location: http://127.0.0.1:1/elsewhere"))


async def switched(stream: Stream, _: bytes) -> None:
    await stream.send_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n")


async def endless_head(stream: Stream, _: bytes) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\n")
    while True:
        await stream.send_all(b"x: " + b"y" * 8000 + b"\r\n")


async def endless_body(stream: Stream, _: bytes) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1073741824\r\n\r\n")
    while True:
        await stream.send_all(b" " * 65536)


async def endless_event(stream: Stream, _: bytes) -> None:
    await stream.send_all(STREAM + chunk(b"data: "))
    while True:
        await stream.send_all(chunk(b"x" * 65536))


@pytest.mark.parametrize(
    ("fault", "error", "why"),
    [
        (killed, ConnectionLost, ""),
        (closed, ConnectionLost, "connection closed by the server"),
        (cut_in_the_head, ConnectionLost, "connection closed by the server"),
        (cut_in_the_body, ConnectionLost, "connection closed by the server"),
        (cut_in_the_stream, ConnectionLost, "connection closed by the server"),
        (hung, RequestTimedOut, "timed out: no response within 1"),
        (hung_in_the_stream, RequestTimedOut, "timed out: no response within 1"),
        (dripping, RequestTimedOut, "timed out: no response within 1"),
        (garbage, BadAnswer, "invalid HTTP"),
        (no_json, BadAnswer, "UTF-8"),
        (another_id, BadAnswer, "for another request"),
        (moved, HttpRefused, "HTTP 301"),
        (switched, BadAnswer, "switched to another protocol"),
        (endless_head, BadAnswer, "response head larger than"),
        (endless_body, BadAnswer, "response larger than"),
        (endless_event, BadAnswer, "exceeds"),
    ],
)
async def test_a_fault_in_a_call_has_a_name_and_the_next_call_finds_the_server_again(
    fault: Handler, error: type[CallboardError], why: str
) -> None:
    is_faulty = True

    async def handle(stream: Stream, body: bytes) -> None:
        if is_faulty:
            await fault(stream, body)
        else:
            await stream.send_all(whole(result(msgspec.json.decode(body), content=[])))

    async with listening(handle) as url, connect(url) as client:
        began = trio.current_time()
        failure = await outcome(client)
        assert isinstance(failure, error), failure
        assert why in str(failure)
        assert trio.current_time() - began < 5
        is_faulty = False
        assert (await client.call("x")).content == []


@pytest.mark.parametrize("fault", [killed, closed, cut_in_the_head, garbage, no_json, moved, switched, endless_head])
async def test_a_fault_in_the_handshake_is_no_server(fault: Handler) -> None:
    async with listening(fault, greets=False) as url:
        with pytest.raises(CannotConnect):
            async with connect(url):
                pass


async def test_an_answer_that_comes_twice_does_not_become_the_answer_to_the_next_call() -> None:
    async def handle(stream: Stream, body: bytes) -> None:
        request = msgspec.json.decode(body)
        answer = whole(result(request, content=[{"type": "text", "text": request["params"]["name"]}]))
        await stream.send_all(answer * 2)

    async with listening(handle) as url, connect(url) as client:
        for name in ("one", "two", "three"):
            assert name in str((await client.call(name)).content)


async def test_a_redirect_is_not_followed_with_what_is_secret() -> None:
    seen: list[bytes] = []

    async def elsewhere(stream: Stream, body: bytes) -> None:
        seen.append(body)
        await stream.send_all(whole(b"{}"))

    async with listening(elsewhere, greets=False) as there:

        async def redirecting(stream: Stream, _: bytes) -> None:
            await stream.send_all(whole(b"", "307 Temporary Redirect", f"location: {there}"))

        async with listening(redirecting, greets=False) as url:
            with pytest.raises(CannotConnect, match="HTTP 307"):
                async with connect(url, headers={"authorization": "Bearer secret"}):
                    pass
    assert seen == []


# A server of our own, as a process: killed and stopped.


@asynccontextmanager
async def run() -> AsyncIterator[tuple[dict[str, str], Process]]:
    async with started(
        *CALLBOARD, "run", APP, "--http", "0", "--ws", "0", "--json", stderr=subprocess.DEVNULL
    ) as process:
        told = await process.hear()
        yield {one["transport"]: one["url"] for one in told["listening"]}, process
        if process.process.returncode is None:
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGKILL)


@pytest.mark.parametrize("transport", ["http", "ws"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_server_that_is_killed_in_a_call_fails_it_at_once(transport: str, revision: str) -> None:
    async with run() as (urls, process), connect(urls[transport], revision=revision) as client:

        async def doomed() -> None:
            async with client.call("hang") as call:
                async for _ in call.progress:
                    process.signal(signal.SIGKILL)

        began = trio.current_time()
        with pytest.raises(ConnectionLost):
            await doomed()
        # To a session, and to a WebSocket of any era, a client may come back: so it tries, until no server answers.
        resumes = transport == "ws" or revision == "2025-11-25"
        assert trio.current_time() - began < (8 if resumes else 2)
        with pytest.raises((ConnectionLost, CannotConnect)):
            await client.call("echo", text="x")


HEIR: Final = """
import json, os, subprocess, sys
request = json.loads(sys.stdin.readline())
said = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}
print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", **said}}), flush=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
os.read(0, 1)
os._exit(3)
"""
"""Dies when it is asked something. What it started has all its pipes, and reads none."""


async def test_calls_that_are_being_written_fail_with_the_server_though_somebody_holds_its_pipe() -> None:
    failures: list[CallboardError] = []

    async def call(client: Client, size: int) -> None:
        with pytest.raises(ConnectionLost, match="exited with 3") as failed:
            await client.call("x", text="y" * size)
        failures.append(failed.value)

    with trio.fail_after(PATIENCE):
        async with connect([sys.executable, "-c", HEIR]) as client, trio.open_nursery() as nursery:
            nursery.start_soon(call, client, 1_000_000)  # more than a pipe holds
            nursery.start_soon(call, client, 1)  # which waits behind
    assert len(failures) == 2


@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_a_server_that_is_stopped_costs_the_timeout_and_goes_on_afterwards(transport: str) -> None:
    async with run() as (urls, process), connect(urls[transport]) as client:
        process.signal(signal.SIGSTOP)
        began = trio.current_time()
        with pytest.raises(RequestTimedOut):
            await client.call("echo", text="x", patience=SHORT)
        assert trio.current_time() - began < 3.5
        process.signal(signal.SIGCONT)
        assert "y" in str((await client.call("echo", text="y")).content)


# TLS.


@asynccontextmanager
async def secure(folder: Path, host: str = "localhost") -> AsyncIterator[tuple[dict[str, str], ssl.SSLContext]]:
    """A server with a certificate for *host*, and a context that believes it."""
    _, believing = certified(folder, host)
    ready: list[Ready] = []
    enough = trio.Event()
    house: House = open_house()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:

            async def go() -> None:
                await serve(
                    house.server,
                    http="localhost:0",
                    ws="localhost:0",
                    tls_cert=str(folder / "certificate.pem"),
                    tls_key=str(folder / "key.pem"),
                    on_ready=ready.append,
                    until=enough.wait,
                )

            nursery.start_soon(go)
            while not ready:  # noqa: ASYNC110 - it is told by a function
                await trio.sleep(0.01)
            yield {one.transport: one.url or "" for one in ready[0].listening}, believing
            enough.set()


@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_a_certificate_that_is_believed_is_spoken_to(transport: str, tmp_path: Path) -> None:
    async with secure(tmp_path) as (urls, believing), connect(urls[transport], tls=believing) as client:
        assert "hi" in str((await client.call("echo", text="hi")).content)


@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_a_certificate_that_nobody_vouches_for_is_refused(transport: str, tmp_path: Path) -> None:
    async with secure(tmp_path) as (urls, _):
        with pytest.raises(CannotConnect, match="TLS: CERTIFICATE_VERIFY_FAILED: self-signed certificate"):
            async with connect(urls[transport]):
                pass


async def test_whom_the_system_believes_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ssl.SSLContext] = []

    def ask() -> ssl.SSLContext:
        asked.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return asked[-1]

    async with secure(tmp_path) as (urls, _):
        believed.cache_clear()
        monkeypatch.setattr(ssl, "create_default_context", ask)
        for _ in range(2):
            with pytest.raises(CannotConnect, match="TLS: "):
                async with connect(urls["http"]):
                    pass
    believed.cache_clear()
    assert len(asked) == 1


@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_a_certificate_for_another_name_is_refused(transport: str, tmp_path: Path) -> None:
    async with secure(tmp_path, "elsewhere.example") as (urls, believing):
        with pytest.raises(CannotConnect, match=r"TLS: CERTIFICATE_VERIFY_FAILED: .*not valid for 'localhost'"):
            async with connect(urls[transport], tls=believing):
                pass


async def test_a_server_without_tls_is_not_spoken_to_as_if_it_had_it() -> None:
    async def plain(stream: Stream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, plain, [listener])
            with pytest.raises(CannotConnect, match="TLS: "):
                async with connect(f"https://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"):
                    pass
            nursery.cancel_scope.cancel()


async def test_the_kernel_asks_a_silent_server_for_a_sign_of_life() -> None:
    with trio.fail_after(PATIENCE):
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener:
            wire = await reach(Origin("http", "127.0.0.1", listener.socket.getsockname()[1]))
            with socket.socket(fileno=os.dup(wire.fileno())) as connected:
                assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                if sys.platform == "linux":
                    idle, every, times = (
                        connected.getsockopt(socket.IPPROTO_TCP, option)
                        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                    )
                    assert idle + every * times <= 60
            wire.close()


# Unix sockets.


@pytest.mark.skipif(os.name != "posix" or sys.platform == "cygwin", reason="there are no Unix sockets")
async def test_a_unix_socket_is_spoken_to_as_it_is_printed(tmp_path: Path) -> None:
    place = f"unix:{tmp_path}/a.sock"
    async with started(
        *CALLBOARD, "run", APP, "--http", place, "--ws", place, "--json", stderr=subprocess.DEVNULL
    ) as run:
        told = await run.hear()
        urls = [one["url"] for one in told["listening"]]
        assert len(urls) == 2
        for url in urls:
            async with connect(url) as client:
                assert "hi" in str((await client.call("echo", text="hi")).content)
        run.signal(signal.SIGTERM)
