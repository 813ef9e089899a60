"""The same odd servers as processes, behind a broker that is one: what its neighbour notices, in real time.

With `CALLBOARD_FUZZ` at 100,000 or more it takes half a minute and holds the neighbour's latency to its promise; that
needs a machine that does nothing else.
"""

import json
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from callboard.codecs.revisions import LATEST, Revision
from tests.figures import figure
from tests.fuzz.strict import Complaints, Customer
from tests.fuzz.test_backends import COUNT, SEED
from tests.fuzz.visits import CAPABILITIES, visit
from tests.process import CALLBOARD, Process, started
from tests.shared import ROOT
from tests.transports.server.websocket.stage import OPENING, Gone, Socket
from tests.transports.server.websocket.stage import request as opening

LONG: Final = COUNT >= 100_000
SECONDS: Final = 10.0 if LONG else 1.0
MOVES: Final = 1.2
"""How much longer 99 of 100 answers of the neighbour may take, beside an odd server instead of a good one."""
GOOD: Final = Path(__file__).resolve().parents[1] / "soak" / "backend.py"
PACE: Final = 0.005
"""Seconds between two calls of the neighbour."""


@attrs.define(eq=False)
class TcpWire:
    """A socket as the tests' WebSocket knows a wire."""

    stream: trio.SocketStream
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def send(self, data: bytes) -> None:
        async with self._lock:
            await self.stream.send_all(data)

    async def receive(self) -> bytes:
        return bytes(await self.stream.receive_some(65_536))

    def close(self) -> None:
        self.stream.socket.close()


@asynccontextmanager
async def broker(folder: Path, oddness: float) -> AsyncIterator[tuple[Process, str]]:
    """A broker with a good backend and one of this oddness. Yields it, and where its WebSockets are."""
    # A new interpreter takes a core for a third of a second: more of them would measure the machine.
    restarts = {"times": 100_000, "per": 1, "first": 0.5, "most": 2}
    odd = {"command": sys.executable, "args": ["-m", "tests.fuzz.odd", str(SEED), str(oddness)], "cwd": str(ROOT)}
    good = {"command": sys.executable, "args": ["-I", "-S", str(GOOD), "good", str(folder / "journal")]}
    servers = {"good": good, "odd": {**odd, "callboard": {"timeout": 1, "restart": restarts}}}
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    flags = ("--ws", "127.0.0.1:0", "--json", "--drain-time", "1", "--grace", "1")
    async with started(*CALLBOARD, "serve", str(config), *flags) as process:
        told: dict[str, Any] = json.loads(await process.line() or b"{}")
        yield process, next(one["url"] for one in told["listening"] if one["transport"] == "ws")
        process.signal()
        assert await process.wait() == 0, process.words[-3000:]


@asynccontextmanager
async def entered(
    url: str, complaints: Complaints, draw: random.Random, revision: Revision, **said: Any
) -> AsyncIterator[Customer]:
    at = urlsplit(url)
    async with await trio.open_tcp_stream(at.hostname or "", at.port or 0) as stream:
        socket = Socket(TcpWire(stream))  # type: ignore[arg-type]  # it needs no more of a wire
        await socket.open(opening({**OPENING, "Host": at.netloc, "Sec-WebSocket-Protocol": "mcp"}))
        async with trio.open_nursery() as nursery:
            customer = Customer(socket, revision, complaints, draw, **said)
            nursery.start_soon(customer.read)
            yield customer
            nursery.cancel_scope.cancel()


async def need(url: str, complaints: Complaints, seconds: float) -> list[float]:
    """How long each call of the neighbour took."""
    took: list[float] = []
    async with entered(url, complaints, random.Random(1), LATEST) as customer:
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            answer = await customer.ask("tools/call", name="good__echo", arguments={"key": str(len(took))})
            took.append(time.perf_counter() - began)
            if "result" not in answer:
                complaints.add("the neighbour was not served", answer)
            await trio.sleep(PACE)
    return took


async def come(url: str, complaints: Complaints, draw: random.Random) -> None:
    """One client after the other, until it is cancelled."""
    while True:
        said: dict[str, Any] = {"capabilities": draw.choice(CAPABILITIES)}
        with suppress(OSError, Gone, trio.BrokenResourceError):
            async with entered(url, complaints, draw, draw.choice(tuple(Revision)), **said) as customer:
                await visit(customer, draw, avoid="good__")  # among its tools are some that end it
        await trio.sleep(0.05)


async def run(folder: Path, complaints: Complaints, oddness: float) -> list[float]:
    complaints.round = f"CALLBOARD_FUZZ_SEED={SEED}, a server of oddness {oddness}"
    async with broker(folder, oddness) as (process, url), trio.open_nursery() as nursery:
        nursery.start_soon(come, url, complaints, random.Random(f"{SEED} pipes"))
        took = await need(url, complaints, SECONDS)
        nursery.cancel_scope.cancel()
    for word in ("actor_crashed", "supervisor_escalated", "request_failed", "Traceback"):
        if word in process.words:
            complaints.add(word, process.words[process.words.index(word) :][:2000])
    return sorted(took)


async def test_a_neighbour_does_not_notice_an_odd_server(tmp_path: Path) -> None:
    complaints = Complaints()
    beside_odd = await run(tmp_path, complaints, 0.3)
    assert not complaints.first, f"\n{complaints.report()}"
    if LONG:
        beside_good = await run(tmp_path, complaints, 0.0)
        p99 = [took[len(took) * 99 // 100] for took in (beside_good, beside_odd)]
        found = (
            f"{len(beside_odd)} calls, p99 (ms) {p99[0] * 1e3:.2f} beside a good, {p99[1] * 1e3:.2f} beside an odd one"
        )
        figure("fuzz of backends", found, f"at most {MOVES} times as much")
        assert p99[1] <= MOVES * p99[0], found
