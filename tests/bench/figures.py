"""Runs that were never made, with figures to look at."""

from callboard.bench.result import BenchResult
from callboard.bench.tally import Tally


def result(
    *latencies: float, errors: int = 0, seconds: float = 10.0, target: str = "http://127.0.0.1/mcp"
) -> BenchResult:
    """One with these latencies, evenly over its seconds."""
    tally = Tally()
    for number, latency in enumerate(latencies):
        tally.succeeded(latency, number % seconds)
    for _ in range(errors):
        tally.broke("ServerRefused -32603", 1.5)
    return BenchResult(
        target=target,
        work="call echo",
        revision="2026-07-28",
        server="echo 1",
        seconds=seconds,
        tally=tally,
        settings={"sessions": 1, "load": "1 session, 1 at once (closed loop)"},
        generator_cpu=0.5,
    )
