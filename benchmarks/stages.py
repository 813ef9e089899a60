"""Where the time of a call goes, by stage: at a server, at a broker in front of HTTP and stdio, and at a client.

    python -m benchmarks.stages [--seconds 10] [--connections 32] [--json FILE]

The program under load is interrupted by a timer of its own CPU time, and where it was then is counted
(`stages_worker.py`). The share of a stage is that of its samples; its microseconds are this share of the CPU time of
one call. Looking costs little: some hundred short interruptions a second.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from benchmarks.broker_contenders import Backends, backend_over_http
from benchmarks.growth import tried
from benchmarks.hosting_calls import tool_call
from benchmarks.hosting_load import NO_WRK, WRK, Load, beside, write_calls
from benchmarks.hosting_servers import Contender, Running, callboard, cores, moved, running
from benchmarks.measure import add_json, write_json
from benchmarks.peers import HERE

TELL_TIME: Final = 10.0
"""Seconds for the worker to write what it counted."""

CALLS: Final = 2500
"""Of a client, for each second that it should take; twice as many at once."""

CLIENT_TIME: Final = 300
"""Seconds that a client may take."""


@attrs.frozen
class Program:
    """What is looked at: the words after `callboard`, and the tool that is called."""

    name: str
    words: list[str]
    tool: str


@attrs.frozen
class Stages:
    """Of one program: calls a second, CPU of one call in microseconds, and samples by stage."""

    name: str
    rate: float
    cpu: float
    by_kernel: float | None
    """Of this, which share was the kernel's. A client is not asked: its start would be in it."""
    counted: dict[str, int]

    def lines(self) -> list[str]:
        whole = sum(self.counted.values())
        kernel = "" if self.by_kernel is None else f" ({self.by_kernel:.0%} the kernel's)"
        each = f"{self.cpu:.0f} us of CPU each{kernel}"
        head = f"{self.name}: {self.rate:.0f} calls/s, {each}, {whole} samples"
        rows = sorted(self.counted.items(), key=lambda pair: -pair[1])
        return [head, *(f"  {name:42} {n / whole:6.1%} {n / whole * self.cpu:8.1f} us" for name, n in rows)]


@contextmanager
def watched(program: Program, file: Path) -> Iterator[Running]:
    """*program* at work, with its worker around it."""

    def command(port: int) -> list[str]:
        worker = [sys.executable, "-m", "benchmarks.stages_worker", str(file)]
        return [*worker, "callboard", *program.words, "--http", str(port), "--json"]

    with running(Contender(program.name, command)) as server:
        yield server


def measure(load: Load, program: Program, folder: Path, *, connections: int, seconds: float) -> Stages:
    """Look at *program* for some seconds of load, after one that is not looked at."""
    file = folder / f"{program.tool}.json"
    with watched(program, file) as server:
        call = tried(server, tool_call(program.tool, session=None, is_streamed=False))
        calls = write_calls(Path(tempfile.mkdtemp(dir=folder)) / "calls", [call])
        load.run(server, calls, connections=connections, seconds=1)
        server.process.send_signal(signal.SIGUSR1)
        sample = load.run(server, calls, connections=connections, seconds=seconds)
        server.process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + TELL_TIME
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)  # no event tells when another process has written
        told = json.loads(file.read_text())
        file.unlink()
    return Stages(
        program.name, sample.rate, sample.cpu, told["system"] / (told["user"] + told["system"]), told["counted"]
    )


def measure_client(name: str, target: Sequence[str], at_once: int, file: Path, *, seconds: float) -> Stages:
    """Look at callboard's client, as `client.py` runs it. It tells what it counted when it ends."""
    worker = [sys.executable, "-m", "benchmarks.stages_worker", str(file), "benchmarks.client_ours"]
    calls = int(seconds * (CALLS if at_once == 1 else 2 * CALLS))
    said = json.loads(beside([*worker, str(calls), str(at_once), *target], CLIENT_TIME).splitlines()[-1])
    told = json.loads(file.read_text())
    file.unlink()
    return Stages(name, 1 / said["wall"], said["cpu"] * 1e6, None, told["counted"])


def clients(port: int, folder: Path, seconds: float) -> Iterator[Stages]:
    """Over HTTP and stdio, one call at a time and 32 at once."""
    core, _ = cores()
    program = [sys.executable, "-m", "callboard", "run", str(HERE / "apps" / "hosting_app.py")]
    for way, target in {"HTTP": [f"http://127.0.0.1:{port}/mcp"], "stdio": moved(core, program)}.items():
        for at_once in (1, 32):
            name = f"a client, {way}, {at_once} at once"
            yield measure_client(name, target, at_once, folder / "client.json", seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=32)
    add_json(parser)
    options = parser.parse_args()
    if WRK is None:
        print(NO_WRK)
    load, found = Load(is_wrk=WRK is not None), []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        behind = stack.enter_context(backend_over_http())
        by_http, by_stdio = Backends("http", 1, behind.port), Backends("stdio", 1)
        programs = [
            Program("a server", ["run", str(HERE / "apps" / "hosting_app.py")], "noop"),
            Program("a broker, HTTP behind", ["serve", str(by_http.write(folder))], "b0__noop"),
            Program("a broker, stdio behind", ["serve", str(by_stdio.write(folder))], "b0__noop"),
        ]
        for program in programs:
            connections, seconds = options.connections, options.seconds
            found.append(measure(load, program, folder, connections=connections, seconds=seconds))
            print("\n".join(found[-1].lines()), flush=True)
        with running(callboard) as server:
            for stages in clients(server.port, folder, options.seconds):
                found.append(stages)
                print("\n".join(stages.lines()), flush=True)
    write_json(options.json, [attrs.asdict(stages) for stages in found])


if __name__ == "__main__":
    main()
