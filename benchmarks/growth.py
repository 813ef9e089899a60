"""How the cost of a call grows: with sessions, tools and backends that it has nothing to do with, and with its payload.

    python -m benchmarks.growth [--short] [--rounds N] [--seconds S] [--only WORD] [--most N] [--json FILE]

A server for each size, all of them up at once; the sizes take turns, several rounds, and each figure stands beside that
of the smallest size in the same round. Load comes from wrk, over connections kept alive.

*Sessions* are legacy ones, opened over HTTP and left alone: they hold memory, and no connection. Ten thousand of them
need no more descriptors than one. First all calls are made in one of them, then in all of them by turns. *Tools*: the
last one is called. *Backends*: one HTTP server, listed so many times; the last one is called. *Payload*: of a request
alone (`payload.py` has echoes), with --max-frame raised. Sizes that are refused are told with the words of the refusal.

tests/test_growth.py asserts the same on counted operations, which are alike on every machine.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from benchmarks.broker_contenders import Backends, backend_over_http
from benchmarks.hosting_calls import Call, Caller, WrongAnswer, tool_call
from benchmarks.hosting_load import NO_WRK, WRK, Load, Sample, write_calls
from benchmarks.hosting_servers import Contender, Running, cores, moved, running
from benchmarks.measure import add_json, verdict, write_json
from benchmarks.peers import HERE

FROM_ONE_ADDRESS: Final = 2500
"""Sessions that are opened from one address: it may hold 160 MiB, and each counts as 28 KiB."""
SESSIONS: Final = (1, 10, 100, 1_000, 10_000)
TOOLS: Final = (1, 10, 100, 500)
BACKENDS: Final = (1, 10, 50, 100, 500)
PAYLOADS: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)

IN_USE: Final = "sessions in use: one call in each by turns"
BY_TURNS: Final = 1.25
"""What a call may cost where the most sessions are in use by turns, times what it costs in a single one, by CPU."""

CONNECTIONS: Final = 8
FEW: Final = 2
"""For payloads: a call that is under way at the end has cost CPU and is not counted, and ten megabytes take long."""

ROOM: Final = 64 * 1024 * 1024
"""--max-frame for payloads: the largest, and what is said around it."""

READY_TIME: Final = 120.0
"""Seconds until the last of all backends answers through the broker."""

Calls = list[bytes]


@attrs.frozen
class Stand:
    """One size: a server that is up, and the calls that are made to it."""

    size: int
    server: Running
    calls: Calls


@attrs.frozen
class Row:
    """What was seen at one size."""

    size: int
    samples: list[Sample]

    def typical(self) -> Sample:
        return Sample(*map(statistics.median, zip(*map(attrs.astuple, self.samples), strict=True)))


@attrs.frozen
class Table:
    """One kind of growth, from the smallest size to the largest."""

    what: str
    unit: str
    rows: list[Row]
    notes: list[str]

    def lines(self) -> list[str]:
        first = self.rows[0].samples if self.rows else []
        lines = [f"{self.what:44}  calls/s    p99 ms    CPU us   of the first (the spread)"]
        for row in self.rows:
            seen = row.typical()
            shares = sorted(mine.rate / theirs.rate for mine, theirs in zip(row.samples, first, strict=True))
            spread = f"{statistics.median(shares):8.3f} ({shares[0]:.3f} to {shares[-1]:.3f})"
            size = f"{row.size:,} {self.unit}"
            lines.append(f"  {size:40} {seen.rate:10.1f} {seen.p99 / 1e3:9.2f} {seen.cpu:9.0f} {spread}")
        return [*lines, *(f"  {note}" for note in self.notes)]


@attrs.frozen
class Plan:
    """How it is measured."""

    load: Load
    rounds: int
    seconds: float
    most: int
    folder: Path
    is_short: bool = False
    connections: int = CONNECTIONS

    def sizes(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """In a short run every other one, and the last."""
        sizes = dict.fromkeys((*wanted[::2], wanted[-1])) if self.is_short else wanted
        return tuple(size for size in sizes if size <= self.most)


def measure(plan: Plan, what: str, unit: str, stands: list[Stand], notes: Sequence[str] = ()) -> Table:
    """All sizes in turn, after each server had a second that does not count."""
    folders, warm = {}, set[int]()
    for stand in stands:
        folder = Path(tempfile.mkdtemp(dir=plan.folder))
        folder.rmdir()
        folders[stand.size] = write_calls(folder, stand.calls)
        if stand.server.port not in warm:
            plan.load.run(stand.server, folders[stand.size], connections=plan.connections, seconds=1)
            warm.add(stand.server.port)
    samples: dict[int, list[Sample]] = {stand.size: [] for stand in stands}
    for _ in range(plan.rounds):
        for stand in stands:
            run = plan.load.run(stand.server, folders[stand.size], connections=plan.connections, seconds=plan.seconds)
            samples[stand.size].append(run)
    table = Table(what, unit, [Row(size, seen) for size, seen in samples.items()], list(notes))
    print("\n".join(table.lines()), flush=True)
    return table


@contextmanager
def hosted(tools: int = 1, *flags: str, beside: bool = False) -> Iterator[Running]:
    """callboard with so many tools. *beside* the generator if somebody else has the core for servers."""
    _, core = cores()

    def command(port: int) -> list[str]:
        run = [sys.executable, "-m", "callboard", "run", str(HERE / "growth_app.py"), "--http", str(port), "--json"]
        told = ["/usr/bin/env", f"CALLBOARD_BENCH_TOOLS={tools}", *run, *flags]
        return moved(core, told) if beside else told

    with running(Contender("callboard", command)) as server:
        yield server


@contextmanager
def brokered(plan: Plan, backends: Backends, *flags: str) -> Iterator[Running]:
    """callboard in front of *backends*."""
    file = backends.write(plan.folder)

    def command(port: int) -> list[str]:
        return [sys.executable, "-m", "callboard", "serve", str(file), "--http", str(port), "--json", *flags]

    with running(Contender("callboard serve", command)) as server:
        yield server


def tried(server: Running, call: Call, expected: str = '"ok"') -> bytes:
    """*call* as it is on the wire, once it was answered: backends come up after the broker does."""
    deadline = time.monotonic() + READY_TIME
    while True:
        caller = Caller(server.port)
        try:
            caller.check_either(call, expected)
        except WrongAnswer:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)  # the broker is asked until it is ready
        else:
            return call.raw(server.port)
        finally:
            caller.close()


def opened(server: Running, count: int) -> list[str]:
    """Open so many sessions, from several addresses."""
    sessions = []
    for number, start in enumerate(range(0, count, FROM_ONE_ADDRESS), 1):
        caller = Caller(server.port, source=f"127.0.0.{number}")
        sessions += [caller.open_session() for _ in range(min(FROM_ONE_ADDRESS, count - start))]
        caller.close()
    return sessions


def with_sessions(plan: Plan) -> list[Table]:
    """Calls in one of many sessions, and in all of them by turns."""
    with ExitStack() as stack:
        idle, busy = [], []
        for size in plan.sizes(SESSIONS):
            server = stack.enter_context(hosted())
            calls = [tool_call("noop0", session=session, is_streamed=False) for session in opened(server, size)]
            idle.append(Stand(size, server, [tried(server, calls[-1])]))
            busy.append(Stand(size, server, [call.raw(server.port) for call in calls]))
        return [
            measure(plan, "idle sessions: all calls are made in one", "sessions", idle),
            measure(plan, IN_USE, "sessions", busy),
        ]


def with_tools(plan: Plan) -> list[Table]:
    with ExitStack() as stack:
        stands = []
        for size in plan.sizes(TOOLS):
            server = stack.enter_context(hosted(size))
            call = tool_call(f"noop{size - 1}", session=None, is_streamed=False)
            stands.append(Stand(size, server, [tried(server, call)]))
        return [measure(plan, "tools of a server: the last one is called", "tools", stands)]


def with_backends(plan: Plan) -> list[Table]:
    with ExitStack() as stack:
        behind = stack.enter_context(backend_over_http())
        stands = []
        for size in plan.sizes(BACKENDS):
            backends = Backends("http", size, behind.port)
            server = stack.enter_context(brokered(plan, backends))
            call = tool_call(f"{backends.names()[-1]}__noop", session=None, is_streamed=False)
            stands.append(Stand(size, server, [tried(server, call)]))
        return [measure(plan, "backends of a broker: the last one is called", "backends", stands)]


def with_payload(plan: Plan) -> list[Table]:
    """A large request with a small answer, at a server and through a broker."""
    room = ("--max-frame", str(ROOM))
    plan, tables = attrs.evolve(plan, connections=FEW), []
    with ExitStack() as stack:
        server = stack.enter_context(hosted(1, *room))
        behind = stack.enter_context(hosted(1, *room, beside=True))
        broker = stack.enter_context(brokered(plan, Backends("http", 1, behind.port), *room))
        tried(broker, sized(1, "b0__length"), "characters")
        tables.append(payload_table(plan, server, "payload of requests, by a server", "length"))
        tables.append(payload_table(plan, broker, "payload of requests, through a broker", "b0__length"))
    return [*tables, *as_it_comes(plan)]


def payload_table(plan: Plan, server: Running, what: str, tool: str) -> Table:
    """All sizes that are answered; of the others, what is said to them."""
    stands, notes = [], []
    for size in plan.sizes(PAYLOADS):
        call = sized(size, tool)
        if refused := refusal(server, call):
            notes.append(f"{size:,} B: {refused}")
        else:
            stands.append(Stand(size, server, [call.raw(server.port)]))
    return measure(plan, what, "B", stands, notes)


def as_it_comes(plan: Plan) -> list[Table]:
    """What the largest request is told without --max-frame. Nothing is measured."""
    size = plan.sizes(PAYLOADS)[-1]
    with hosted() as server:
        refused = refusal(server, sized(size, "length"))
    table = Table("payload without --max-frame", "B", [], [f"{size:,} B: {refused or 'taken'}"])
    print("\n".join(table.lines()))
    return [table]


def sized(size: int, tool: str) -> Call:
    return tool_call(tool, session=None, is_streamed=False, text="x" * size)


def refusal(server: Running, call: Call) -> str:
    """What a server says to *call*, if it does not take it."""
    caller = Caller(server.port)
    try:
        caller.check_either(call, '"content"')
    except WrongAnswer as wrong:
        return str(wrong).partition(": ")[2][:200]
    except OSError as error:  # it was cut off in the middle of its request
        return type(error).__name__
    finally:
        caller.close()
    return ""


def by_turns(tables: Sequence[Table]) -> float | None:
    """What a call costs in all of the most sessions, times what it costs in one. None if that was not measured."""
    for table in tables:
        if table.what == IN_USE and table.rows[-1].size == SESSIONS[-1]:
            pairs = zip(table.rows[-1].samples, table.rows[0].samples, strict=True)
            return statistics.median(many.cpu / one.cpu for many, one in pairs)
    return None


KINDS: Final[Mapping[str, Callable[[Plan], list[Table]]]] = {
    "sessions": with_sessions,
    "tools": with_tools,
    "backends": with_backends,
    "payload": with_payload,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer sizes, runs of one second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="of one run; whole ones for wrk (default: 4, short: 1)")
    parser.add_argument("--only", choices=KINDS, action="append", help="this kind of growth only")
    parser.add_argument("--most", type=int, default=PAYLOADS[-1], help="the largest size that is tried")
    add_json(parser)
    options = parser.parse_args()
    if WRK is None:
        print(NO_WRK)
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        seconds = options.seconds or (1.0 if options.short else 4.0)
        load = Load(is_wrk=WRK is not None)
        plan = Plan(load, options.rounds, seconds, options.most, Path(folder), is_short=options.short)
        for kind in options.only or KINDS:
            tables += KINDS[kind](plan)
    if (times := by_turns(tables)) is not None:
        print(verdict(f"{IN_USE}, CPU of a call at {SESSIONS[-1]:,}, times one", times, BY_TURNS, at_most=True))
    write_json(options.json, [attrs.asdict(table) for table in tables])


if __name__ == "__main__":
    main()
