"""Trace four calls, and print the files of callboard/ that each runs through, in order of first use.

python docs/walks.py

The server or broker under trace is in this process and warm; its client is bytes on a socket, its backend a process, so
that neither is counted. `design/architecture.md` quotes the figures.
"""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from inspect import CO_COROUTINE, CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any, Final

import trio

from callboard import Command, Server
from callboard.actors.broker.policy import BackendSettings
from callboard.broker import Broker
from callboard.codecs.revisions import LATEST
from callboard.codecs.revisions.revision import R4
from callboard.config import BackendSpec
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.server.load import load_server
from callboard.server.served import Hosted

HERE: Final = Path(__file__).resolve().parent
PACKAGE: Final = HERE.parent / "callboard"
APP: Final = HERE / "walked.py"
META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": LATEST.value,
    "io.modelcontextprotocol/clientInfo": {"name": "walks", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
ANSWER: Final = {"action": "accept", "content": {"name": "Ada"}}
PARTS: Final = ("transports", "codecs", "supervisor", "actors", "server", "broker")
FIRST: Final = 8
"""Where a coroutine stands when it is called: within its first instructions."""
LONGEST: Final = 30.0
"""Seconds for one walk."""


@contextmanager
def traced() -> Iterator[list[str]]:
    """The files whose functions are called meanwhile. A coroutine that waited before, and goes on, is not called."""
    files: dict[str, None] = {}
    prefix = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        is_resumed = frame.f_code.co_flags & (CO_COROUTINE | CO_GENERATOR) and frame.f_lasti > FIRST
        if event == "call" and not is_resumed and frame.f_code.co_filename.startswith(prefix):
            files[frame.f_code.co_filename.removeprefix(prefix)] = None

    found: list[str] = []
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found.extend(files)


@asynccontextmanager
async def connected(server: Hosted) -> AsyncIterator[trio.SocketStream]:
    """A socket to *server*, which is served for it."""
    async with trio.open_nursery() as nursery:
        ready: Ready = await nursery.start(partial(serve, server, http="127.0.0.1:0"))
        port = int(str(ready.listening[0].url).rpartition(":")[2].partition("/")[0])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            yield stream
        nursery.cancel_scope.cancel()


async def post(stream: trio.SocketStream, method: str, of: str = "", **params: Any) -> None:
    """Send one request of a modern client."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    body = json.dumps(message).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{stream.socket.getpeername()[1]}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {LATEST.value}",
        f"Mcp-Method: {method}",
        *([f"Mcp-Name: {of}"] if of else []),
        f"Content-Length: {len(body)}",
    ]
    await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)


async def received(stream: trio.SocketStream, until: bytes) -> bytes:
    """Read on until *until* has come. Raises `SystemExit` if it does not."""
    got = b""
    while until not in got:
        some = await stream.receive_some()
        got += some
        if not some or b'"error"' in got:
            raise SystemExit(got.decode())
    return got


async def call(stream: trio.SocketStream, tool: str) -> None:
    """Call a tool that asks nothing."""
    await post(stream, "tools/call", tool, name=tool, arguments={})
    await received(stream, b'"complete"')


async def asked_call(stream: trio.SocketStream, tool: str) -> None:
    """Call a tool that asks for a name, and answer it by a retry."""
    await post(stream, "tools/call", tool, name=tool, arguments={})
    got = await received(stream, b'"input_required"')
    result = json.loads(got[got.index(b'{"') :])["result"]
    answers = dict.fromkeys(result["inputRequests"], ANSWER)
    more = {"inputResponses": answers, "requestState": result["requestState"]}
    await post(stream, "tools/call", tool, name=tool, arguments={}, **more)
    await received(stream, b'"complete"')


async def subscription(stream: trio.SocketStream) -> None:
    """Follow a resource until the first change of it."""
    await post(stream, "subscriptions/listen", notifications={"resourceSubscriptions": ["walk://clock"]})
    await received(stream, b"notifications/resources/updated")


def broker() -> Broker:
    """A broker in front of one legacy server, which is a process."""
    command = Command(args=(sys.executable, "-m", "callboard", "run", str(APP)))
    settings = BackendSettings(prefix="", revision=R4)
    return Broker([BackendSpec(name="walked", target=command, settings=settings)])


def hosted() -> Server:
    """The same server, in this process."""
    return load_server(str(APP))


async def walks() -> dict[str, list[str]]:
    """The files of each walk. The first call of each kind is not counted: it fills caches."""
    found = {}
    async with connected(hosted()) as stream:
        found["hosted call"] = await walked(partial(call, stream, "now"))
        found["parked call"] = await walked(partial(asked_call, stream, "greet"))
    async with connected(broker()) as stream:
        found["brokered call"] = await walked(partial(call, stream, "now"))
        found["bridged call"] = await walked(partial(asked_call, stream, "greet"))
        found["subscription"] = await walked(partial(subscription, stream), warm=False)
    return found


async def walked(walk: Callable[[], Awaitable[None]], *, warm: bool = True) -> list[str]:
    """The files of one walk, after one that is not counted if *warm*."""
    if warm:
        await walk()
    with traced() as files:
        await walk()
    return files


def page(found: dict[str, list[str]]) -> str:
    """The walks, as `design/architecture.md` has them."""
    lines = ["| walk | files | " + " | ".join(f"`{part}`" for part in PARTS) + " |", "|---" * (len(PARTS) + 2) + "|"]
    for name, files in found.items():
        counts = [sum(file.startswith(f"{part}/") for file in files) for part in PARTS]
        lines.append(" | ".join([f"| {name}", f"**{len(files)}**", *map(str, counts)]) + " |")
    more = [file for file in found["subscription"] if file not in found["brokered call"] + found["bridged call"]]
    own = [file for file in more if not file.startswith("codecs/")]
    lines += ["", f"**A subscription beyond a call**, {len(own)} files, codecs aside: " + _listed(own) + "."]
    for name, files in found.items():
        lines += ["", f"**{name.capitalize()}**, {len(files)} files: " + _listed(files) + "."]
    return "\n".join(lines) + "\n"


def _listed(files: list[str]) -> str:
    return ", ".join(f"`{file}`" for file in files)


async def main() -> None:
    with trio.fail_after(LONGEST):
        sys.stdout.write(page(await walks()))


if __name__ == "__main__":
    trio.run(main)
