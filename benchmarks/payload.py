"""What a large payload costs: an echo of 10 kB, 100 kB and 1 MB, hosted beside peers, and through our broker.

    python -m benchmarks.payload [--rounds N] [--seconds S] [--only hosted|brokered] [--most BYTES] [--json FILE]

JSON over HTTP kept alive, a request and an answer of that size, CPU time of the server for each call. Contenders take
turns; a ratio is taken within a round, and its median counts. The official library for Node.js that speaks the modern
revision and the one that speaks legacy ones stand side by side, each called in its own era. Brokered: the CPU is that
of `callboard serve`; the server behind it is on the generator's core.
"""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import attrs

from benchmarks.broker_contenders import OURS as BROKER
from benchmarks.broker_contenders import PROXIES, Backends, Transport, backend_over_http, proxied
from benchmarks.hosting import affordable
from benchmarks.hosting_calls import TEXT
from benchmarks.hosting_load import NO_WRK, WRK, Load, Sample
from benchmarks.hosting_rounds import Job, Plan, preparing
from benchmarks.hosting_servers import (
    OURS,
    REFERENCE,
    SDK,
    Running,
    callboard,
    fastmcp_json,
    mcp_json,
    npm_sdk_json,
    npm_server_json,
    running,
)
from benchmarks.measure import add_json, verdict, write_json

SIZES: Final = (10_000, 100_000, 1_000_000)
FEW: Final = 2
"""Connections: a call that is under way at the end has cost CPU and is not counted, and a megabyte takes long."""
CONTENDERS: Final = (callboard, mcp_json, fastmcp_json, npm_server_json, npm_sdk_json)
BEHIND: Final[dict[str, Transport]] = {f"{BROKER}, stdio behind": "stdio", f"{BROKER}, HTTP behind": "http"}

FACTORS: Final = {10_000: 6.0, 100_000: 5.0, 1_000_000: 5.0}
"""How many times the reference's calls for the same CPU time are wanted, by size."""
MOST: Final = {
    OURS: {100_000: 200.0, 1_000_000: 2000.0},
    next(iter(BEHIND)): {100_000: 350.0, 1_000_000: 2500.0},
}
"""Microseconds of CPU that a call may cost, by contender and size."""


@attrs.frozen
class PayloadCell:
    """One size: the rounds of every contender."""

    how: str
    size: int
    samples: dict[str, list[Sample]]

    def by_cpu(self) -> list[float]:
        """How many times the reference's calls for the same CPU time, round by round. None if it is not there."""
        if REFERENCE not in self.samples:
            return []
        pairs = zip(self.samples[OURS], self.samples[REFERENCE], strict=True)
        return sorted(theirs.cpu / mine.cpu for mine, theirs in pairs)

    def lines(self) -> list[str]:
        lines = [f"{f'{self.how}, echo of {self.size:,} B':44} {'calls/s':>9} {'p99 ms':>8} {'CPU us':>9} (the spread)"]
        for name, runs in self.samples.items():
            rate, p99 = median(one.rate for one in runs), median(one.p99 for one in runs) / 1e3
            cpu = sorted(one.cpu for one in runs)
            lines.append(f"  {name:42} {rate:9.0f} {p99:8.2f} {median(cpu):9.1f} ({cpu[0]:.1f} to {cpu[-1]:.1f})")
        return lines

    def verdicts(self) -> list[str]:
        lines, title = [], f"{self.how}, {self.size:,} B"
        if times := self.by_cpu():
            lines.append(verdict(f"{title}: by CPU, times {REFERENCE}", median(times), FACTORS[self.size]))
        for name, most in MOST.items():
            if name in self.samples and self.size in most:
                cpu = median(one.cpu for one in self.samples[name])
                lines.append(verdict(f"{title}: {name}, CPU us", cpu, most[self.size], at_most=True))
        return lines


def echo_of(size: int, tool: str = "echo", *, is_legacy: bool = False) -> Job:
    said = (TEXT * (size // len(TEXT) + 1))[:size]
    return Job(tool=tool, text=said, expected=said[-40:], is_legacy=is_legacy, connections=FEW)


def measure(plan: Plan, how: str, servers: dict[str, tuple[Running, str]], most: int) -> list[PayloadCell]:
    """All sizes, printed as they come. Of each server it is said what its echo is called."""
    cells = []
    for size in (one for one in SIZES if one <= most):
        with preparing(plan.load) as preparation:
            calls = {
                name: preparation.of(server, echo_of(size, tool, is_legacy=name == SDK))
                for name, (server, tool) in servers.items()
            }
            cells.append(PayloadCell(how, size, plan.in_turn(calls)))
        print("\n".join(cells[-1].lines()), flush=True)
    return cells


def hosted(plan: Plan, most: int) -> list[PayloadCell]:
    with ExitStack() as stack:
        servers = {one.name: (stack.enter_context(running(one)), "echo") for one in affordable(CONTENDERS)}
        return measure(plan, "hosted", servers, most)


def brokered(plan: Plan, most: int) -> list[PayloadCell]:
    ours = PROXIES[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port, servers = stack.enter_context(backend_over_http()).port, {}
        for name, transport in BEHIND.items():
            backends = Backends(transport, 1, port)
            server = stack.enter_context(proxied(ours, backends, folder))
            servers[name] = (server, ours.tool("echo", backends))
        return measure(plan, "brokered", servers, most)


HOW: Final = {"hosted": hosted, "brokered": brokered}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run; whole ones for wrk (default: 2)")
    parser.add_argument("--only", choices=HOW, action="append", help="this part only")
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="BYTES", help="the largest size that is tried")
    add_json(parser)
    options = parser.parse_args()
    if WRK is None:
        print(NO_WRK)
    plan = Plan(Load(is_wrk=WRK is not None), options.rounds, options.seconds)
    cells = [cell for how in options.only or HOW for cell in HOW[how](plan, options.most)]
    print("\n".join(line for cell in cells for line in cell.verdicts()))
    write_json(options.json, [attrs.asdict(cell) for cell in cells])


if __name__ == "__main__":
    main()
