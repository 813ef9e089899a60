"""One process that makes load, here or at the other end of a command like ssh: its pipes, its end, and its time limits.

It is told what to do on its standard input, where also secrets may stand, and ends when that ends: so none is left
behind, however its parent ends. POSIX; elsewhere a process is ended without its children.
"""

import math
import os
import signal
import subprocess
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

import attrs
import trio

from callboard._version import __version__
from callboard.bench.reports import MAX_REPORT, MAX_SAID, BadReport, Done, Hello, Report, read_report, words
from callboard.codecs.lines import LineDecoder
from callboard.errors import CallboardError, ConnectionLost, PeerError

GRACE: Final = 6.0
"""Seconds in which a process ends when it is told to, together with the servers that it has started."""

GREETING: Final = 60.0
"""Seconds until a generator says that it is there: a connection, a login, and the start of Python on a busy machine."""

OPENING: Final = 600.0
"""Seconds in which it must open its sessions: thousands take minutes."""

SILENCE: Final = 20.0
"""Seconds without a report of what should come every second. A network may be away for some."""

LAST_WORDS: Final = 10.0
"""Seconds in which it tells the rest when it is told to end."""

MAX_STDERR: Final = 1024 * 1024
"""Bytes of standard error that are read of a generator. Then it has to wait, and ends by one of the time limits."""


class WorkerLost(ConnectionLost):
    """A process that made load is gone, and with it what it had counted."""


class OtherVersion(CallboardError):
    """A generator has another version of callboard: their reports, and what they measure, may differ."""


class Crewed(Protocol):
    """Those that a process works for."""

    begun: trio.Event
    stopped: trio.Event

    @property
    def when(self) -> bytes:
        """When to begin, as a process is told once all are ready."""

    def hear(self, member: "CrewMember", report: Report) -> None:
        """A report has come. Raises what ends the run, or `WorkerLost`."""


@attrs.define(eq=False)
class CrewMember:
    """A process, and what it told last."""

    command: Sequence[str]
    order: bytes = attrs.field(repr=False)
    name: str = ""
    """How it is called in messages, if it is a generator that may be on another machine."""
    in_flight: int = attrs.field(default=0, init=False)
    cpu: float = attrs.field(default=0.0, init=False)
    pids: set[int] = attrs.field(factory=set, init=False)
    is_ready: bool = attrs.field(default=False, init=False)
    reports: int = attrs.field(default=0, init=False)
    _greeted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _patience: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _heard_out: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Its standard error has ended, or is too long."""
    _said: deque[str] = attrs.field(factory=lambda: deque(maxlen=MAX_SAID), init=False)

    def wait_at_most(self, seconds: float) -> None:
        """From now on so long for its next report."""
        self._patience.deadline = trio.current_time() + seconds

    async def run(self, crew: Crewed) -> None:
        """Have it work until it is done. Raises `WorkerLost`, `OtherVersion`, and what `Crewed.hear` raises."""
        process = await self._start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._instruct, process, crew)
                if process.stderr is not None:
                    nursery.start_soon(self._hear_complaints, process.stderr)
                await self._listen(process, crew)
                nursery.cancel_scope.cancel()
        finally:
            self.in_flight = 0
            await _end(process)

    async def _start(self) -> trio.Process:
        open_process = partial(
            trio.lowlevel.open_process,
            list(self.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What another machine says is not shown as it comes: it may be without end, or move the cursor.
            stderr=subprocess.PIPE if self.name else None,
        )
        try:
            # Ctrl-C is for the parent alone, which then tells the others.
            return await open_process(start_new_session=os.name == "posix")
        except OSError as error:
            raise self.lost(f"cannot be started: {error.strerror or error}: {self.command[0]}") from None

    async def _listen(self, process: trio.Process, crew: Crewed) -> None:
        """Hear all that it has to say."""
        decoder, is_done = LineDecoder(MAX_REPORT), False
        self.wait_at_most(GREETING)
        with self._patience:
            if process.stdout is not None:
                async for data in process.stdout:
                    for line in decoder.feed(bytes(data)):
                        is_done = self._hear(line, crew) or is_done
        if self._patience.cancelled_caught:
            raise self.lost("sent no report in time")
        if not is_done:
            how = await _how(process)
            with trio.move_on_after(GRACE if process.stderr is not None else 0):
                await self._heard_out.wait()
            raise self.lost(f"ended too early ({how})")

    def _hear(self, line: bytes | PeerError, crew: Crewed) -> bool:
        """Whether that was the last one."""
        try:
            report = read_report(line)
            if self._greeted.is_set():
                crew.hear(self, report)
                return isinstance(report, Done)
        except BadReport:
            raise self.lost("sent an invalid message") from None
        if not isinstance(report, Hello):
            raise self.lost("sent an invalid message")
        if report.version != __version__:
            where = self.name or "a load generator process"
            raise OtherVersion(f"{where} has callboard {report.version}, and this is {__version__}: they must be equal")
        self._greeted.set()
        self.wait_at_most(OPENING)
        return False

    async def _hear_complaints(self, stream: trio.abc.ReceiveStream) -> None:
        decoder, total = LineDecoder(MAX_STDERR), 0
        async for data in stream:
            total += len(data)
            for line in decoder.feed(bytes(data)):
                if isinstance(line, bytes) and line.strip():
                    self._said.append(words(line.decode(errors="replace")))
            if total > MAX_STDERR:
                break
        self._heard_out.set()

    async def _instruct(self, process: trio.Process, crew: Crewed) -> None:
        """Say what to do, when to begin, and when it is enough."""
        if process.stdin is None:
            raise WorkerLost("a load generator process has no pipes")
        await self._greeted.wait()
        try:
            await process.stdin.send_all(self.order + b"\n")
            await crew.begun.wait()
            await process.stdin.send_all(crew.when)
            await crew.stopped.wait()
            await process.stdin.aclose()
        except trio.BrokenResourceError:
            return  # the reader hears it

    def lost(self, why: str) -> WorkerLost:
        """What is raised if it is gone, with what it said last on standard error."""
        said = f": {self._said[-1]}" if self._said else ""
        return WorkerLost(f"{self.name or 'a load generator process'} {why}{said}")

    def be_patient(self) -> None:
        """It is ready, and waits for the others."""
        self._patience.deadline = math.inf


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
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()
