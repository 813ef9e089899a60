"""Ten thousand that listen: idle `subscriptions/listen` streams and WebSocket sessions on one process of callboard.

    python -m benchmarks.listeners [--short] [--count N] [--rest SECONDS] [--json FILE]
    python -m benchmarks.listeners --workers N [--count N] [--rest SECONDS] [--json FILE] [-- FLAGS]

Opens them, weighs the server, lets it rest, and publishes notifications that each must get, every one once. First the
streams, then the WebSockets, then both together; a new server for each. Whoever is missing ends it with an error.

With --workers it is one server with so many workers, and --count (default: 100,000) is that of all peers together: half
are streams, half are WebSockets. They come from several processes and loopback addresses. What is weighed is all
processes of the server. A worker needs a descriptor for each of its peers: with `ulimit -Hn` of 65,536 two workers hold
100,000, with 20,000 it takes six. FLAGS are those of `callboard run`: --comment-every and --ping-every decide what idle
peers cost at rest (rest at least as long as both).
"""

import argparse
import gc
import os
import resource
import signal
import sys
from statistics import median
from typing import Final

import attrs

from benchmarks.hosting_servers import Contender, Running, cores, running
from benchmarks.listeners_crowd import Crowd, Kind, Missing, Socket, Stream
from benchmarks.listeners_many import FEWEST_WORKERS, GOAL_COUNT, NotEnoughDescriptors, end_by_signals, gather_many
from benchmarks.measure import add_json, verdict, write_json
from benchmarks.peers import HERE
from callboard.transports.limits import DEFAULTS

MARGIN: Final = 100
"""Descriptors of a process that are not listeners."""
FIRST: Final = 100
"""Listeners that are not weighed: what comes with the first ones is not theirs."""
PUBLICATIONS: Final = 5
"""How often something is published: now and then one falls together with a ping, a comment or a collection."""
KIB: Final = 40.0
CPU: Final = 1.0
"""What an idle peer may take, KiB for each and percent of a core for ten thousand (PROMISES 9)."""
MANY: Final = 10_000

SOCKETS: Final = "WebSocket sessions"
GATHERINGS: Final[dict[str, tuple[Kind, ...]]] = {
    "subscriptions/listen streams": (Stream,),
    SOCKETS: (Socket,),
    "streams and sessions together": (Stream, Socket),
}


@attrs.frozen
class Figures:
    """What one gathering took. Seconds, KiB, percent of a core."""

    what: str
    count: int
    opening: float
    kib_each: float
    resident_mib: float
    cpu_at_rest: float
    rest: float
    heard_p50: float
    heard_p99: float
    heard_by_all: float
    """These three in the median of all publications; the next in the worst."""
    heard_late: float

    def lines(self) -> list[str]:
        each, whole = self.opening / self.count * 1e6, f"(to {self.resident_mib:.0f} MiB)"
        late = f"{self.heard_by_all:.3f} s (worst of {PUBLICATIONS}: {self.heard_late:.3f} s)"
        return [
            f"{self.count} {self.what}:",
            f"  open after          {self.opening:8.2f} s    ({each:.0f} us each)",
            f"  memory              {self.kib_each:8.1f} KiB  each, as the process grew {whole}",
            f"  CPU at rest         {self.cpu_at_rest:8.2f} %    of a core, over {self.rest:g} s",
            f"  told, p50 p99 all   {self.heard_p50:8.3f} s    {self.heard_p99:.3f} s, {late}",
            "  " + verdict("KiB each", self.kib_each, KIB, at_most=True),
            "  " + verdict("CPU at rest, percent", self.cpu_at_rest, CPU, at_most=True),
        ]


def server_for(count: int) -> Contender:
    """callboard with room for *count* of each kind, and no limit changed that an idle listener feels."""
    room = str(2 * count + MARGIN)
    limits = [word for name in ("connections", "in-flight", "sessions") for word in (f"--max-{name}", room)]
    limits += ["--max-memory-each", str(2 * count * 40 * 1024)]  # all of them come from one address

    def command(port: int) -> list[str]:
        run = [sys.executable, "-m", "callboard", "run", str(HERE / "apps" / "hosting_app.py")]
        return [*run, "--http", str(port), "--ws", str(port), *limits]

    return Contender("callboard", command)


def gather(server: Running, what: str, kinds: tuple[Kind, ...], count: int, rest: float) -> Figures:
    """All that is measured about *count* listeners of each of the *kinds*."""
    crowd = Crowd(server.port)
    try:
        opening = sum(crowd.gather(kind, FIRST) for kind in kinds)
        before = server.resident()
        opening += sum(crowd.gather(kind, count - FIRST) for kind in kinds)
        grown = server.resident() - before
        used = server.cpu()
        crowd.rest(rest)
        used = server.cpu() - used
        told = [crowd.publish() for _ in range(PUBLICATIONS)]
        everybody = count * len(kinds)
        return Figures(
            what=what,
            count=everybody,
            opening=opening,
            kib_each=grown / (everybody - FIRST * len(kinds)) / 1024,
            resident_mib=server.resident() / 1024 / 1024,
            cpu_at_rest=used / rest * 100,
            rest=rest,
            heard_p50=median(heard[everybody // 2] for heard in told),
            heard_p99=median(heard[everybody * 99 // 100] for heard in told),
            heard_by_all=median(heard[-1] for heard in told),
            heard_late=max(heard[-1] for heard in told),
        )
    finally:
        crowd.close()


def raise_limit() -> int:
    """Have as many descriptors as the system lets us, here and in the server; return how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def on_workers(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """The form with --workers."""
    if options.workers != "auto" and not (options.workers.isdecimal() and int(options.workers) >= FEWEST_WORKERS):
        parser.error("--workers must be 2 or more, or auto; without it, one process is measured")
    if options.short:
        parser.error("--short is for one process: give --count and --rest")
    raise_limit()
    end_by_signals()
    try:
        workers = None if options.workers == "auto" else int(options.workers)
        found = gather_many(options.count, workers, options.rest or DEFAULTS.ping_every, flags=options.flags)
    except NotEnoughDescriptors as error:
        parser.error(str(error))
    except Missing as error:
        sys.exit(f"listeners: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    print("\n".join(found.lines()), flush=True)
    write_json(options.json, attrs.asdict(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--count", type=int, help="listeners of each kind (default: 10,000); with --workers, of both (default: 100,000)"
    )
    words = "one server with so many workers (auto: as few as hold them, but two), and COUNT peers in all"
    parser.add_argument("--workers", help=words)
    parser.add_argument("--short", action="store_true", help="each kind alone; time for one ping to each, not for two")
    parser.add_argument("--rest", type=float, help="seconds of rest (default: two pings to each; with --workers, one)")
    parser.add_argument("flags", nargs="*", metavar="FLAGS", help="more flags of the server, after --, with --workers")
    add_json(parser)
    options = parser.parse_args()
    if options.count is None:
        options.count = MANY if options.workers is None else GOAL_COUNT
    if options.count <= FIRST:
        parser.error(f"--count must be more than {FIRST}")
    if options.workers is not None:
        on_workers(parser, options)
        return
    if options.flags:
        parser.error("FLAGS are for a server with --workers")
    gc.disable()  # a collection among twenty thousand clients would be counted as the server's delay
    most = raise_limit() - MARGIN
    _, core = cores()
    if core:
        os.sched_setaffinity(0, core)
    found = []
    rest = options.rest or DEFAULTS.ping_every * (1 if options.short else 2)
    for what, kinds in GATHERINGS.items():
        if options.short and len(kinds) > 1:
            continue
        count = min(options.count, most // len(kinds))
        if count < options.count:
            note = f"{what}: {count} of each, not {options.count}: a process may have {most + MARGIN} descriptors"
            print(note, file=sys.stderr)
        with running(server_for(count)) as server:
            found.append(gather(server, what, kinds, count, rest))
        print("\n".join(found[-1].lines()), flush=True)
    write_json(options.json, [attrs.asdict(figures) for figures in found])


if __name__ == "__main__":
    main()
