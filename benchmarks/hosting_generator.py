"""A load generator for machines without wrk: connections that are kept alive, each with one call at a time.

    python -m benchmarks.hosting_generator PORT FOLDER COUNT MARK CONNECTIONS SECONDS [EXPECTED]

Says the same as `hosting_wrk.lua`. It is slower than wrk, which matters for the fastest servers only.
"""

import json
import re
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

READ_SIZE: Final = 262_144
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


def is_whole(answer: bytes) -> bool:
    """Whether *answer* has come to its end: by its length, or by its last chunk."""
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return False
    length = _LENGTH.search(answer, 0, head + 2)
    return answer.endswith(b"\r\n0\r\n\r\n") if length is None else len(answer) >= head + 4 + int(length[1])


@attrs.define(eq=False)
class Line:
    """One connection: asks, waits for the whole answer, asks again."""

    client: socket.socket
    asked: float = 0.0
    answer: bytes = b""

    def ask(self, request: bytes) -> None:
        self.answer = b""
        self.asked = time.perf_counter()
        self.client.sendall(request)  # fits the buffer of an idle connection


@attrs.define(eq=False)
class Tally:
    """What came of all calls."""

    expected: bytes | None
    took: list[float] = attrs.field(factory=list)
    refused: int = 0
    lost: int = 0
    wrong: int = 0

    def add(self, line: Line) -> None:
        self.took.append(time.perf_counter() - line.asked)
        if not line.answer.startswith(b"HTTP/1.1 200 "):
            self.refused += 1
        elif self.expected is not None and (self.expected not in line.answer or b'"error":' in line.answer):
            self.wrong += 1

    def at(self, percent: float) -> float:
        """The percentile of what calls took, in microseconds."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1e6 if ordered else 0.0


def requests_of(folder: Path, count: int, mark: str) -> Callable[[], bytes]:
    """The requests of *folder* in turn, each with an id of its own."""
    parts = [(folder / str(index)).read_bytes().split(mark.encode()) for index in range(1, count + 1)]
    number = 0

    def following() -> bytes:
        nonlocal number
        number += 1
        return (b"call-%08d" % number).join(parts[number % count])

    return following


def generate(port: int, following: Callable[[], bytes], connections: int, seconds: float, tally: Tally) -> float:
    """Call for *seconds*; return how many they were."""
    with selectors.DefaultSelector() as ready:
        for _ in range(connections):
            line = Line(socket.create_connection(("127.0.0.1", port)))
            line.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(line.client, selectors.EVENT_READ, line)
        started = time.perf_counter()
        for key in list(ready.get_map().values()):
            key.data.ask(following())
        while (now := time.perf_counter()) - started < seconds and ready.get_map():
            for key, _ in ready.select(1):
                data = key.data.client.recv(READ_SIZE)
                key.data.answer += data
                if not data:
                    tally.lost += 1
                    ready.unregister(key.data.client)
                elif is_whole(key.data.answer):
                    tally.add(key.data)
                    key.data.ask(following())
        for key in list(ready.get_map().values()):
            key.data.client.close()
    return now - started


def main() -> None:
    port, folder, count, mark, connections, seconds, *expected = sys.argv[1:]
    tally = Tally(expected[0].encode() if expected else None)
    took = generate(int(port), requests_of(Path(folder), int(count), mark), int(connections), float(seconds), tally)
    found = {"requests": len(tally.took), "seconds": took, "p50": tally.at(50), "p99": tally.at(99)}
    print(json.dumps({**found, "refused": tally.refused, "lost": tally.lost, "wrong": tally.wrong}))


if __name__ == "__main__":
    main()
