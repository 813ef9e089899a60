"""A cluster on one machine: a Redis of its own, a CA, and nodes on loopback addresses."""

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio

from tests import process
from tests.certificate import Authority
from tests.figures import LONG
from tests.served import free_port
from tests.transports.server.http.stage import Gone, Stream
from tests.workers.crowd import APP, Crowd, CrowdSession, crowd

KEY: Final = bytes(range(100, 132))
PASSWORD: Final = "a-password-to-look-for"  # noqa: S105  # of the store of every fleet
PATIENCE: Final = 600.0 if LONG else process.PATIENCE
"""Seconds that a node is there, at most."""
PATHS: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def program(name: str) -> str:
    """Where a program is; the test fails if it is not there, and was not installed by tests/install-servers."""
    found = shutil.which(name, path=PATHS)
    if found is None:
        pytest.fail(f"{name} is not installed: run sh tests/install-servers", pytrace=False)
    return found


@attrs.define(eq=False)
class Redis:
    """A redis-server at a port that stays the same when it is started again. It keeps nothing on disk."""

    folder: Path
    port: int = attrs.field(factory=free_port)
    bind: str = "127.0.0.1"
    more: tuple[str, ...] = ()
    """Further arguments."""
    password: str = ""
    process: "subprocess.Popen[bytes] | None" = attrs.field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [program("redis-server"), "--port", str(self.port), "--bind", self.bind, "--save", ""]
        command += ["--protected-mode", "no"]
        command += ["--appendonly", "no", "--dir", str(self.folder), "--daemonize", "no", *self.more]
        command += ["--requirepass", self.password] if self.password else []
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def up(self) -> None:
        """Start it, and wait until it answers."""
        self.start()
        with trio.fail_after(10):
            while True:
                with suppress(OSError):
                    await self.ask("PING")
                    return
                await trio.sleep(0.02)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()

    async def ask(self, *words: str) -> Any:
        """One command, on a connection of its own: not by the client that is tested."""
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            replies = await self._authenticated(stream)
            await stream.send_all(_command(*words))
            return await replies.next()

    async def _authenticated(self, stream: trio.SocketStream) -> "_Replies":
        replies = _Replies(stream)
        if self.password:
            await stream.send_all(_command("AUTH", self.password))
            assert await replies.next() == b"OK"
        return replies

    async def dump(self) -> bytes:
        """All keys and values, and the published ones are not among them."""
        found = b""
        for key in await self.ask("KEYS", "*"):
            kind = await self.ask("TYPE", key.decode())
            value = await self.ask("GET" if kind == b"string" else "SMEMBERS", key.decode())
            found += key + b" " + (value if kind == b"string" else b" ".join(value)) + b"\n"
        return found

    @asynccontextmanager
    async def overheard(self) -> AsyncIterator[bytearray]:
        """All that is published while the block lasts."""
        heard = bytearray()
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream, trio.open_nursery() as nursery:
            replies = await self._authenticated(stream)
            await stream.send_all(_command("PSUBSCRIBE", "*"))
            await replies.next()

            async def listen() -> None:
                while True:
                    _, _, channel, message = await replies.next()
                    heard.extend(channel + b" " + message + b"\n")

            nursery.start_soon(listen)
            yield heard
            nursery.cancel_scope.cancel()


def _command(*words: str) -> bytes:
    lines = [f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)]
    return "".join(lines).encode()


@attrs.define(eq=False)
class _Replies:
    stream: trio.SocketStream
    data: bytes = b""

    async def line(self) -> bytes:
        while b"\r\n" not in self.data:
            more = await self.stream.receive_some()
            if not more:
                raise ConnectionResetError
            self.data += more
        line, self.data = self.data.split(b"\r\n", 1)
        return line

    async def next(self) -> Any:
        line = await self.line()
        match line[:1]:
            case b"*":
                return [await self.next() for _ in range(int(line[1:]))]
            case b"$":
                size = int(line[1:])
                if size < 0:
                    return None
                while len(self.data) < size + 2:
                    self.data += await self.stream.receive_some()
                found, self.data = self.data[:size], self.data[size + 2 :]
                return found
            case b":":
                return int(line[1:])
            case _:
                return line[1:]


@contextmanager
def redis_at(folder: Path, *more: str, bind: str = "127.0.0.1", password: str = "") -> Iterator[Redis]:
    server = Redis(folder, bind=bind, more=more, password=password)
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.signal(signal.SIGCONT)
        server.kill()


@attrs.define(eq=False)
class Fleet:
    """What nodes of one cluster share."""

    folder: Path
    redis: Redis
    authority: Authority
    _numbers: "count[int]" = attrs.field(factory=lambda: count(2), init=False)

    def secret(self, name: str, text: str) -> str:
        """The path of a file that only its owner can read."""
        file = self.folder / name
        if not file.exists():
            file.write_text(f"{text}\n")
            file.chmod(0o600)
        return str(file)

    def flags(self, authority: Authority | None = None, address: str = "", url: str = "") -> list[str]:
        """Those of one more node, at an address of its own."""
        address = address or f"127.0.0.{next(self._numbers)}"
        certificate, key = (authority or self.authority).sign(self.folder, address)
        files = {"cert": certificate, "key": key, "ca": self.authority.file}
        named = [part for name, file in files.items() for part in (f"--cluster-{name}", str(file))]
        secrets = ["--state-key-file", self.secret("keys", KEY.hex())]
        secrets += ["--cluster-password-file", self.secret("password", PASSWORD)]
        return ["--cluster", url or self.redis.url, "--cluster-address", address, *secrets, *named]

    def node(
        self,
        *flags: str,
        workers: int = 1,
        authority: Authority | None = None,
        app: Path = APP,
        command: str = "run",
    ) -> AbstractAsyncContextManager[Crowd]:
        """One more, for a block."""
        drained = () if "--drain-time" in flags else ("--drain-time", "4")
        all_flags = (*self.flags(authority), *drained, *flags)
        return crowd(*all_flags, workers=workers, app=app, command=command, patience=PATIENCE)

    async def written(self, sessions: int) -> None:
        """Wait until so many are written down."""
        with trio.fail_after(5):
            while len(await self.redis.ask("KEYS", "callboard:{callboard}:session:*")) < sessions:  # noqa: ASYNC110
                await trio.sleep(0.02)


@asynccontextmanager
async def fleet_of(folder: Path, bind: str = "127.0.0.1") -> AsyncIterator[Fleet]:
    """A Redis that runs, and a CA."""
    with redis_at(folder, bind=bind, password=PASSWORD) as redis:
        await redis.up()
        yield Fleet(folder, redis, Authority.create(folder))


@asynccontextmanager
async def two_nodes(folder: Path, *flags: str, app: Path = APP) -> AsyncIterator[tuple[Fleet, Crowd, Crowd]]:
    """Two nodes of a worker each, that know each other."""
    async with fleet_of(folder) as all_, together(*(all_.node(*flags, app=app) for _ in range(2))) as (one, other):
        await known(one, 1)
        await known(other, 1)
        yield all_, one, other


@asynccontextmanager
async def together(*blocks: AbstractAsyncContextManager[Crowd]) -> AsyncIterator[list[Crowd]]:
    """Begin and end several at once: each takes seconds, mostly to import Python modules."""
    opened: dict[int, Crowd] = {}
    over, begun = trio.Event(), trio.Event()

    async def run(number: int, block: AbstractAsyncContextManager[Crowd]) -> None:
        async with block as node:
            opened[number] = node
            if len(opened) == len(blocks):
                begun.set()
            await over.wait()

    async with trio.open_nursery() as nursery:
        for number, block in enumerate(blocks):
            nursery.start_soon(run, number, block)
        await begun.wait()
        yield [opened[number] for number in range(len(blocks))]
        over.set()


def at(node: Crowd, session: CrowdSession) -> CrowdSession:
    """The same session, by way of another node."""
    return CrowdSession(node, session.id)


async def listen(node: Crowd) -> Stream:
    """A subscription that has begun."""
    client = await node.connect()
    await client.send(client.modern("subscriptions/listen", notifications={"toolsListChanged": True}))
    stream = await client.stream_of()
    assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
    return stream


async def known(node: Crowd, others: int) -> None:
    """Wait until a node knows so many others."""
    await until(lambda: node.process.stderr.count(b"node_joined") - node.process.stderr.count(b"node_lost") >= others)


async def until(is_so: Callable[[], object], seconds: float = 25) -> None:
    """Another process does it, and has no event for this one."""
    with trio.fail_after(seconds):
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(0.02)


async def kill_node(node: Crowd) -> None:
    """End all processes of a node at once, as if its machine had ended. Returns when they have."""
    processes = (node.pid, *node.workers())
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not any(map(_lives, processes)))


async def restored_after_kill(node: Crowd, other: Crowd, sessions: list[CrowdSession]) -> list[float]:
    """Kill a *node*. Returns the seconds until each of its *sessions* is answered by way of another node, all asked for
    at once, again and again. None may be refused for good: 404."""
    taken: list[float] = []
    began = trio.current_time()

    async def ask(session: CrowdSession) -> None:
        while True:
            answer = await at(other, session).answer_to("where")
            if answer.status == 200 and "result" in answer.json:
                taken.append(trio.current_time() - began)
                return
            assert answer.status in {200, 503}, answer
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        await kill_node(node)
        for session in sessions:
            nursery.start_soon(ask, session)
    return taken


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@attrs.define
class Load:
    """Clients that call at all nodes, one after the other, until it is over."""

    calls: int = 0
    failed: list[object] = attrs.field(factory=list)
    times: list[float] = attrs.field(factory=list)

    def percentile(self, part: float) -> float:
        return sorted(self.times)[int(len(self.times) * part)]

    async def call_on(self, nodes: list[Crowd], session: CrowdSession | None) -> None:
        while True:
            for node in nodes:
                began = trio.current_time()
                try:
                    if session is None:
                        await node.call("where")
                    else:
                        await at(node, session).call("where")
                except (AssertionError, Gone, OSError, trio.BrokenResourceError) as error:
                    self.failed.append(error)
                self.calls += 1
                self.times.append(trio.current_time() - began)
                await trio.sleep(0.005)


@asynccontextmanager
async def under_load(*nodes: Crowd) -> AsyncIterator[Load]:
    """Sessions of all nodes, and calls without one, while the block lasts."""
    load = Load()
    sessions = [await node.session() for node in nodes for _ in range(2)]
    async with trio.open_nursery() as nursery:
        for session in (*sessions, None):
            nursery.start_soon(load.call_on, list(nodes), session)
        yield load
        nursery.cancel_scope.cancel()
