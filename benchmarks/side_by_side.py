"""Two checkouts of callboard, side by side: what a call costs before a change, and after it.

    python -m benchmarks.side_by_side BEFORE AFTER [--rounds N] [--seconds S] [--only WORD ...] [--json FILE]

Both are folders with a `callboard` in them: `git worktree add /tmp/before main` makes one. Each runs one server with
the tools of `hosting_app.py`, on the same Python; benchmarks, tools and generators are those of the checkout that this
is run from. What counts is the CPU time of a server for one call: *ratio* is before / after, so more than 1 is cheaper.

Both servers are called at the same time and share one core, as the two generators share the other. So they have the
same neighbours at every moment, and a ratio is good to two or three percent where servers that take turns differ by
twenty: the machine may be busy. Microseconds are then more than they would be alone, and calls/s mean nothing.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import attrs

from benchmarks.hosting_load import WRK, Load, Sample
from benchmarks.hosting_rounds import CallFor, Job, Plan, Preparation, preparing
from benchmarks.hosting_servers import Contender, Running, running
from benchmarks.hosting_shapes import SHAPES
from benchmarks.hosting_websocket import ERAS, WAYS, both_doors, calls_by
from benchmarks.measure import add_json, write_json

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


def checkout(name: str, folder: Path) -> Contender:
    """A server of the callboard in *folder*. Ends the program if there is none that can be imported."""
    found = subprocess.run([sys.executable, "-c", WHERE], cwd=folder, capture_output=True, text=True, check=False)
    if not Path(found.stdout.strip()).is_relative_to(folder):
        sys.exit(f"{folder} has no callboard that works: {found.stdout.strip() or found.stderr.strip()}")
    return attrs.evolve(both_doors, name=name, cwd=lambda: folder)


def _shaped(job: Job, server: Running, preparation: Preparation) -> CallFor:
    return preparation.of(server, job)


ROWS: Final[dict[str, Callable[[Running, Preparation], CallFor]]] = {
    **{shape.name: partial(_shaped, shape.job) for shape in SHAPES},
    **{f"{way.name}, {era}": partial(calls_by, way, era) for era in ERAS for way in WAYS if way.sockets},
}
"""What is called, by name. HTTP is among the shapes."""


def measure(plan: Plan, names: list[str], before: Running, after: Running) -> Iterator[Row]:
    with preparing(plan.load) as preparation, ThreadPoolExecutor(2) as pool:
        for name in names:
            calls = [ROWS[name](server, preparation) for server in (before, after)]
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
    with ExitStack() as stack:
        places = {"before": options.before.resolve(), "after": options.after.resolve()}
        before, after = (stack.enter_context(running(checkout(*place))) for place in places.items())
        print(f"  {'CPU us for a call':46} {'before':>8} {'after':>8} {'ratio':>8} (the spread)", flush=True)
        for row in measure(plan, names, before, after):
            print(row.line(), flush=True)
            found.append(row)
    write_json(options.json, [attrs.asdict(row) for row in found])


if __name__ == "__main__":
    main()
