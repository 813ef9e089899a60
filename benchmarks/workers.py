"""What several workers cost and bring: one worker beside none and two, and a request that another worker answers.

    python -m benchmarks.workers [--nodes] [--rounds N] [--seconds S] [--json FILE]

An echo over HTTP kept alive. The CPU is that of all workers together, for each call: the generator shares the two cores
with them, so calls per second say little. *Half forwarded*: each connection uses sessions of both workers in turn.
*Forwarded*: each connection uses a session that the other worker has. What that adds is taken within a round.

With `--nodes`, the two workers are of two nodes of a cluster on this machine, which speak by TLS; needs redis-server.
"""

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

import attrs

from benchmarks.measure import verdict
from benchmarks.peers import HERE
from benchmarks.workers_cluster import flags_of_nodes

CONNECTIONS: Final = 32
VERSION: Final = "2025-06-18"
META: Final = "io.modelcontextprotocol/"
TEXT: Final = "It was the best "
EXPECTED: Final = f'"{TEXT}"'.encode()
APP: Final = HERE / "workers_app.py"
TARGETS: Final = {
    "`--workers 1`: CPU, times that without the flag": 1.02,
    "modern, two workers: CPU, times one": 1.15,
    "legacy, two workers, half forwarded: CPU, times one": 1.5,
    f"forwarded, {CONNECTIONS} connections: added CPU us": 40.0,
    "forwarded, 1 connection: added p50, ms": 0.25,
    "forwarded, 1 connection: added p99, ms": 1.0,
    "a worker at rest, MiB": 65.0,
    "the parent, MiB": 30.0,
}
"""At most, all of them."""
NODE_P50, NODE_P99, NODE_CPU = (
    "to another node, 1 connection: added p50, ms",
    "to another node, 1 connection: added p99, ms",
    f"to another node, {CONNECTIONS} connections: added CPU us",
)
NODE_TARGETS: Final = {NODE_P50: 0.4}
"""At most, beyond the network; the loopback's is counted in."""
KNOWN_WITHIN: Final = 10.0
"""Seconds for two nodes to know each other."""


@attrs.frozen
class Run:
    """What one run measured."""

    rate: float
    cpu: float
    """Microseconds of all workers, for each call."""
    p50: float
    p99: float
    """Milliseconds."""


@attrs.define(eq=False)
class Wire:
    """One connection."""

    bare: socket.socket
    port: int
    lines: bytes = b""
    """More headers of each request."""
    sent: float = 0.0

    @classmethod
    def open(cls, port: int, lines: bytes = b"") -> Self:
        bare = socket.create_connection(("127.0.0.1", port))
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(bare, port, lines)

    def request(self, message: dict[str, Any], session: str | None = None) -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode()
        head = (
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
            b"Accept: application/json, text/event-stream\r\n%b" % (self.port, self.lines)
        )
        if session is not None:
            head += b"Mcp-Session-Id: %b\r\nMCP-Protocol-Version: %b\r\n" % (session.encode(), VERSION.encode())
        elif message["method"] != "initialize":
            head += b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: %b\r\n" % (
                message["params"]["name"].encode()
            )
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def ask(self, request: bytes) -> tuple[dict[bytes, bytes], bytes]:
        """Send a request, and wait for its answer: a small one comes at once."""
        self.bare.sendall(request)
        return _read(self.bare.recv(65_536))

    def open_session(self) -> str:
        about = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
        headers, _ = self.ask(self.request({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}))
        session = headers[b"mcp-session-id"].decode()
        self.ask(self.request({"jsonrpc": "2.0", "method": "notifications/initialized"}, session))
        return session

    def call(self, session: str | None, tool: str = "echo") -> bytes:
        """The request of a call."""
        params: dict[str, Any] = {"name": tool, "arguments": {"text": TEXT} if tool == "echo" else {}}
        if session is None:
            params["_meta"] = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}
        return self.request({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, session)


def _read(data: bytes) -> tuple[dict[bytes, bytes], bytes]:
    top, _, body = data.partition(b"\r\n\r\n")
    lines = (line.partition(b": ") for line in top.split(b"\r\n")[1:])
    return {name.lower(): value for name, _, value in lines}, body


@attrs.define(eq=False)
class Crowd:
    """A server, its connections and its sessions by worker."""

    parent: int
    port: int
    wires: dict[int, list[Wire]] = attrs.field(factory=lambda: defaultdict(list))
    sessions: dict[int, list[str]] = attrs.field(factory=lambda: defaultdict(list))

    def fill(self, workers: int) -> None:
        """Open connections, with a session each, until every worker has enough."""
        while len(self.wires) < workers or min(map(len, self.wires.values())) < CONNECTIONS:
            wire = Wire.open(self.port)
            session = wire.open_session()
            _, body = wire.ask(wire.call(session, "where"))
            pid = int(json.loads(body)["result"]["content"][0]["text"])
            self.wires[pid].append(wire)
            self.sessions[pid].append(session)

    def cpu(self) -> float:
        return sum(map(_seconds, self.wires))

    def measure(self, wires: list[Wire], sessions: list[list[str | None]], seconds: float) -> Run:
        """Each of *wires* calls in its *sessions* by turns, one call after the other. As cheap as Python can: a
        generator that is slower than the workers would measure how they idle."""
        requests = {
            wire.bare.fileno(): (wire, cycle([wire.call(one) for one in mine]))
            for wire, mine in zip(wires, sessions, strict=True)
        }
        taken: list[float] = []
        with select.epoll() as ready:
            for descriptor in requests:
                ready.register(descriptor, select.EPOLLIN)
            end, before = time.perf_counter() + seconds, self.cpu()
            for wire, mine in requests.values():
                wire.sent = time.perf_counter()
                wire.bare.sendall(next(mine))
            under_way = len(requests)
            while under_way:
                for descriptor, _ in ready.poll():
                    wire, mine = requests[descriptor]
                    data = wire.bare.recv(65_536)
                    if EXPECTED not in data:
                        raise SystemExit(f"a wrong answer: {data!r}")
                    now = time.perf_counter()
                    taken.append(now - wire.sent)
                    if now < end:
                        wire.sent = now
                        wire.bare.sendall(next(mine))
                    else:
                        under_way -= 1
        cpu = (self.cpu() - before) / len(taken) * 1e6
        taken.sort()
        p50, p99 = taken[len(taken) // 2] * 1e3, taken[int(len(taken) * 0.99)] * 1e3
        return Run(len(taken) / seconds, cpu, p50, p99)


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _mebibytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def crowd(workers: int | None, *flags: str) -> Iterator[Crowd]:
    """A server with so many workers; None for one without the flag."""
    command = [sys.executable, "-m", "callboard", "run", str(APP), "--http", "0", "--json", *flags]
    command += [] if workers is None else ["--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield Crowd(process.pid, int(told["listening"][0]["url"].split(":")[2].split("/")[0]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def measure(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Every figure, one for each round."""
    found: dict[str, list[float]] = {what: [] for what in TARGETS}
    with crowd(None) as plain, crowd(1) as one, crowd(2) as two:
        found["the parent, MiB"].append(_mebibytes(two.parent))
        plain.fill(1)
        one.fill(1)
        two.fill(2)
        found["a worker at rest, MiB"] += [_mebibytes(pid) for pid in two.wires]
        (alone,), (first, second) = one.wires, two.wires
        half = CONNECTIONS // 2
        for _ in range(rounds):
            stateless: list[list[str | None]] = [[None]] * CONNECTIONS
            own: list[list[str | None]] = [[session] for session in one.sessions[alone][:CONNECTIONS]]
            both: list[list[str | None]] = [
                list(pair) for pair in zip(two.sessions[first][:CONNECTIONS], two.sessions[second], strict=False)
            ]
            mixed = two.wires[first][:half] + two.wires[second][:half]
            usual = plain.measure(plain.wires[plain.parent][:CONNECTIONS], stateless, seconds)
            single = one.measure(one.wires[alone][:CONNECTIONS], stateless, seconds)
            found["`--workers 1`: CPU, times that without the flag"].append(single.cpu / usual.cpu)
            double = two.measure(mixed, stateless, seconds)
            found["modern, two workers: CPU, times one"].append(double.cpu / single.cpu)
            single = one.measure(one.wires[alone][:CONNECTIONS], own, seconds)
            double = two.measure(mixed, both, seconds)
            found["legacy, two workers, half forwarded: CPU, times one"].append(double.cpu / single.cpu)
            for count in (CONNECTIONS, 1):
                theirs: list[list[str | None]] = [[session] for session in two.sessions[first][:count]]
                local = two.measure(two.wires[first][:count], theirs, seconds)
                away = two.measure(two.wires[second][:count], theirs, seconds)
                if count == 1:
                    found["forwarded, 1 connection: added p50, ms"].append(away.p50 - local.p50)
                    found["forwarded, 1 connection: added p99, ms"].append(away.p99 - local.p99)
                else:
                    found[f"forwarded, {CONNECTIONS} connections: added CPU us"].append(away.cpu - local.cpu)
    return found


def measure_nodes(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Figures of two nodes, one for each round."""
    found: dict[str, list[float]] = {what: [] for what in (NODE_P50, NODE_P99, NODE_CPU)}
    with flags_of_nodes(2) as (one, other), crowd(1, *one) as first, crowd(1, *other) as second:
        for node in (first, second):
            node.fill(1)
        (home,), (edge,) = first.wires, second.wires
        both = Crowd(first.parent, first.port, {**first.wires, **second.wires})
        _wait_known(both.wires[edge][0], first.sessions[home][0])
        for _ in range(rounds):
            for count in (CONNECTIONS, 1):
                theirs: list[list[str | None]] = [[session] for session in first.sessions[home][:count]]
                local = both.measure(both.wires[home][:count], theirs, seconds)
                away = both.measure(both.wires[edge][:count], theirs, seconds)
                if count == 1:
                    found[NODE_P50].append(away.p50 - local.p50)
                    found[NODE_P99].append(away.p99 - local.p99)
                else:
                    found[NODE_CPU].append(away.cpu - local.cpu)
    return found


def _wait_known(wire: Wire, session: str) -> None:
    """Wait until a node reaches the session of another one."""
    end = time.monotonic() + KNOWN_WITHIN
    while EXPECTED not in wire.ask(wire.call(session))[1]:
        if time.monotonic() > end:
            raise SystemExit("the nodes do not know each other")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", action="store_true", help="two nodes of a cluster, instead of two workers of one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file, too")
    given = parser.parse_args()
    targets, measured = (NODE_TARGETS, measure_nodes) if given.nodes else (TARGETS, measure)
    found = measured(given.rounds, given.seconds)
    for what, figures in found.items():
        found_out = median(figures)
        print(verdict(what, found_out, targets[what], at_most=True) if what in targets else f"{what}: {found_out:.2f}")
    if given.json is not None:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
