"""The load of `hosting.py`: wrk where it is installed, else a generator of our own; on a core of its own."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.hosting_calls import MARK, WrongAnswer
from benchmarks.hosting_servers import Running, cores, pinned
from benchmarks.peers import HERE

WRK: Final = shutil.which("wrk")
NO_WRK: Final = "wrk is not installed (apt install wrk): a slower generator of our own takes its place"

PATIENCE: Final = 15
"""Seconds that an answer may take, and that a generator may stay beyond its time."""


def beside(command: Sequence[str], within: float) -> str:
    """Run *command* on the core that no server has, and return what it prints."""
    _, core = cores()
    ended = subprocess.run(
        command,
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        timeout=within,
        check=True,
        preexec_fn=pinned(core),
    )
    return ended.stdout


@attrs.frozen
class Sample:
    """What one run showed: calls per second, microseconds at the median and at the 99th percentile, CPU for each."""

    rate: float
    p50: float
    p99: float
    cpu: float


@attrs.frozen
class Load:
    """One way to put load on a server. Run with what each answer should hold, it looks at every one of them."""

    is_wrk: bool

    @property
    def name(self) -> str:
        return "wrk" if self.is_wrk else "the generator of this project"

    def run(self, server: Running, folder: Path, *, connections: int, seconds: float, expected: str = "") -> Sample:
        """Call what is in *folder*, over and over. Raises `WrongAnswer` unless every answer was a success."""
        before = server.cpu()
        found = self._generate(server.port, folder, connections, seconds, [expected] if expected else [])
        used = server.cpu() - before
        if found["refused"] or found["lost"] or found["wrong"] or not found["requests"]:
            raise WrongAnswer(f"{server.name}, {connections} connections: {found}")
        count = found["requests"]
        return Sample(count / found["seconds"], found["p50"], found["p99"], used / count * 1e6)

    def _generate(self, port: int, folder: Path, connections: int, seconds: float, expected: list[str]) -> Any:
        calls = [str(folder), str(len(list(folder.iterdir()))), MARK]
        if self.is_wrk:
            url, script = f"http://127.0.0.1:{port}/mcp", str(HERE / "hosting_wrk.lua")
            flags = ["-t1", f"-c{connections}", f"-d{math.ceil(seconds)}s", f"--timeout={PATIENCE}s", "-s", script]
            command = ["wrk", *flags, url, "--", *calls, *expected]
        else:
            module = [sys.executable, "-m", "benchmarks.hosting_generator"]
            command = [*module, str(port), *calls, str(connections), str(seconds), *expected]
        return json.loads(beside(command, seconds + PATIENCE).splitlines()[-1])


def write_calls(folder: Path, calls: Sequence[bytes]) -> Path:
    """Put *calls* where a generator finds them."""
    folder.mkdir()
    for number, call in enumerate(calls, 1):
        (folder / str(number)).write_bytes(call)
    return folder
