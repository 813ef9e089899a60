"""Two checkouts of callboard, side by side: what a call costs before a change, and after it.

    python -m benchmarks.side_by_side BEFORE AFTER [--rounds N] [--seconds S] [--only WORD ...] [--json FILE]

Both are folders with a `callboard` in them: `git worktree add /tmp/before main` makes one. Each runs a server with the
tools of `apps/hosting_app.py`, and brokers in front of such servers, on the same Python; benchmarks, tools, generators
are those of the checkout that this is run from. What counts is the CPU time of a server, or of a broker without what is
behind it, for one call: *ratio* is before / after, so more than 1 is cheaper.

Both checkouts are called at the same time and share one core, as the two generators share the other. So they have the
same neighbours at every moment, and a ratio is good to two or three percent where servers that take turns differ by
twenty: the machine may be busy. Microseconds are then more than they would be alone, and calls/s mean nothing.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, TypeAlias

import attrs

from benchmarks.broker_contenders import PROXIES, Backends, Transport, backend_over_http
from benchmarks.hosting_load import WRK, Load, Sample
from benchmarks.hosting_rounds import CallFor, Job, Plan, Preparation, preparing
from benchmarks.hosting_servers import Contender, Running, running
from benchmarks.hosting_shapes import SHAPES
from benchmarks.hosting_websocket import ERAS, WAYS, Way, both_doors, calls_by
from benchmarks.measure import add_json, write_json
from benchmarks.payload import SIZES, echo_of

WHERE: Final = "import callboard; print(callboard.__file__)"


@attrs.frozen
class Row:
    """One way to call: the rounds of both checkouts."""

    name: str
    before: list[Sample]
    after: list[Sample]

    def ratios(self) -> list[float]:
        """Before / after by CPU, from the lowest to the highest."""
        return sorted(old.cpu / new.cpu for old, new in zip(self.before, self.after, strict=True))

    def line(self) -> str:
        old, new = (median(one.cpu for one in samples) for samples in (self.before, self.after))
        ratios = self.ratios()
        spread = f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
        return f"  {self.name:46} {old:8.1f} {new:8.1f} {median(ratios):8.3f} {spread}"


@attrs.define(eq=False)
class Checkout:
    """A folder, and the programs of the callboard in it: each is started when a row first wants it."""

    folder: Path
    preparation: Preparation
    stack: ExitStack
    _server: Running | None = attrs.field(default=None, init=False)
    _brokers: dict[Transport, Running] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        """Ends the program if there is no callboard that can be imported."""
        asked = [sys.executable, "-c", WHERE]
        found = subprocess.run(asked, cwd=self.folder, capture_output=True, text=True, check=False)
        if not Path(found.stdout.strip()).is_relative_to(self.folder):
            sys.exit(f"{self.folder} has no callboard that works: {found.stdout.strip() or found.stderr.strip()}")

    def server(self) -> Running:
        if self._server is None:
            self._server = self._start(both_doors.command)
        return self._server

    def broker(self, transport: Transport) -> Running:
        """In front of one server of the same checkout."""
        if transport not in self._brokers:
            port = self.stack.enter_context(backend_over_http(self.folder)).port if transport == "http" else 0
            backends = Backends(transport, 1, port)
            file = backends.write(Path(tempfile.mkdtemp(dir=self.preparation.place)))
            self._brokers[transport] = self._start(partial(PROXIES[0].command, file, backends))
        return self._brokers[transport]

    def _start(self, command: Callable[[int], list[str]]) -> Running:
        there = Contender(f"callboard in {self.folder}", command, cwd=lambda: self.folder)
        return self.stack.enter_context(running(there))


def _called(job: Job, checkout: Checkout) -> CallFor:
    return checkout.preparation.of(checkout.server(), job)


def _over_websocket(way: Way, era: str, checkout: Checkout) -> CallFor:
    return calls_by(way, era, checkout.server(), checkout.preparation)


def _brokered(transport: Transport, job: Job, checkout: Checkout) -> CallFor:
    return checkout.preparation.of(checkout.broker(transport), job)


CallsOf: TypeAlias = Callable[[Checkout], CallFor]
BROKERED: Final[dict[str, Transport]] = {"stdio": "stdio", "HTTP": "http"}
ROWS: Final[dict[str, CallsOf]] = {
    **{shape.name: partial(_called, shape.job) for shape in SHAPES},
    **{f"{way.name}, {era}": partial(_over_websocket, way, era) for era in ERAS for way in WAYS if way.sockets},
    **{f"echo of {size:,} B": partial(_called, echo_of(size)) for size in SIZES},
    **{
        f"brokered no-op, {name} behind": partial(_brokered, transport, Job(tool="b0__noop", expected='"ok"'))
        for name, transport in BROKERED.items()
    },
    **{
        f"brokered echo of {size:,} B, {name} behind": partial(_brokered, transport, echo_of(size, "b0__echo"))
        for name, transport in BROKERED.items()
        for size in SIZES
    },
}
"""What is called, by name. HTTP unless it says so."""


def measure(plan: Plan, names: list[str], before: Path, after: Path) -> Iterator[Row]:
    with ExitStack() as stack:
        preparation = stack.enter_context(preparing(plan.load))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        checkouts = [Checkout(folder.resolve(), preparation, stack) for folder in (before, after)]
        for name in names:
            calls = [ROWS[name](checkout) for checkout in checkouts]
            rounds = [list(pool.map(lambda call: call(plan.seconds), calls)) for _ in range(plan.rounds)]
            yield Row(name, *map(list, zip(*rounds, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run; whole ones for wrk (default: 2)")
    parser.add_argument("--only", action="append", metavar="WORD", help="rows with this word in their name")
    add_json(parser)
    options = parser.parse_args()
    names = [name for name in ROWS if not options.only or any(word in name for word in options.only)]
    if not names:
        parser.error(f"no row has such a name; they are: {'; '.join(ROWS)}")
    plan = Plan(Load(is_wrk=WRK is not None), options.rounds, options.seconds)
    found = []
    print(f"  {'CPU us for a call':46} {'before':>8} {'after':>8} {'ratio':>8} (the spread)", flush=True)
    for row in measure(plan, names, options.before, options.after):
        print(row.line(), flush=True)
        found.append(row)
    write_json(options.json, [attrs.asdict(row) for row in found])


if __name__ == "__main__":
    main()
