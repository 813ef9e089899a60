"""callboard's client, as `client.py` drives it: `client_ours.py CALLS AT_ONCE TARGET...` prints one line of JSON."""

import json
import sys
import time

import trio

from callboard.client import Client, connect
from callboard.client.routes import Target

WARM_UP = 200


async def call(client: Client, calls: int, at_once: int, taken: list[float]) -> None:
    async def one_after_the_other() -> None:
        for _ in range(calls // at_once):
            began = time.perf_counter()
            result = await client.call("noop")
            taken.append(time.perf_counter() - began)
            assert result.is_error is not True

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(one_after_the_other)


async def main(calls: int, at_once: int, target: Target) -> None:
    taken: list[float] = []
    async with connect(target) as client:
        await call(client, WARM_UP, at_once, [])
        cpu, wall = time.process_time(), time.perf_counter()
        await call(client, calls, at_once, taken)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"taken": taken, "cpu": cpu / len(taken), "wall": wall / len(taken)}))


if __name__ == "__main__":
    words = sys.argv[3:]
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]), words[0] if "://" in words[0] else words)
