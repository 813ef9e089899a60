"""Clients of a server that several worker processes run: one connection for each request, so any worker may hear it."""

import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import psutil
import trio

from tests.fork_server import behind, forked
from tests.process import CALLBOARD, PATIENCE, Process, started
from tests.shared import APPS
from tests.transports.server.http.stage import Answer, Client

APP: Final = APPS / "many.py"
LEGACY: Final = "2025-06-18"


@attrs.define(eq=False)
class Crowd:
    """The parent process, and the address that its workers share."""

    process: Process
    port: int
    admin: int
    ws: int
    host: str = "127.0.0.1"

    @property
    def pid(self) -> int:
        return behind(self.process.process.pid)

    def workers(self) -> list[int]:
        """The process ids of the parent's children, but for the keeper."""
        return [pid for pid in children(self.pid) if pid not in self.keepers()]

    def keepers(self) -> list[int]:
        """The process ids of all keepers there have been, the latest one last."""
        return [int(pid) for pid in re.findall(r"keeper_serves +pid=(\d+)", self.process.words)]

    async def serving(self) -> set[int]:
        """The workers that answer."""
        return {await self.call("where") for _ in range(12)}

    def edge_of(self, local: int) -> int:
        """The worker that has the other end of a client's connection, whose port is *local*."""
        for pid in self.workers():
            connections = psutil.Process(pid).net_connections("tcp")
            if (local,) in [tuple(one.raddr)[1:] for one in connections]:
                return pid
        raise LookupError("no worker has it")

    async def connect(self, port: int | None = None, *, receive_buffer: int | None = None) -> Client:
        bare = trio.socket.socket()
        if receive_buffer is not None:  # must be set before it connects
            bare.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        try:
            await bare.connect((self.host, port or self.port))
        except OSError:
            bare.close()
            raise
        return Client(trio.SocketStream(bare), bare, f"{self.host}:{port or self.port}".encode())

    async def connect_to(self, worker: int, *, receive_buffer: int | None = None) -> Client:
        """A connection that *worker* has accepted."""
        while True:
            client = await self.connect(receive_buffer=receive_buffer)
            await client.send(client.modern("tools/call", name="where", arguments={}))
            if said(await client.answer()) == worker:
                return client
            await client.aclose()

    async def apart(self) -> tuple[int, int, "CrowdSession"]:
        """A session, its home, and another worker."""
        session = await self.session()
        home = await session.call("where")
        return home, next(pid for pid in self.workers() if pid != home), session

    @asynccontextmanager
    async def client(self, port: int | None = None) -> AsyncIterator[Client]:
        """A connection of its own for the block."""
        client = await self.connect(port)
        try:
            yield client
        finally:
            await client.aclose()

    async def look(self, path: str = "/api/snapshot") -> Answer:
        """What the admin listener shows."""
        async with self.client(self.admin) as client:
            await client.send(b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (path.encode(), client.host))
            return await client.answer()

    async def ready(self) -> bool:
        return (await self.look("/readyz")).status == 200

    async def modern(self, method: str, *, token: str | None = None, **params: Any) -> Answer:
        async with self.client() as client:
            await client.send(client.modern(method, headers=bearer(token), **params))
            return await client.answer()

    async def call(self, tool: str, *, token: str | None = None, **arguments: Any) -> Any:
        return said(await self.modern("tools/call", token=token, name=tool, arguments=arguments))

    async def answer_ask(self, asked: Answer) -> tuple[int, str]:
        """Answer what the tool `ask` asked. Returns the worker that had waited for it, and what it was told."""
        (key,) = asked.result["inputRequests"]
        answer = await self.modern(
            "tools/call",
            name="ask",
            arguments={},
            inputResponses={key: {"action": "accept", "content": {"name": "Ada"}}},
            requestState=asked.result["requestState"],
        )
        pid, name = answer.result["content"][0]["text"].split()
        return int(pid), name

    async def session(self, token: str | None = None) -> "CrowdSession":
        about = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
        async with self.client() as client:
            await client.send(client.post(opening, **bearer(token)))
            answer = await client.answer()
        session = CrowdSession(self, answer.headers["mcp-session-id"], token)
        assert (await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        return session


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def children(parent: int) -> list[int]:
    """The process ids of a process's children."""
    try:
        threads = list(Path(f"/proc/{parent}/task").iterdir())  # a child is listed with the thread that has started it
        return sorted(behind(int(pid)) for thread in threads for pid in (thread / "children").read_text().split())
    except FileNotFoundError:
        return []


@attrs.define(eq=False)
class CrowdSession:
    """A legacy session. Each of its requests has a connection of its own."""

    crowd: Crowd
    id: str
    token: str | None = None
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def post(self, message: Any) -> Answer:
        async with self.crowd.client() as client:
            await client.send(self.written(client, message))
            return await client.answer()

    def written(self, client: Client, message: Any) -> bytes:
        """A message of the session's, as it is sent on a connection."""
        headers = {"mcp_session_id": self.id, "mcp_protocol_version": LEGACY, **bearer(self.token)}
        return client.post(message, **headers)

    async def call(self, tool: str, **arguments: Any) -> Any:
        return said(await self.answer_to(tool, **arguments))

    async def answer_to(self, tool: str, **arguments: Any) -> Answer:
        return await self.post(self.message(tool, **arguments))

    def message(self, tool: str, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}


def said(answer: Answer) -> Any:
    """What a tool returned."""
    assert answer.status == 200, answer
    assert "result" in answer.json, answer.json
    return json.loads(answer.result["content"][0]["text"])


@asynccontextmanager
async def crowd(
    *flags: str,
    workers: int = 2,
    app: Path = APP,
    command: str = "run",
    host: str = "127.0.0.1",
    before: Sequence[str] = (),
    program: Sequence[str] | None = None,
    patience: float = PATIENCE,
) -> AsyncIterator[Crowd]:
    """`callboard run`, or serve, with so many workers. It is ended with the block. *before*: a command that runs it."""
    # The log has the process ids of keepers; and the fork server is in no other network namespace.
    is_forked = command == "run" and not before
    whole = [*before, *(program or (forked() if is_forked else CALLBOARD)), command, str(app)]
    for flag in {"--http", "--ws", "--admin"}.difference(flags):
        whole += [flag, f"{host}:0"]
    async with started(*whole, "--workers", str(workers), "--json", *flags, patience=patience) as process:
        told = await process.hear()
        ports = {one["transport"]: int(one["url"].split(":")[2].split("/")[0]) for one in told["listening"]}
        yield Crowd(process, ports["http"], ports["admin"], ports["ws"], host)
        if process.process.returncode is None:
            process.signal(signal.SIGTERM)


async def wait_until(is_so: Callable[[], object], within: float = 60.0) -> None:
    """The end of another process comes without an event."""
    with trio.fail_after(within):
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(0.05)
