"""What peers can make callboard hold: the worst case of each thing that can grow, in resident memory.

    python -m benchmarks.memory [--only WORD] [--few N] [--many N] [--write]

For each thing a process of its own, with default limits, and a peer on loopback that makes it grow as far as it is
let: clients without a token at `callboard run`, one stdio backend at `callboard serve`. The peak is read every 20 ms,
and what is left two seconds after the peer has gone. At last the worst ones together, which must stay within what a
stranger and a backend may take in all. `--write` keeps the figures for the reference (docs/reference/limits.md).
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import psutil
import trio

from benchmarks import memory_broker, memory_clients
from benchmarks.memory_clients import Act, Aim, Did
from benchmarks.memory_table import BACKEND_MIB, FOUND, MIB, STRANGER_MIB, read
from tests.process import CALLBOARD
from tests.served import free_port, is_accepting

HERE: Final = Path(__file__).resolve().parent
START_TIME: Final = 60.0
ACT_TIME: Final = 90.0
"""Seconds for one act. Then it is measured as far as it came."""
REST: Final = 2.0
WORST: Final = ("events", "followed", "parked", "replay", "sessions", "requests", "outboxes", "bodies")
"""What strangers do at the same time, at last: all that is large, what stays longest first; and all sessions there are,
after those that need one."""
WORST_OF_BACKENDS: Final = ("results", "questions", "updates")


@attrs.frozen
class Weight:
    """MiB by which a process grew: at the most, and when the peer had gone."""

    peak: float
    left: float
    did: str
    each: float = 0.0
    """KiB of one, if they were many and all alike."""

    def line(self, key: str) -> str:
        return f"{key:14} {self.peak:8.1f} {self.left:8.1f}  {self.did}"


@asynccontextmanager
async def running(command: Sequence[str]) -> AsyncIterator[tuple[psutil.Process, int]]:
    """A server that accepts, until the block ends; and its port."""
    port = free_port()
    place = f"127.0.0.1:{port}"
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: ASYNC220 -- it does not wait for the process
            [*command, "--http", place, "--ws", place],
            cwd=HERE.parent,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            await _wait_accepting(port)
            yield psutil.Process(process.pid), port
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # nothing in it is worth a farewell
            process.wait()


async def _wait_accepting(port: int) -> None:
    with trio.fail_after(START_TIME):
        while True:
            if is_accepting(port):
                return
            await trio.sleep(0.02)  # no event tells when another process listens


async def weigh(command: Sequence[str], acts: Sequence[Act], few: int, many: int, rest: float = REST) -> Weight:
    """Do all *acts* to one process, and read its memory meanwhile."""
    async with running(command) as (process, port):
        before = peak = process.memory_info().rss

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, process.memory_info().rss)
                await trio.sleep(0.02)

        did: list[Did] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            async with AsyncExitStack() as stack:
                aim = Aim(f"http://127.0.0.1:{port}/mcp", f"ws://127.0.0.1:{port}/mcp", stack, few, many)
                with trio.move_on_after(ACT_TIME):
                    for act in acts:
                        did.append(await act(aim))  # noqa: PERF401 -- what was done stays if the rest takes too long
                await trio.sleep(0.5)
            await trio.sleep(rest)
            nursery.cancel_scope.cancel()
        left = process.memory_info().rss
    words = "; ".join(one.words for one in did) or f"not done in {ACT_TIME:g} s"
    count = did[0].count if len(did) == 1 else 0
    each = (peak - before) / 1024 / count if count else 0.0
    return Weight(round((peak - before) / MIB, 1), round((left - before) / MIB, 1), words, round(each, 1))


def hosted() -> list[str]:
    return [*CALLBOARD, "run", str(HERE / "memory_app.py")]


def brokered(folder: Path, how: str = "") -> list[str]:
    config = folder / "servers.json"
    entry = {"command": sys.executable, "args": ["-I", "-S", str(HERE / "memory_backend.py"), how]}
    config.write_text(json.dumps({"mcpServers": {"b0": entry}}))
    return [*CALLBOARD, "serve", str(config)]


def keep(key: str, weight: Weight) -> None:
    """Keep a figure for the reference, beside those that are there."""
    FOUND.write_text(json.dumps({**read(), key: attrs.asdict(weight)}, indent=2) + "\n")


async def measure(only: Sequence[str], few: int, many: int, *, writes: bool) -> dict[str, Weight]:
    """Everything, or what is named."""
    found: dict[str, Weight] = {}

    async def take(key: str, command: list[str], acts: Mapping[str, Act], names: Sequence[str]) -> None:
        if not only or key in only:
            found[key] = await weigh(command, [acts[name] for name in names], few, many)
            print(found[key].line(key), flush=True)
            if writes:
                keep(key, found[key])

    for key in memory_clients.ACTS:
        await take(key, hosted(), memory_clients.ACTS, [key])
    await take("strangers", hosted(), memory_clients.ACTS, WORST)
    with tempfile.TemporaryDirectory() as folder:
        for key in memory_broker.ACTS:
            await take(key, brokered(Path(folder), key), memory_broker.ACTS, [key])
        await take("backend", brokered(Path(folder), "lists"), memory_broker.ACTS, WORST_OF_BACKENDS)
    return found


def verdicts(found: Mapping[str, Weight]) -> list[str]:
    told = []
    for key, most in (("strangers", STRANGER_MIB), ("backend", BACKEND_MIB)):
        if key in found:
            held = "kept" if found[key].peak <= most else "NOT kept"
            told.append(f"promise 26: {key} together took {found[key].peak:.0f} MiB (wanted: <= {most} MiB), {held}")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="this thing only; may be repeated")
    parser.add_argument("--few", type=int, default=150, help="large things that are tried (default 150)")
    parser.add_argument("--many", type=int, default=5_000, help="small things that are tried (default 5,000)")
    parser.add_argument("--write", action="store_true", help="keep the figures for the reference")
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{'thing':14} {'peak MiB':>8} {'after':>8}")
    found = trio.run(partial(measure, given.only, given.few, given.many, writes=given.write))
    print(*verdicts(found), sep="\n")
    return any("NOT" in line for line in verdicts(found))


if __name__ == "__main__":
    sys.exit(main())
