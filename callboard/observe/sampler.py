"""Takes a figure of everything each second, and looks ten times a second how late the event loop is."""

import os
import resource
import time
from collections import deque
from pathlib import Path
from typing import Final, Never

import attrs
import trio

from callboard.actors.server.host import Host
from callboard.observe.durations import Durations
from callboard.observe.history import History
from callboard.observe.journal import Journal
from callboard.server.served import Hosted
from callboard.supervisor import Actor

EVERY: Final = 1.0
LOOK: Final = 0.1
LOOKS: Final = round(EVERY / LOOK)

WINDOWS: Final = (10, 60)
"""Seconds for which the latest latency is told."""


@attrs.define(eq=False)
class Sampler(Actor[Never]):
    """Fills the history of one process."""

    mailbox = None

    host: Host
    server: Hosted
    journal: Journal
    history: History = attrs.field(factory=History, init=False)
    lag: Durations = attrs.field(factory=Durations, init=False)
    """How late the loop was: what says that this process is the bottleneck."""
    _lag: float = attrs.field(default=0.0, init=False)  # the most of this second
    _before: deque[list[int]] = attrs.field(factory=lambda: deque(maxlen=max(WINDOWS)), init=False)
    _overhead: list[int] = attrs.field(init=False)
    _errors: int = attrs.field(default=0, init=False)
    _cpu: float = attrs.field(default=0.0, init=False)
    _at: float = attrs.field(default=0.0, init=False)

    async def run(self) -> None:
        self._overhead, self._errors = list(self.journal.overhead.counts), self.journal.errors()
        self._before.append(self.journal.total().counts)
        self._cpu, self._at = cpu_seconds(), time.perf_counter()
        while True:
            for _ in range(LOOKS):
                due = trio.current_time() + LOOK
                await trio.sleep_until(due)
                late = trio.current_time() - due
                self.lag.add(late)
                self._lag = max(self._lag, late)
            self._sample()

    def _sample(self) -> None:
        journal, host = self.journal, self.host
        total, errors = journal.total(), journal.errors()
        second = total.since(self._before[-1])
        overhead = journal.overhead.since(self._overhead)
        cpu, now = cpu_seconds(), time.perf_counter()
        behind = self.server.behind()
        self.history.add(
            {
                "requests": second.count,
                "errors": errors - self._errors,
                "in_flight": host.in_flight.total,
                "parked": len(host.parking),
                "clients": host.sessions.total,
                "servers_up": None if behind is None else sum(one.is_up for one in behind.servers),
                "p50": second.quantile(0.5),
                "p99": second.quantile(0.99),
                "overhead_p99": overhead.quantile(0.99),
                "loop_lag": self._lag,
                "resident": resident_bytes(),
                "cpu": (cpu - self._cpu) / (now - self._at),
            }
        )
        self._before.append(total.counts)
        self._overhead, self._errors = list(journal.overhead.counts), errors
        self._cpu, self._at, self._lag = cpu, now, 0.0

    def recent(self, seconds: int) -> Durations:
        """The requests of the last *seconds*."""
        before = self._before[-min(seconds, len(self._before))] if self._before else Durations().counts
        return self.journal.total().since(before)


def cpu_seconds() -> float:
    """CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes(pid: int | str = "self") -> int:
    """Memory of a process, where the system tells it; else 0."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


def cpu_of(pid: int) -> float:
    """CPU time of another process, where the system tells it; else 0."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
