"""How many calls a client makes: callboard's beside the official one, to the same servers, in one run.

    python -m benchmarks.client [--short] [--rounds N] [--calls N] [--only WORD] [--json FILE]

Over HTTP kept alive and over stdio; one call at a time, and 32 at once. The client has one core, the server another:
over stdio, too, where the server is the client's child and would inherit its core, so that each waits for the other to
let go of it. It moves to its own before it becomes the server, for every client alike.

Clients take turns; a ratio is taken within a round, and its median counts. *CPU* is the client's own, for one call:
what one core could do with nothing to wait for.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.hosting_load import beside
from benchmarks.hosting_servers import callboard, cores, mcp_json, moved, running
from benchmarks.measure import add_json, verdict, write_json
from benchmarks.peers import HERE, environment

OURS: Final = "callboard"
OFFICIAL: Final = "mcp 2.3.0"
TARGET: Final = 5.0

MORE: Final = 4
"""How many times as many calls are made where many are at once: they take less time, and a tenth of a second is none to
measure in."""

PATIENCE: Final = 300
"""Seconds that one run of a client may take."""


@attrs.frozen
class Sample:
    """What one run of a client took, for one call."""

    seconds: float
    p50: float
    p99: float
    cpu: float


def clients() -> dict[str, list[str]]:
    """How each client is started."""
    official = environment("mcp==2.3.0")
    return {
        OURS: [sys.executable, "-m", "benchmarks.client_ours"],
        OFFICIAL: [str(official), str(HERE / "client_official.py")],
    }


def sample(command: Sequence[str], calls: int, at_once: int, target: Sequence[str]) -> Sample:
    """Run a client once."""
    said = beside([*command, str(calls), str(at_once), *target], PATIENCE)
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    taken = sorted(told["taken"])
    return Sample(told["wall"], statistics.median(taken), taken[int(len(taken) * 0.99)], told["cpu"])


def table(name: str, target: Sequence[str], at_once: int, *, rounds: int, calls: int) -> dict[str, list[Sample]]:
    """Measure all clients with one server."""
    taken: dict[str, list[Sample]] = {client: [] for client in clients()}
    for _ in range(rounds):
        for client, command in clients().items():
            taken[client].append(sample(command, calls, at_once, target))
    print(f"{name:44} calls/s    p50 ms    p99 ms    CPU us")
    for client, samples in taken.items():
        mid = statistics.median
        wall, p50, p99, cpu = (mid(values) for values in zip(*map(attrs.astuple, samples), strict=True))
        print(f"  {client:40} {1 / wall:9.0f} {p50 * 1e3:9.3f} {p99 * 1e3:9.3f} {cpu * 1e6:9.0f}")
    return taken


def ratios(taken: dict[str, list[Sample]]) -> tuple[float, float]:
    """How many times the official client's calls/s, and how many times its calls for the same CPU."""
    pairs = list(zip(taken[OURS], taken[OFFICIAL], strict=True))
    calls_ratio = statistics.median(theirs.seconds / ours.seconds for ours, theirs in pairs)
    return calls_ratio, statistics.median(theirs.cpu / ours.cpu for ours, theirs in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer calls")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=None, help="of one run, one at a time (default: 3000, short: 800)")
    parser.add_argument("--only", default="", help="what the names of the tables begin with: HTTP, stdio, ...")
    add_json(parser)
    options = parser.parse_args()
    calls = options.calls or (800 if options.short else 3000)
    core, _ = cores()
    program = str(Path(sys.executable).with_name("callboard"))
    callboard_stdio = moved(core, [program, "run", str(HERE / "apps" / "hosting_app.py")])
    mcp_stdio = moved(core, [str(environment("mcp==2.3.0")), str(HERE / "client_server.py")])
    found: dict[str, dict[str, list[Sample]]] = {}
    with ExitStack() as stack:
        targets: dict[str, list[str]] = {}
        for contender in (callboard, mcp_json):
            server = stack.enter_context(running(contender))
            targets[f"HTTP, to {contender.name}"] = [f"http://127.0.0.1:{server.port}/mcp"]
        targets |= {"stdio, to callboard": callboard_stdio, "stdio, to mcp 2.3.0": mcp_stdio}
        for name, target in targets.items():
            if not name.startswith(options.only):
                continue
            for at_once in (1, 32):
                title = f"{name}, {at_once} at once"
                found[title] = table(
                    title, target, at_once, rounds=options.rounds, calls=calls if at_once == 1 else MORE * calls
                )
    for name, taken in found.items():
        by_calls, by_cpu = ratios(taken)
        print(verdict(f"{name}: {OURS} / {OFFICIAL}, calls/s (by CPU: {by_cpu:.1f})", by_calls, TARGET))
    rows = [
        {"title": title, "samples": {name: [attrs.asdict(one) for one in samples] for name, samples in taken.items()}}
        for title, taken in found.items()
    ]
    write_json(options.json, rows)


if __name__ == "__main__":
    main()
