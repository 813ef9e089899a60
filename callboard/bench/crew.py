"""Several processes that make load together: each does its share, and says every second what it has counted.

Each is told what to do on its standard input, where also secrets may stand, and ends when that ends: so none is left
behind, however its parent ends. POSIX; elsewhere a process is ended without its children.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import trio

from callboard.bench.engine import LoadPlan
from callboard.bench.tally import Tally
from callboard.bench.work import Work
from callboard.codecs.lines import LineDecoder
from callboard.errors import ConnectionLost, PeerError
from callboard.supervisor.groups import first_leaf

HEAD_START: Final = 0.2
"""Seconds from the moment at which all are ready to the one at which all begin: each has heard of it by then."""

GRACE: Final = 6.0
"""Seconds in which a process ends when it is told to, together with the servers that it has started."""

LAG: Final = 0.1
"""Seconds until what all have counted in a second has been heard."""

MAX_REPORT: Final = 64 * 1024 * 1024
"""Bytes of one report. A second's takes some kilobytes."""


class Met(msgspec.Struct, tag="met"):
    """All sessions are open, and each request was tried."""

    revision: str
    server: str
    is_fast: bool
    pids: list[int]


class Counted(msgspec.Struct, tag="counted"):
    """Counts since the last report."""

    tally: dict[str, Any]
    in_flight: int
    cpu: float
    pids: list[int]


class Failed(msgspec.Struct, tag="failed"):
    """It cannot be done. *code* is the exit code that a command would have."""

    code: int
    text: str
    said: list[str]


class Done(msgspec.Struct, tag="done"):
    """The last report: for how many seconds was counted."""

    seconds: float = 0.0


Report: TypeAlias = Met | Counted | Failed | Done
read_report: Final[Callable[[bytes], Report]] = msgspec.json.Decoder(Report).decode


class WorkerLost(ConnectionLost):
    """A process that made load is gone, and with it what it had counted."""


@attrs.define(eq=False)
class Crew:
    """The processes of one run, which can be looked at and stopped as if it were one."""

    plan: LoadPlan
    work: Work
    command: Sequence[str]
    """Starts one."""
    orders: Sequence[bytes]
    """The first message to each worker, on one line."""
    on_met: Callable[[Met], None]
    failure_of: Callable[[Failed], Exception]
    pids: set[int]
    """Of the servers that they have started."""
    tally: Tally = attrs.field(factory=Tally, init=False)
    started: float = attrs.field(default=0.0, init=False)
    until: float = attrs.field(default=0.0, init=False)
    begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    lag: float = attrs.field(default=LAG, init=False)
    _in_flight: dict[int, int] = attrs.field(factory=dict, init=False)
    _cpu: dict[int, float] = attrs.field(factory=dict, init=False)
    _pids: dict[int, set[int]] = attrs.field(factory=dict, init=False)
    _ready: set[int] = attrs.field(factory=set, init=False)
    _stopped: trio.Event = attrs.field(factory=trio.Event, init=False)
    _whole: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _begin: bytes = attrs.field(default=b"", init=False)
    _seconds: float = attrs.field(default=0.0, init=False)

    async def run(self) -> float:
        """As `Drive.run`. Raises what keeps one of them from beginning, and `WorkerLost`."""
        failure: Exception | None = None
        with self._whole:
            try:
                async with trio.open_nursery() as nursery:
                    for number, order in enumerate(self.orders):
                        nursery.start_soon(self._employ, number, order)
            except* Exception as group:  # as `failure_of` has it
                failure = first_leaf(group)
        if failure is not None and not self._stopped.is_set():
            raise failure
        if self.plan.requests is not None and self._seconds:
            self.until = min(self.until, self.started + self._seconds)  # the slowest of them was done then
        return self.elapsed

    def stop(self) -> None:
        """End it now. What was counted stays; what the others say last is waited for."""
        self._stopped.set()
        self.until = min(self.until, trio.current_time())
        if not self.begun.is_set():
            self._whole.cancel()

    @property
    def elapsed(self) -> float:
        return max(0.0, min(trio.current_time(), self.until) - self.started) if self.started else 0.0

    @property
    def in_flight(self) -> int:
        return sum(self._in_flight.values())

    @property
    def others_cpu(self) -> float:
        """Of one core: that of the process which used most."""
        return max(self._cpu.values(), default=0.0)

    @property
    def figures(self) -> Mapping[str, float]:
        return {name: float(count) for name, count in self.tally.counts.items()}

    async def _employ(self, number: int, order: bytes) -> None:
        process = await trio.lowlevel.open_process(
            list(self.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=os.name == "posix",  # Ctrl-C is for this process alone, which then tells the others
        )
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._instruct, process, order)
                if not await self._listen(number, process):
                    raise WorkerLost(f"a load generator process ended too early ({await _how(process)})")
                nursery.cancel_scope.cancel()
        finally:
            self._in_flight.pop(number, None)
            await _end(process)

    async def _listen(self, number: int, process: trio.Process) -> bool:
        """Hear all that it has to say. Whether that was all."""
        decoder, is_done = LineDecoder(MAX_REPORT), False
        if process.stdout is not None:
            async for data in process.stdout:
                for line in decoder.feed(bytes(data)):
                    report = _report(line)
                    is_done = is_done or isinstance(report, Done)
                    self._hear(number, report)
        return is_done

    async def _instruct(self, process: trio.Process, order: bytes) -> None:
        """Say what to do, when to begin, and when it is enough."""
        if process.stdin is None:
            raise WorkerLost("a load generator process has no pipes")
        try:
            await process.stdin.send_all(order + b"\n")
            await self.begun.wait()
            await process.stdin.send_all(self._begin)
            await self._stopped.wait()
            await process.stdin.aclose()
        except trio.BrokenResourceError:
            return  # the reader hears it

    def _hear(self, number: int, report: Report) -> None:
        match report:
            case Met():
                self.on_met(report)
                self._note(number, report.pids)
                self._ready.add(number)
                if len(self._ready) == len(self.orders):
                    self._start()
            case Counted():
                self.tally.add(Tally.of_json(report.tally))
                self._in_flight[number], self._cpu[number] = report.in_flight, report.cpu
                self._note(number, report.pids)
            case Failed():
                raise self.failure_of(report)
            case Done():
                self._in_flight.pop(number, None)
                self._seconds = max(self._seconds, report.seconds)

    def _note(self, number: int, pids: Sequence[int]) -> None:
        """The processes of the server, as far as the process with this id has started them."""
        self.pids -= self._pids.get(number, set())
        self._pids[number] = set(pids)
        self.pids |= self._pids[number]

    def _start(self) -> None:
        # A clock that all processes of a machine share.
        self._begin = b"%f\n" % (time.monotonic() + HEAD_START)
        self.started = trio.current_time() + HEAD_START + self.plan.warmup
        self.until = self.started + self.plan.duration
        self.begun.set()


def _report(line: bytes | PeerError) -> Report:
    try:
        if isinstance(line, bytes):
            return read_report(line)
    except msgspec.MsgspecError:
        pass
    raise WorkerLost("a load generator process sent an invalid message")


async def _how(process: trio.Process) -> str:
    with trio.move_on_after(GRACE):
        code = await process.wait()
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return "it closed its output"


async def _end(process: trio.Process) -> None:
    """Tell it to, and make it."""
    with trio.CancelScope(shield=True):  # bounded: a grace, then SIGKILL
        if process.stdin is not None:
            await process.stdin.aclose()
        with trio.move_on_after(GRACE):
            await process.wait()
        if process.returncode is None:
            process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
            await process.wait()
        if process.stdout is not None:
            await process.stdout.aclose()
