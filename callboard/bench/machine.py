"""CPU and memory of the processes of a run, from /proc."""

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

PROC: Final = Path("/proc")


def _family(pid: int) -> Iterator[int]:
    """A process and all that it has started: a launcher is not the server."""
    yield pid
    with suppress(OSError, ValueError):
        for thread in (PROC / str(pid) / "task").iterdir():  # a child belongs to the thread that started it
            for child in (thread / "children").read_text().split():
                yield from _family(int(child))


def memory_of(pids: Collection[int]) -> int | None:
    """Bytes that these and their children have in memory; None where that cannot be known."""
    found: int | None = None
    for root in pids:
        for pid in _family(root):
            with suppress(OSError, ValueError, IndexError):
                pages = int((PROC / str(pid) / "statm").read_text().split()[1])
                found = (found or 0) + pages * os.sysconf("SC_PAGE_SIZE")
    return found


def seconds_of(pids: Collection[int]) -> float | None:
    """Seconds of a core that these and their children have used; None where that cannot be known."""
    found: float | None = None
    for root in pids:
        for pid in _family(root):
            with suppress(OSError, ValueError, IndexError):
                after_name = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
                ticks = int(after_name[11]) + int(after_name[12])  # utime and stime, as proc(5) numbers them
                found = (found or 0.0) + ticks / os.sysconf("SC_CLK_TCK")
    return found


@attrs.define(eq=False)
class Watch:
    """CPU used since `begin`, by this process and by the server, and the server's highest memory use."""

    pids: Collection[int]
    rss: int | None = None
    _own: float = attrs.field(factory=time.process_time, init=False)
    _server: float | None = attrs.field(default=None, init=False)
    _wall: float = attrs.field(factory=time.perf_counter, init=False)
    own_cpu: float = attrs.field(default=0.0, init=False)
    """Of one core."""
    server_cpu: float | None = attrs.field(default=None, init=False)
    """In cores: a server may use several."""

    def begin(self) -> None:
        self._own, self._wall, self._server = time.process_time(), time.perf_counter(), seconds_of(self.pids)

    def look(self) -> None:
        """Note what has been used up to now."""
        wall = time.perf_counter() - self._wall
        if wall <= 0:
            return
        self.own_cpu = (time.process_time() - self._own) / wall
        used = seconds_of(self.pids)
        if used is not None and self._server is not None:
            self.server_cpu = max(0.0, used - self._server) / wall
        now = memory_of(self.pids)
        self.rss = now if self.rss is None else max(self.rss, now or 0)
