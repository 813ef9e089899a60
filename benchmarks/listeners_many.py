"""`listeners.py --workers N`: idle peers on all workers of one server, from as many client processes as they need."""

import math
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from statistics import median
from typing import IO, Final, TypeVar

import attrs
import psutil

from benchmarks.listeners_client import (
    Answer,
    Check,
    Failed,
    Gather,
    Heard,
    Inside,
    Listen,
    Listening,
    Once,
    Order,
    Place,
)
from benchmarks.listeners_crowd import Crowd, Missing
from benchmarks.measure import verdict
from benchmarks.peers import HERE
from callboard.transports.descriptors import MOST_DESCRIPTORS
from callboard.transports.server.http.crowd import RESERVE
from tests.served import free_port
from tests.shared import ROOT

MARGIN: Final = 100
"""Descriptors of a process that are not listeners."""
EACH_ADDRESS: Final = 5000
"""Connections from one address. It has 28,000 ports, and the server limits what one address may have of it."""
WINDOW: Final = 256
"""Clients that are on their way in at the same time, of all processes: fewer than a listener lets wait."""
FEWEST_WORKERS: Final = 2
FEWEST_CLIENTS: Final = 2
"""Client processes: one would be slower than several workers."""
CLIENT: Final = "import sys; from benchmarks.listeners_client import main; main(int(sys.argv[1]))"
"""A client process. Its messages are those of a module that both ends know by the same name."""
PATIENCE: Final = 600.0
"""Seconds until something must have happened that all processes wait for."""
PUBLICATIONS: Final = 5
"""How often something is published."""
ENDED_WITHIN: Final = 10.0
"""Seconds for a process that was told to end."""

GOAL_COUNT: Final = 100_000
GOAL_GIB: Final = 3.0
GOAL_CPU: Final = 2.0
GOAL_TOLD: Final = 8.0
"""What so many idle peers may take: memory of all processes, percent of a core, seconds until one change
reached all of them."""

_Answer = TypeVar("_Answer", bound=Answer)


class NotEnoughDescriptors(Exception):
    """The workers cannot hold so many peers; the message says how many workers can."""


@attrs.frozen
class ManyFigures:
    """What peers on several workers took. Seconds, MiB and KiB, percent of a core."""

    count: int
    workers: int
    clients: int
    """Client processes."""
    opening: float
    pss_mib: float
    """All processes of the server together: pages that several share count once."""
    resident_mib: float
    """The sum of what each has: shared pages count for each."""
    kib_each: float
    cpu_at_rest: float
    rest: float
    least_descriptors: int
    most_descriptors: int
    """Of one worker."""
    heard_first: float
    heard_p50: float
    heard_p99: float
    heard_by_all: float
    """These four in the median of all publications; the next in the worst."""
    heard_late: float

    def lines(self) -> list[str]:
        each = self.opening / self.count * 1e6
        told = f"{self.heard_p50:.3f} s, {self.heard_p99:.3f} s, {self.heard_by_all:.3f} s"
        names = f"{self.count // 2:,} subscriptions/listen streams and {self.count // 2:,} WebSocket sessions"
        return [
            f"{names}, {self.workers} workers, {self.clients} client processes:",
            f"  open after          {self.opening:8.2f} s    ({each:.0f} us each)",
            f"  descriptors         {self.least_descriptors:8} to   {self.most_descriptors} in a worker",
            f"  memory              {self.pss_mib:8.0f} MiB  in all processes (PSS; RSS: {self.resident_mib:.0f})",
            f"  of that             {self.kib_each:8.1f} KiB  each, as the processes grew",
            f"  CPU at rest         {self.cpu_at_rest:8.2f} %    of a core, over {self.rest:g} s",
            f"  told: first         {self.heard_first:8.3f} s    p50, p99, last: {told}",
            f"                               (the last in the worst publication: {self.heard_late:.3f} s)",
            *(f"  {line}" for line in self._verdicts()),
        ]

    def _verdicts(self) -> list[str]:
        if self.count < GOAL_COUNT:
            return [f"not judged: the goals are those of {GOAL_COUNT:,} peers"]
        return [
            verdict("memory, GiB", self.pss_mib / 1024, GOAL_GIB, at_most=True),
            verdict("CPU at rest, percent", self.cpu_at_rest, GOAL_CPU, at_most=True),
            verdict("told all, seconds", self.heard_by_all, GOAL_TOLD, at_most=True),
        ]


def descriptors_of(hard: int) -> tuple[int, int]:
    """How many peers a worker and a client process can hold, if a process may have *hard* descriptors."""
    worker = hard if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    worker = MOST_DESCRIPTORS if worker == resource.RLIM_INFINITY else worker
    client = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    return worker - RESERVE - MARGIN, client - MARGIN


def enough_workers(count: int, workers: int | None, hard: int) -> int:
    """*workers*, or as few as hold *count* peers, but two. Raises `NotEnoughDescriptors` if they cannot."""
    each, _ = descriptors_of(hard)
    needed = max(FEWEST_WORKERS, math.ceil(count / each))
    if workers is not None and workers < needed:
        most = each + RESERVE + MARGIN
        raise NotEnoughDescriptors(f"a process may have {most} descriptors: give --workers {needed}")
    return workers or needed


def places(port: int, count: int, hard: int) -> list[Place]:
    """The client processes, each with addresses of its own and a whole number of pairs."""
    _, most = descriptors_of(hard)
    pairs = count // 2
    processes = max(FEWEST_CLIENTS, math.ceil(pairs / (most // 2)))
    shares = [pairs // processes + (number < pairs % processes) for number in range(processes)]
    addresses = math.ceil(2 * max(shares) / EACH_ADDRESS)
    window = max(2, WINDOW // processes)
    return [
        Place(port, 2 * share, number * addresses, EACH_ADDRESS, window, PATIENCE)
        for number, share in enumerate(shares)
    ]


@attrs.define(eq=False)
class Node:
    """A server with workers: all of its processes."""

    port: int
    parent: psutil.Process
    said: IO[bytes]
    processes: list[psutil.Process] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.processes = [self.parent, *self.parent.children(recursive=True)]

    def resident(self) -> int:
        return sum(int(one.memory_info().rss) for one in self.processes)

    def proportional(self) -> int:
        return sum(_proportional(one.pid) for one in self.processes)

    def cpu(self) -> float:
        times = [one.cpu_times() for one in self.processes]
        return float(sum(one.user + one.system for one in times))

    def descriptors(self) -> list[int]:
        """How many each worker has."""
        return [int(one.num_fds()) for one in self.parent.children()]

    def check_same(self) -> None:
        """Raises `Missing` if a worker ended, and another one began."""
        now = [self.parent, *self.parent.children(recursive=True)]
        if {one.pid for one in now} != {one.pid for one in self.processes}:
            raise Missing(f"a worker ended. The server said:\n{self.words()}")

    def words(self) -> str:
        """What the server has said last."""
        self.said.seek(0)
        return self.said.read().decode(errors="replace")[-2000:]


def _proportional(pid: int) -> int:
    """Bytes of a process; of pages that several processes share, its part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no Pss of process {pid}")


@contextmanager
def serving(workers: int, count: int, flags: Sequence[str] = ()) -> Iterator[Node]:
    """A server with *workers*, room in each for all of *count*, and more *flags*. Nothing of it is left afterwards."""
    port, room = str(free_port()), str(count + MARGIN)
    app = str(HERE / "apps" / "hosting_app.py")
    command = [sys.executable, "-m", "callboard", "run", app, "--workers", str(workers)]
    command += ["--http", port, "--ws", port, "--json"]
    for limit in ("--max-connections", "--max-in-flight", "--max-sessions"):
        command += [limit, room] if limit not in flags else []
    command += flags
    with tempfile.TemporaryFile() as said:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, start_new_session=True
        )
        parent = psutil.Process(server.pid)
        try:
            assert server.stdout is not None
            if not server.stdout.readline():
                said.seek(0)
                raise Missing(f"the server did not start:\n{said.read().decode(errors='replace')}")
            yield Node(int(port), parent, said)
        finally:
            _kill([parent, *_children(parent)])
            server.wait()
            if server.stdout is not None:
                server.stdout.close()


def _children(parent: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(parent.children(recursive=True))
    return []


def _kill(processes: Sequence[psutil.Process]) -> None:
    """End all, the parent first: nothing in them is worth a farewell, and it would start others."""
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(processes[1:], timeout=ENDED_WITHIN)


@attrs.define(eq=False)
class ClientProcesses:
    """All client processes, and the pipes to them."""

    pipes: list[Connection]

    def order(self, order: Order) -> None:
        for pipe in self.pipes:
            pipe.send(order)

    def answers(self, kind: type[_Answer]) -> list[_Answer]:
        """One of each. Raises `Missing`."""
        found = dict[Connection, _Answer]()
        while len(found) < len(self.pipes):
            for pipe, answer in self._next([pipe for pipe in self.pipes if pipe not in found]):
                if not isinstance(answer, kind):
                    raise Missing(f"a client process said {answer}")
                found[pipe] = answer
        return [found[pipe] for pipe in self.pipes]

    def gather(self, count: int) -> float:
        """Let all clients in; return the seconds that it took. Raises `Missing`."""
        started = time.perf_counter()
        self.order(Gather())
        inside = dict.fromkeys(self.pipes, 0)
        while sum(inside.values()) < count:
            for pipe, answer in self._next(self.pipes):
                if isinstance(answer, Inside):
                    inside[pipe] = answer.count
            _progress(f"{sum(inside.values()):,} of {count:,} are in after {time.perf_counter() - started:.0f} s")
        _progress("")
        return time.perf_counter() - started

    def publish(self, port: int) -> list[float]:
        """Have the news published once; return the seconds until each client heard it. Raises `Missing`."""
        self.order(Listen())
        self.answers(Listening)
        started = time.perf_counter()
        publish_once(port)
        heard = sorted(at - started for one in self.answers(Heard) for at in one.at)
        time.sleep(1.0)  # what comes twice comes in that time
        self.order(Check())
        self.answers(Once)
        return heard

    def _next(self, pipes: Sequence[Connection]) -> Iterator[tuple[Connection, Answer]]:
        """What some of *pipes* have said. Raises `Missing`."""
        for pipe in wait(pipes, PATIENCE):
            assert isinstance(pipe, Connection)
            try:
                answer: Answer = pipe.recv()
            except (EOFError, ConnectionResetError):
                raise Missing("a client process ended") from None
            if isinstance(answer, Failed):
                raise Missing(answer.why)
            yield pipe, answer


def publish_once(port: int) -> None:
    """Call the tool that publishes."""
    alone = Crowd(port)
    try:
        alone.ask_to_publish()
    finally:
        alone.close()


def _progress(line: str) -> None:
    """One line on stderr, always the same one; nothing if no terminal shows it."""
    if sys.stderr.isatty():
        print(f"\r{line:60}\r", end="", file=sys.stderr, flush=True)


@contextmanager
def client_processes(stations: Sequence[Place]) -> Iterator[ClientProcesses]:
    """A process for each of *stations*. They end with the block, or with this process, however it ends."""
    with ExitStack() as stack:
        pipes = []
        for place in stations:
            ours, theirs = Pipe()
            stack.enter_context(ours)
            with theirs:  # and only there: else a process that ends would not be heard of
                command = [sys.executable, "-c", CLIENT, str(theirs.fileno())]
                # In a session of its own: Ctrl-C is for this process, which then ends the others.
                process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], start_new_session=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            ours.send(place)
            pipes.append(ours)
        clients = ClientProcesses(pipes)
        clients.answers(Inside)  # each has started, which is not the server's time
        yield clients


def gather_many(
    count: int, workers: int | None, rest: float, *, publications: int = PUBLICATIONS, flags: Sequence[str] = ()
) -> ManyFigures:
    """All that is measured about *count* peers of a server with these *flags*.

    Raises `Missing` and `NotEnoughDescriptors`.
    """
    count -= count % 2
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = enough_workers(count, workers, hard)
    with serving(workers, count, flags) as node, client_processes(places(node.port, count, hard)) as clients:
        try:
            publish_once(node.port)  # what the first request loads is not weighed
            before = node.proportional()
            opening = clients.gather(count)
            used, started = node.cpu(), time.perf_counter()
            time.sleep(rest)
            used, rested = node.cpu() - used, time.perf_counter() - started
            told = [clients.publish(node.port) for _ in range(publications)]
            shared, descriptors = node.proportional(), node.descriptors()
            node.check_same()
        except Missing as error:
            raise Missing(f"{error}\nthe server said:\n{node.words()}") from None
        return ManyFigures(
            count=count,
            workers=workers,
            clients=len(clients.pipes),
            opening=opening,
            pss_mib=shared / 2**20,
            resident_mib=node.resident() / 2**20,
            kib_each=(shared - before) / count / 1024,
            cpu_at_rest=used / rested * 100,
            rest=rest,
            least_descriptors=min(descriptors),
            most_descriptors=max(descriptors),
            heard_first=median(heard[0] for heard in told),
            heard_p50=median(heard[count // 2] for heard in told),
            heard_p99=median(heard[count * 99 // 100] for heard in told),
            heard_by_all=median(heard[-1] for heard in told),
            heard_late=max(heard[-1] for heard in told),
        )


def end_by_signals() -> None:
    """End as with Ctrl-C when the system asks for it: so no process is left behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
