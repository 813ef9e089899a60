"""What it costs to be observed: the same server with an admin address, so that all is counted, and without one.

    python -m benchmarks.observing [--only hosted|brokered] [--rounds N] [--seconds S] [--json FILE]

An echo over HTTP kept alive; brokered, the server of the tool is behind stdio. What is compared is the CPU of one call,
as calls per second would be if the process had a core of its own. Every round has new processes: where the system puts
their memory is worth a percent or two. Within a round the two take turns, twenty times a second, so that both have the
same share of what else the machine does; the figure of a round is the median of those turns.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import attrs

from benchmarks.measure import verdict
from benchmarks.workers import APP, CONNECTIONS, Crowd, Wire

TARGETS: Final = {
    "hosted: calls for the same CPU, of those without metrics": 0.99,
    "brokered, stdio behind: calls for the same CPU, of those without metrics": 0.99,
}
"""At least, both of them."""

KINDS: Final = dict(zip(("hosted", "brokered"), TARGETS, strict=True))
WARM_UP: Final = 0.5
TURN: Final = 0.05
"""Seconds."""


@attrs.define(eq=False)
class Server(Crowd):
    """One process, and its connections."""

    def cpu(self) -> float:
        """Seconds of all its threads, far more exactly than in ticks of the clock."""
        return sum(_on_cpu(thread) for thread in Path(f"/proc/{self.parent}/task").iterdir())

    def cpu_of_call(self, seconds: float) -> float:
        """Microseconds."""
        wires = self.wires[self.parent]
        return self.measure(wires, [[None]] * len(wires), seconds).cpu


def _on_cpu(thread: Path) -> float:
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:  # it has ended
        return 0.0


def _command(kind: str, folder: Path) -> list[str]:
    if kind == "hosted":
        return ["run", str(APP)]
    entry = {"command": sys.executable, "args": ["-m", "callboard", "run", str(APP)], "callboard": {"prefix": ""}}
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"back": entry}}))
    return ["serve", str(config)]


@contextmanager
def server(kind: str, folder: Path, *flags: str, lines: bytes = b"") -> Iterator[Server]:
    """One that runs until the block ends; requests to it have these *lines* in their heads, too."""
    command = [
        sys.executable,
        "-m",
        "callboard",
        *_command(kind, folder),
        "--http",
        "0",
        "--json",
        "--keep-alive",
        "600",
        *flags,
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout is not None
        wires: list[Wire] = []
        try:
            listening = json.loads(process.stdout.readline())["listening"]
            (url,) = [one["url"] for one in listening if one["transport"] == "http"]
            port = int(url.split(":")[2].split("/")[0])
            wires += [Wire.open(port, lines) for _ in range(CONNECTIONS)]
            yield Server(process.pid, port, {process.pid: wires})
        finally:
            for wire in wires:
                wire.bare.close()
            process.send_signal(signal.SIGTERM)


def one_round(kind: str, seconds: float) -> float:
    """How many calls are answered for the same CPU, of those without metrics."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        both: dict[str, Server] = {}
        for name, flags in (("bare", ()), ("observed", ("--admin", "0"))):
            both[name] = stack.enter_context(server(kind, folder, *flags))
            both[name].cpu_of_call(WARM_UP)
        shares = []
        for turn in range(max(2, round(seconds / TURN))):
            taken = {name: both[name].cpu_of_call(TURN) for name in sorted(both, reverse=bool(turn % 2))}
            shares.append(taken["bare"] / taken["observed"])
    return median(shares)


def measure(kinds: list[str], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Every figure, one for each round."""
    found: dict[str, list[float]] = {KINDS[kind]: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            found[KINDS[kind]].append(one_round(kind, seconds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(KINDS), help="one of the two")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round, for each of the two")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file, too")
    given = parser.parse_args()
    found = measure([given.only] if given.only else list(KINDS), given.rounds, given.seconds)
    for what, figures in found.items():
        print(verdict(what, median(figures), TARGETS[what]), f"({min(figures):.3f} to {max(figures):.3f})")
    if given.json is not None:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
