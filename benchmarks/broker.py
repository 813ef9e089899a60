"""How much a broker costs: callboard beside the fastmcp proxy and mcp-proxy, in front of the same servers, in one run.

    python -m benchmarks.broker [--short] [--rounds N] [--seconds S] [--backends 1,50] [--json FILE]

Every proxy is asked, over HTTP kept alive, to call a tool that does nothing at the last of its backends: requests/s at
32 connections; p50 and p99 at 1 connection, less what the same server takes without anybody in between. Backends are
callboard servers over stdio or HTTP. A proxy has one core to itself; backends and the generator share the other, and
contenders take turns. A ratio is taken within a round, and its median counts.
"""

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import attrs

from benchmarks.broker_contenders import (
    DIRECT,
    FASTMCP,
    MCP_PROXY,
    OURS,
    PROXIES,
    Backends,
    Proxy,
    Transport,
    backend_over_http,
    proxied,
)
from benchmarks.hosting_calls import Caller, tool_call
from benchmarks.hosting_load import NO_WRK, WRK, Load, Sample, write_calls
from benchmarks.hosting_servers import Running
from benchmarks.measure import add_json, verdict, write_json

FACTOR, ADDED = 10.0, 0.35
"""How many times the others' requests/s are wanted, and how many milliseconds may be added."""
ERAS: Final = ("modern", "legacy")
RATES: Final[dict[Transport, float]] = {"stdio": 14_000, "http": 9_000}
"""Calls/s that are wanted at 32 connections, by what is behind: one backend, modern."""

WARM_UP: Final[dict[Transport, float]] = {"stdio": 1.0, "http": 5.0}
"""Seconds before anything is measured at 32 connections: some take more than one for the first of 32 answers."""

FLAT: Final = 0.9
"""What must be left of the requests/s with the most backends."""


@attrs.frozen
class Cell:
    """One table: what stands behind the proxies, in which era they are spoken to, and over how many connections."""

    backends: Backends
    era: str
    connections: int
    samples: dict[str, list[Sample]]

    @property
    def title(self) -> str:
        many = f"{self.backends.count} {self.backends.transport} backend{'s' if self.backends.count > 1 else ''}"
        return f"{many}, {self.era}, {self.connections} connection{'s' if self.connections > 1 else ''}"

    def ratio(self, other: str) -> float:
        """How many times as many requests/s as *other*, round by round."""
        pairs = zip(self.samples[OURS], self.samples[other], strict=True)
        return statistics.median(ours.rate / theirs.rate for ours, theirs in pairs)

    def added(self) -> float:
        """Milliseconds at the median that come on top of the server's own."""
        pairs = zip(self.samples[OURS], self.samples[DIRECT], strict=True)
        return statistics.median(ours.p50 - direct.p50 for ours, direct in pairs) / 1000

    def rate(self) -> float:
        return statistics.median(sample.rate for sample in self.samples[OURS])

    def lines(self) -> list[str]:
        lines = [f"{self.title:44}  calls/s    p50 ms    p99 ms    CPU us    ratio"]
        for name, samples in self.samples.items():
            rate, p50, p99, cpu = (statistics.median(row) for row in zip(*map(attrs.astuple, samples), strict=True))
            ratio = self.ratio(name)
            lines.append(f"  {name:40} {rate:9.0f} {p50 / 1e3:9.3f} {p99 / 1e3:9.3f} {cpu:9.0f} {ratio:8.2f}")
        return lines


@attrs.frozen
class Plan:
    """How it is measured."""

    load: Load
    rounds: int
    seconds: float
    folder: Path


def measure_group(plan: Plan, backends: Backends, era: str, direct: Running) -> list[Cell]:
    """All proxies that can stand in front of *backends*, in one era."""
    fit = [proxy for proxy in PROXIES if era in proxy.eras and backends.transport in proxy.transports]
    with ExitStack() as stack:
        servers = {proxy: stack.enter_context(proxied(proxy, backends, plan.folder)) for proxy in fit}
        cells = []
        for connections in (32, 1):
            folders = {
                proxy: prepare(plan, proxy, backends, server, era, connections) for proxy, server in servers.items()
            }
            plain = Proxy(DIRECT, lambda *_: [], lambda tool, _: tool)
            folders[plain] = prepare(plan, plain, backends, direct, era, connections)
            cells.append(run_rounds(plan, backends, era, connections, {**servers, plain: direct}, folders))
            print("\n".join(cells[-1].lines()), flush=True)
    return cells


def prepare(plan: Plan, proxy: Proxy, backends: Backends, server: Running, era: str, connections: int) -> Path:
    """The calls for a generator, one of them tried, and all of them once more while nothing is measured."""
    path = proxy.path(backends)
    caller = Caller(server.port, path)
    sessions = [caller.open_session() for _ in range(connections)] if era == "legacy" else [None]
    calls = [tool_call(proxy.tool("noop", backends), session=session, is_streamed=False) for session in sessions]
    caller.check_either(calls[0], '"ok"')
    caller.close()
    folder = Path(tempfile.mkdtemp(dir=plan.folder))
    folder.rmdir()
    write_calls(folder, [call.raw(server.port, path) for call in calls])
    warm_up = WARM_UP[backends.transport] if connections > 1 else 1.0
    plan.load.run(server, folder, connections=connections, seconds=warm_up, expected="ok")
    return folder


def run_rounds(
    plan: Plan,
    backends: Backends,
    era: str,
    connections: int,
    servers: dict[Proxy, Running],
    folders: dict[Proxy, Path],
) -> Cell:
    samples: dict[str, list[Sample]] = {proxy.name: [] for proxy in servers}
    for _ in range(plan.rounds):
        for proxy, server in servers.items():
            sample = plan.load.run(server, folders[proxy], connections=connections, seconds=plan.seconds)
            samples[proxy.name].append(sample)
    return Cell(backends, era, connections, samples)


def verdicts(cells: list[Cell]) -> list[str]:
    lines = []
    for cell in cells:
        if cell.connections == 1:
            lines.append(verdict(f"{cell.title}: added p50, ms", cell.added(), ADDED, at_most=True))
            continue
        if is_judged(cell):
            lines.append(verdict(f"{cell.title}: calls/s", cell.rate(), RATES[cell.backends.transport]))
        others = [other for other in (FASTMCP, MCP_PROXY) if other in cell.samples]
        lines += [verdict(f"{cell.title}: calls/s, times {other}", cell.ratio(other), FACTOR) for other in others]
        few = next((one for one in cells if _is_alone(one, cell)), None)
        if few is not None and few is not cell:
            lines.append(verdict(f"{cell.title}: calls/s, of those with 1", cell.rate() / few.rate(), FLAT))
    return lines


def is_judged(cell: Cell) -> bool:
    """Whether there is a target for its calls/s."""
    return (cell.era, cell.connections, cell.backends.count) == ("modern", 32, 1)


def _is_alone(one: Cell, cell: Cell) -> bool:
    alike = (one.era, one.connections, one.backends.transport) == (cell.era, cell.connections, cell.backends.transport)
    return alike and one.backends.count == 1


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="one backend, HTTP in one era, runs of two seconds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="of one run (default: 4, short: 2)")
    parser.add_argument("--backends", default=None, help="how many, with commas (default: 1,50; short: 1)")
    parser.add_argument("--transport", choices=("stdio", "http"), action="append")
    parser.add_argument("--era", choices=ERAS, action="append")
    add_json(parser)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    if WRK is None:
        print(NO_WRK)
    counts = [int(count) for count in (options.backends or ("1" if options.short else "1,50")).split(",")]
    transports: list[Transport] = options.transport or ["stdio", "http"]
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as folder, backend_over_http() as direct:
        seconds = options.seconds or (2.0 if options.short else 4.0)
        plan = Plan(Load(is_wrk=WRK is not None), options.rounds, seconds, Path(folder))
        for transport in transports:
            for count in counts:
                for era in options.era or (("modern",) if options.short and transport == "http" else ERAS):
                    cells += measure_group(plan, Backends(transport, count, direct.port), era, direct)
    print("\n".join(verdicts(cells)))
    write_json(options.json, [attrs.asdict(cell) for cell in cells])


if __name__ == "__main__":
    main()
