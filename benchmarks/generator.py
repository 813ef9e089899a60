"""How much load `callboard bench` makes from one core: calls a second to a trivial echo, and what each costs.

    python -m benchmarks.generator [--seconds 5] [--rounds 3] [--json FILE]

The generator is on one core, the echo (`generator_peer.py`) on another. What counts is the CPU that a call costs the
generator: where the echo is the slower one, the generator could have made more.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any, Final

import attrs

from benchmarks.hosting_load import beside
from benchmarks.hosting_servers import Contender, running
from benchmarks.measure import add_json, verdict, write_json
from benchmarks.peers import HERE

TARGET: Final = 20_000
"""Calls a second from one core."""

PATIENCE: Final = 30

ECHO: Final = Contender("trivial echo", lambda port: [sys.executable, str(HERE / "generator_peer.py"), str(port)])
CALL: Final = ("--tool", "echo", "--args", '{"text": "hi"}')


@attrs.frozen
class Way:
    """How the calls go."""

    name: str
    scheme: str
    flags: Sequence[str]


WAYS: Final = (
    Way("HTTP, 32 connections", "http", ("--concurrency", "32")),
    Way("WebSocket, 32 in flight on one", "ws", ("--concurrency", "32")),
    Way("HTTP, by callboard's client", "http", ("--concurrency", "32", "--timeout", "60")),
    Way("WebSocket, by callboard's client", "ws", ("--concurrency", "32", "--timeout", "60")),
)


def told(way: Way, port: int, seconds: float) -> Any:
    url = f"{way.scheme}://127.0.0.1:{port}/mcp"
    command = [sys.executable, "-m", "callboard", "bench", url, *CALL, *way.flags, "--duration", f"{seconds}s"]
    found = json.loads(beside([*command, "--json"], seconds + PATIENCE))
    assert not found["errors"], found["errors"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    add_json(parser)
    options = parser.parse_args()
    seen: dict[Way, list[Any]] = {way: [] for way in WAYS}
    with running(ECHO) as echo:
        for _ in range(options.rounds):
            for way, runs in seen.items():
                runs.append(told(way, echo.port, options.seconds))
    print(f"{'':34} {'calls/s':>9}  {'from':>7} {'to':>7}   {'CPU each':>8}   {'a core could':>12}   p99")
    best = 0.0
    for way, runs in seen.items():
        rates = [run["requests_per_second"] for run in runs]
        cost = statistics.median(run["generator_cpu"] / run["requests_per_second"] * 1e6 for run in runs)
        p99 = statistics.median(run["latency_ms"]["p99"] for run in runs)
        rate = statistics.median(rates)
        best = max(best, rate)
        print(
            f"{way.name:34} {rate:9,.0f}  {min(rates):7,.0f} {max(rates):7,.0f}   {cost:5.1f} us   "
            f"{1e6 / cost:10,.0f}/s   {p99:.2f} ms"
        )
    print(verdict("calls/s from one core, at best", best, TARGET))
    write_json(options.json, {way.name: [_figures(run) for run in runs] for way, runs in seen.items()})


def _figures(run: Any) -> dict[str, float]:
    """Of one run, what is compared. Milliseconds, and microseconds of CPU for a call."""
    rate = run["requests_per_second"]
    return {"rate": rate, "p99": run["latency_ms"]["p99"], "cpu": run["generator_cpu"] / rate * 1e6}


if __name__ == "__main__":
    main()
