"""Probers that a test starts, and what they found."""

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

import attrs
import trio

from benchmarks.nemesis_fronts import ABOUT
from benchmarks.nemesis_history import share

PROBER: Final = Path(__file__).with_name("prober.py")
_names: Final = count()


@attrs.define(eq=False)
class Probe:
    """What one prober found so far."""

    file: Path
    began: float = attrs.field(factory=time.monotonic)

    def samples(self, since: float = 0.0, until: float = 1e12) -> list[tuple[float, int]]:
        """Seconds and status of every request that was under way between two times."""
        found = []
        *whole, _ = self.file.read_text().split("\n")  # the last line may be half written
        for line in whole:
            at, seconds, status = line.split()
            if float(at) + float(seconds) >= since and float(at) <= until:
                found.append((float(seconds), int(status)))
        return found

    def seconds(self, since: float = 0.0, until: float = 1e12) -> list[float]:
        """How long the answers took, sorted."""
        return sorted(seconds for seconds, _ in self.samples(since, until))

    def p99(self, since: float = 0.0, until: float = 1e12) -> float:
        return share(self.seconds(since, until), 0.99)

    def wrong(self, since: float = 0.0, until: float = 1e12) -> list[int]:
        """Statuses other than 200; 0 for no answer, -1 for one with an error in it."""
        return [status for _, status in self.samples(since, until) if status != 200]

    async def wait_samples(self, more: int) -> None:
        """Wait for so many more answers, but not for ever."""
        wanted = len(self.samples()) + more
        with trio.move_on_after(30):
            while len(self.samples()) < wanted:  # noqa: ASYNC110 -- no event tells what another process writes
                await trio.sleep(0.02)


def call_of(tool: str) -> str:
    """A modern call of *tool*, as a prober sends it."""
    params = {"name": tool, "arguments": {"key": "probe"}, "_meta": ABOUT}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, separators=(",", ":"))


@asynccontextmanager
async def probing(folder: Path, url: str, *, tool: str = "", pause: float = 0.005) -> AsyncIterator[Probe]:
    """A prober until the block ends: it calls *tool* at *url*, or gets *url* if no tool is named."""
    file = folder / f"probe-{next(_names)}"
    file.touch()
    words = ("POST", call_of(tool)) if tool else ("GET", "")
    process = await trio.lowlevel.open_process(
        [sys.executable, "-I", "-S", str(PROBER), url, *words, str(pause), str(file)], stdin=subprocess.DEVNULL
    )
    try:
        yield Probe(file)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):  # bounded: SIGKILL is not refused
            await process.wait()
