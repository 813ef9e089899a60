"""PyPI's `mcp` 2 as a client, as `client.py` drives it, in its own environment: prints one line of JSON."""

import json
import sys
import time
from typing import Any

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

WARM_UP = 96


async def call(client: Any, calls: int, at_once: int, taken: list[float]) -> None:
    async def one_after_the_other() -> None:
        for _ in range(calls // at_once):
            began = time.perf_counter()
            result = await client.call_tool("noop", {})
            taken.append(time.perf_counter() - began)
            assert not result.is_error

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(one_after_the_other)


async def main(calls: int, at_once: int, target: Any) -> None:
    taken: list[float] = []
    async with Client(target) as client:
        await call(client, WARM_UP, at_once, [])
        cpu, wall = time.process_time(), time.perf_counter()
        await call(client, calls, at_once, taken)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"taken": taken, "cpu": cpu / len(taken), "wall": wall / len(taken)}))


if __name__ == "__main__":
    words = sys.argv[3:]
    given: Any = words[0]
    if "://" not in words[0]:
        given = stdio_client(StdioServerParameters(command=words[0], args=words[1:]))
    anyio.run(main, int(sys.argv[1]), int(sys.argv[2]), given)
