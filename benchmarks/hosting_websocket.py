"""The same echo on one server of callboard, over HTTP and over WebSocket: CPU for each call, in both eras.

Beside it, what people write by hand: the library `websockets` on asyncio, with `json` for the messages.
"""

import json
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import attrs
import trio

from benchmarks.hosting_calls import LEGACY, MODERN, WrongAnswer
from benchmarks.hosting_load import Sample, beside
from benchmarks.hosting_rounds import CallFor, Job, Plan, Preparation, preparing
from benchmarks.hosting_servers import OURS, Contender, Running, running
from benchmarks.hosting_shapes import TEXT
from benchmarks.measure import verdict
from benchmarks.peers import HERE, environment
from callboard import Revision, connect

NAME: Final = "WebSocket"
BY_HAND: Final = "websockets 17.4 + json"
ERAS: Final = {"modern": MODERN, "legacy": LEGACY}
IN_FLIGHT: Final = 32
WARM_UP: Final = "300ms"
PATIENCE: Final = 30


@attrs.frozen
class Way:
    """How the calls come, and how many microseconds of CPU each may cost."""

    name: str
    sockets: int
    """None of them: HTTP."""
    wanted: float


WAYS: Final = (
    Way("HTTP, 32 connections", 0, 40),
    Way("WebSocket, 32 in flight on one socket", 1, 45),
    Way("WebSocket, 32 sockets", IN_FLIGHT, 55),
)


def _callboard(port: int) -> list[str]:
    run = [sys.executable, "-m", "callboard", "run", str(HERE / "apps" / "hosting_app.py")]
    return [*run, "--http", str(port), "--ws", str(port), "--json"]


def _websockets() -> Path:
    return environment("websockets==17.4")


both_doors: Final = Contender(OURS, _callboard)
by_hand: Final = Contender(
    BY_HAND, lambda port: [str(_websockets()), str(HERE / "hosting_websockets_floor.py"), str(port)]
)


@attrs.frozen
class WayCell:
    """One way in one era: the rounds of every contender that can do it."""

    way: str
    era: str
    wanted: float
    samples: dict[str, list[Sample]]

    def lines(self) -> list[str]:
        title = f"{self.way}, {self.era}"
        lines = [f"{title:50} {'calls/s':>9} {'p99 ms':>8} {'CPU us':>8} (the spread)"]
        for name, samples in self.samples.items():
            rate, p99 = median(one.rate for one in samples), median(one.p99 for one in samples) / 1e3
            cpu = sorted(one.cpu for one in samples)
            lines.append(f"  {name:48} {rate:9.0f} {p99:8.2f} {median(cpu):8.1f} ({cpu[0]:.1f} to {cpu[-1]:.1f})")
        return lines

    def verdict(self) -> str:
        cpu = median(one.cpu for one in self.samples[OURS])
        return verdict(f"{self.way}, {self.era}: CPU us", cpu, self.wanted, at_most=True)


def measure_websocket(plan: Plan) -> list[WayCell]:
    """All ways in both eras, printed as they come. Those of an era take turns, so that they can be compared."""
    cells = []
    with ExitStack() as stack, preparing(plan.load) as preparation:
        ours, theirs = (stack.enter_context(running(one)) for one in (both_doors, by_hand))
        for era in ERAS:
            calls = {}
            for way in WAYS:
                for server in (ours, theirs) if way.sockets else (ours,):
                    calls[way, server.name] = calls_by(way, era, server, preparation)
            samples = plan.in_turn(calls)
            for way in WAYS:
                seen = {name: runs for (which, name), runs in samples.items() if which is way}
                cells.append(WayCell(way.name, era, way.wanted, seen))
                print("\n".join(cells[-1].lines()), flush=True)
    return cells


def calls_by(way: Way, era: str, server: Running, preparation: Preparation) -> CallFor:
    """Calls of the echo, one of which was seen to be answered. Raises `WrongAnswer`."""
    if not way.sockets:
        return preparation.of(server, Job(tool="echo", text=TEXT, expected=TEXT, is_legacy=era == "legacy"))
    trio.run(_check, server, ERAS[era])
    return partial(call_over_websocket, server, way.sockets, ERAS[era])


async def _check(server: Running, revision: str) -> None:
    """Raises `WrongAnswer`."""
    with trio.fail_after(PATIENCE):
        async with connect(_url(server), revision=Revision(revision)) as client:
            found = await client.call("echo", text=TEXT)
    if TEXT not in str(found):
        raise WrongAnswer(f"{server.name}: {found}")


def call_over_websocket(server: Running, sockets: int, revision: str, seconds: float) -> Sample:
    """Calls by the generator of `callboard bench`, which sends prepared frames. Raises `WrongAnswer`."""
    load = ["--sessions", str(sockets), "--concurrency", str(IN_FLIGHT), "--pid", str(server.process.pid)]
    times = ["--duration", f"{seconds}s", "--warmup", WARM_UP, "--revision", revision]
    what = ["--tool", "echo", "--args", json.dumps({"text": TEXT})]
    bench = [sys.executable, "-m", "callboard", "bench", _url(server), *what, *load, *times, "--json"]
    found = json.loads(beside(bench, seconds + PATIENCE))
    if found["errors"] or found["settings"]["generator"] != "prepared requests":
        raise WrongAnswer(f"{server.name}: {found['errors']}, by {found['settings']['generator']}")
    rate, latency = found["requests_per_second"], found["latency_ms"]
    return Sample(rate, latency["p50"] * 1e3, latency["p99"] * 1e3, found["server_cpu"] / rate * 1e6)


def _url(server: Running) -> str:
    return f"ws://127.0.0.1:{server.port}/mcp"
