"""Does `callboard bench` say the same as wrk? The same server, the same requests, the same connections, in turn.

    python -m benchmarks.agreement [--connections 8] [--seconds 5] [--rounds 3] [--server callboard] [--json FILE]

The server is on one core, whoever makes the load on another. Both are closed loops. wrk corrects its latencies for what
it calls coordinated omission: for an answer that took as long as several on average, it adds those that would have been
asked meanwhile. So the percentiles of bench are shown as they are, and with the same added; the latter are compared.
Two runs one after the other can agree only if nobody else uses the cores: a run in which others did is made again.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import psutil
import trio

from benchmarks.hosting_load import WRK, beside
from benchmarks.hosting_servers import Contender, Running, callboard, fastmcp_json, mcp_json, running
from benchmarks.measure import add_json, verdict, write_json
from benchmarks.peers import HERE
from callboard.bench.by_http import PreparedLane
from callboard.bench.hub import Hub
from callboard.bench.prepared import by_requests
from callboard.bench.tally import Tally
from callboard.bench.work import Act, Work
from callboard.config.entry import Remote

SERVERS: Final = {"callboard": callboard, "mcp": mcp_json, "fastmcp": fastmcp_json}
ACT: Final = Act(kind="call", name="echo", arguments={"text": "hi"})
MARK: Final = "call-00000000"
IDS: Final = "2%09d"
"""As many digits as bench's own, and none of them."""

TARGET: Final = 0.10
PATIENCE: Final = 30

QUIET: Final = 0.03
"""How much of a core others may use."""

TRIES: Final = 8
"""How often a run is made for the sake of quiet."""


@attrs.frozen
class Seen:
    """What one run showed: answers a second, and microseconds."""

    rate: float
    p50: float
    p99: float
    raw_p99: float = 0.0
    cpu: float = 0.0
    """Of one core: the generator's."""


async def call_of(url: str) -> bytes:
    """The request that bench sends, with a mark for its id."""
    hub = Hub()
    async with hub.running(), by_requests(Remote(url=url), {}, Work((ACT,)), lambda *_: None, hub)() as lane:
        assert isinstance(lane, PreparedLane)
        return MARK.encode().join(lane.templates[ACT].pieces)


def by_wrk(url: str, folder: Path, connections: int, seconds: int) -> Seen:
    flags = ["-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(HERE / "hosting_wrk.lua"), url, "--"]
    said = beside(["wrk", *flags, str(folder), "1", MARK, "", IDS], seconds + PATIENCE)
    found = json.loads(said.splitlines()[-1])
    assert not found["refused"], found
    assert not found["lost"], found
    return Seen(found["requests"] / found["seconds"], found["p50"], found["p99"])


def by_bench(url: str, connections: int, seconds: int) -> Seen:
    what = ["--tool", ACT.name, "--args", json.dumps(ACT.arguments)]
    how = ["--concurrency", str(connections), "--duration", f"{seconds}s", "--json"]
    told = json.loads(beside([sys.executable, "-m", "callboard", "bench", url, *what, *how], seconds + PATIENCE))
    assert not told["errors"], told["errors"]
    assert told["settings"]["generator"] == "prepared requests"
    raw = Counter({round(latency * 1e6): count for latency, count in Tally.of_json(told["histograms"]).recorded()})
    all_of_them = corrected(raw, seconds * 1e6 / max(1, told["requests"] // connections))
    return Seen(
        told["requests_per_second"], at(all_of_them, 50), at(all_of_them, 99), at(raw, 99), told["generator_cpu"]
    )


def corrected(raw: Counter[int], average: float) -> Counter[int]:
    """With all that would have been asked while an answer took longer than twice the *average*."""
    found = Counter(raw)
    step = round(average)
    for latency, count in raw.items():
        if latency >= 2 * step:
            for other in range(latency - step, step, -step):
                found[other] += count
    return found


def at(counted: Counter[int], percent: float) -> float:
    left = counted.total() * percent / 100
    for latency, count in sorted(counted.items()):
        left -= count
        if left <= 0:
            return float(latency)
    return 0.0


def alone(server: Running, run: Callable[[], Seen]) -> tuple[Seen, float]:
    """What *run* saw, and how much of a core others used meanwhile: at last, if they were never quiet."""
    for left in reversed(range(TRIES)):
        began, busy, own = time.perf_counter(), _busy(), _own(server)
        seen = run()
        others = (_busy() - busy - (_own(server) - own)) / (time.perf_counter() - began)
        if others <= QUIET or not left:
            break
    return seen, others


def _busy() -> float:
    """Seconds that all cores have worked."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _own(server: Running) -> float:
    """Seconds that the server and those who made load have worked, and this process."""
    children, here = (resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    return server.cpu() + children.ru_utime + children.ru_stime + here.ru_utime + here.ru_stime


def measure(server: Running, connections: int, seconds: int, rounds: int) -> list[tuple[Seen, Seen]]:
    url = f"http://127.0.0.1:{server.port}/mcp"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "1").write_bytes(trio.run(call_of, url))
        found = []
        for number in range(rounds):
            wrk, beside_wrk = alone(server, partial(by_wrk, url, Path(folder), connections, seconds))
            bench, beside_bench = alone(server, partial(by_bench, url, connections, seconds))
            found.append((wrk, bench))
            print(f"  round {number + 1}:")
            for name, seen, others in (("wrk", wrk, beside_wrk), ("bench", bench, beside_bench)):
                print(
                    f"    {name:6} {seen.rate:9,.0f}/s   p50 {seen.p50:7.0f} us   p99 {seen.p99:7.0f} us"
                    + (f"   (as it is: {seen.raw_p99:.0f} us; CPU {seen.cpu:.0%})" if name == "bench" else "")
                    + (f"   others used {others:.0%} of a core" if others > QUIET else "")
                )
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=SERVERS, default="callboard")
    add_json(parser)
    options = parser.parse_args()
    if WRK is None:
        sys.exit("wrk is not installed (apt install wrk): there is nothing to agree with")
    contender: Contender = SERVERS[options.server]
    print(f"{contender.name}, {options.connections} connections, {options.seconds} s each, in turn")
    with running(contender) as server:
        found = measure(server, options.connections, options.seconds, options.rounds)
    for what in ("rate", "p50", "p99"):
        ratios = sorted(getattr(bench, what) / getattr(wrk, what) for wrk, bench in found)
        ratio = statistics.median(ratios)
        spread = f"{ratio:.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"  {what}: bench / wrk = {spread}; " + verdict("off by", abs(ratio - 1), TARGET, at_most=True))
    rows = [{"wrk": attrs.asdict(wrk), "bench": attrs.asdict(bench)} for wrk, bench in found]
    write_json(options.json, {"server": contender.name, "connections": options.connections, "rounds": rows})


if __name__ == "__main__":
    main()
