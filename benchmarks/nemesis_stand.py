"""A broker and its backends as processes of their own, on this machine only, and what can be done to them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
import psutil
import trio

from tests.served import is_accepting

ROOT: Final = Path(__file__).resolve().parents[1]
BACKEND: Final = ROOT / "tests/soak/backend.py"

START_TIME: Final = 30.0
"""Seconds until the broker accepts. It takes one, on a machine that does nothing else."""
STOP_TIME: Final = 20.0
"""Seconds from SIGTERM to the end, with nothing in flight."""

QUICK: Final = {"times": 1_000_000, "per": 1, "first": 0.01, "most": 0.05}
"""Restarts that never give up: the faults are the test's own doing."""


_CRASH: Final = re.compile(r"^Traceback|request_failed|escalated", re.MULTILINE)
"""What stands in the log if something broke in the broker itself."""


NOTHING_SAID: Final[Mapping[str, Any]] = {}


class StandFailed(AssertionError):
    """The broker did not start, or did not end as it should; its own words are in the message."""


@attrs.define(eq=False)
class Stand:
    """A running broker. Only what it started is ever sent a signal."""

    process: trio.Process
    folder: Path
    names: Sequence[str]
    http: str
    ws: str
    status: int | None = None
    expected: int = 0
    """The exit status that it ends with; another one for a broker that the test kills."""
    _read: dict[str, int] = attrs.field(factory=dict, init=False)
    _pids: dict[str, list[int]] = attrs.field(factory=dict, init=False)

    def journal(self, name: str) -> Path:
        return self.folder / f"{name}.journal"

    def pids(self, name: str) -> list[int]:
        """The processes of a backend that live, the latest last, by what they wrote down when they started."""
        journal, known = self.journal(name), self._pids.setdefault(name, [])
        if journal.exists():
            with journal.open("rb") as file:
                file.seek(self._read.get(name, 0))
                for line in file:
                    if line.endswith(b"\n"):
                        self._read[name] = self._read.get(name, 0) + len(line)
                        known += [fact["started"]] if "started" in (fact := json.loads(line)) else []
        mine = {pid for pid, status in self._children().items() if status != psutil.STATUS_ZOMBIE}
        known[:] = [pid for pid in known if pid in mine]
        return list(known)

    def facts(self, name: str) -> list[dict[str, Any]]:
        """All that a backend wrote down. A line that it is still writing does not count."""
        written, _, _ = self.journal(name).read_text().rpartition("\n")
        return [json.loads(line) for line in written.splitlines()]

    def signal(self, name: str, number: int = signal.SIGKILL) -> float:
        """Send a signal to a backend. Returns when."""
        at = time.monotonic()
        for pid in self.pids(name):
            with suppress(ProcessLookupError):  # it was about to end by itself
                os.kill(pid, number)
        return at

    def state(self) -> dict[str, float]:
        """What the broker's process holds."""
        me = psutil.Process(self.process.pid)
        children = self._children()
        zombies = sum(status == psutil.STATUS_ZOMBIE for status in children.values())
        return {
            "descriptors": me.num_fds(),
            "memory": me.memory_info().rss,
            "threads": me.num_threads(),
            "children": len(children) - zombies,
            "zombies": zombies,
        }

    async def wait_state(self, wanted: Mapping[str, float], within: float) -> dict[str, float]:
        """Wait until it holds no more than *wanted*, memory aside, but not for long: what is ended is not gone at
        once. Returns what it holds then."""
        with trio.move_on_after(within):
            while any(value > wanted[kind] for kind, value in self.state().items() if kind != "memory"):  # noqa: ASYNC110
                await trio.sleep(0.05)  # no event tells what another process holds
        return self.state()

    def _children(self) -> dict[int, str]:
        """The processes below the broker's, and how each of them is. Some end while they are looked at."""
        found: dict[int, str] = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found[child.pid] = child.status()
        return found

    @property
    def words(self) -> str:
        return (self.folder / "said").read_text(errors="replace")


def entry(name: str, folder: Path, *flags: str, **settings: Any) -> dict[str, Any]:
    """A backend as the broker's configuration has it."""
    command = ["-I", "-S", str(BACKEND), name, str(folder / f"{name}.journal"), *flags]
    return {"command": sys.executable, "args": command, "callboard": {"restart": QUICK, **settings}}


@asynccontextmanager
async def standing(
    names: Sequence[str],
    *options: str,
    flags: Sequence[str] = (),
    settings: Mapping[str, Any] = NOTHING_SAID,
    stdio: bool = False,
    process: Mapping[str, Any] = NOTHING_SAID,
) -> AsyncIterator[Stand]:
    """A broker in front of backends by these names, until the block ends; *flags* and *settings* are theirs, *options*
    its own, *process* how it is started. With *stdio* it serves its pipes, too. Raises StandFailed."""
    with TemporaryDirectory(prefix="nemesis-") as made:
        folder = Path(made)
        servers = {name: entry(name, folder, *flags, **settings) for name in names}
        config = folder / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        port = _free_port()
        place = f"127.0.0.1:{port}"
        command = [sys.executable, "-m", "callboard", "serve", str(config), "--http", place, "--ws", place, *options]
        with (folder / "said").open("wb") as words:
            pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": words, "stderr": words}
            if stdio:
                pipes |= {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
                command.append("--stdio")
            more = {**pipes, **process}
            opened = await trio.lowlevel.open_process(command, cwd=ROOT, start_new_session=True, **more)
        stand = Stand(opened, folder, names, f"http://{place}/mcp", f"ws://{place}/mcp")
        try:
            await _wait_accepting(stand, port)
            yield stand
            await _end(stand)
        finally:
            await _leave_nothing(stand)


async def _wait_accepting(stand: Stand, port: int) -> None:
    with trio.move_on_after(START_TIME):
        while stand.process.poll() is None:
            if is_accepting(port):
                return
            await trio.sleep(0.02)  # no event tells when another process listens
    raise StandFailed(f"nothing listens (exit status {stand.process.poll()}):\n{stand.words}")


async def _end(stand: Stand) -> None:
    """End the broker as an operator does, unless that was done already."""
    if stand.process.poll() is None:
        stand.process.send_signal(signal.SIGTERM)
    with trio.move_on_after(STOP_TIME):
        stand.status = await stand.process.wait()
    if stand.status != stand.expected or _CRASH.search(stand.words):
        crash = _CRASH.search(stand.words)
        words = stand.words[-2000:] if crash is None else stand.words[max(0, crash.start() - 200) :][:4000]
        raise StandFailed(f"ended with status {stand.status}:\n{words}")


async def _leave_nothing(stand: Stand) -> None:
    children = stand._children() if stand.process.poll() is None else {}  # noqa: SLF001 -- its own module
    if stand.process.poll() is None:
        stand.process.kill()
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with trio.CancelScope(shield=True):  # bounded: SIGKILL is not refused
        await stand.process.wait()
        for stream in (stand.process.stdin, stand.process.stdout):
            if stream is not None:
                await stream.aclose()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
