"""Official Python clients (PyPI: mcp 2): legacy sessions that are idle, and modern clients that call all the time.

    python -m tests.cluster.official_clients URL LEGACY MODERN

Prints a line of JSON when all are connected. For each line that it reads, every legacy session calls once, and a line
says what became of those calls, and of those of the modern clients since the line before. Runs in its own environment.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from mcp import Client

MODERN = "2026-07-28"
PATIENCE = 20
"""Seconds for a call, after which it has failed."""


async def call(client: Client) -> str | None:
    """None, or what went wrong: whatever it is, the test says which may be."""
    try:
        await asyncio.wait_for(client.call_tool("where", {}), PATIENCE)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


async def call_on(client: Client, heard: Callable[[str | None], None]) -> None:
    while True:
        heard(await call(client))
        await asyncio.sleep(0.02)


async def all_of(clients: list[Client], job: Callable[[Client], Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*map(job, clients)))


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def main(url: str, legacy: int, modern: int) -> None:
    loop, heard = asyncio.get_running_loop(), list[str | None]()
    async with AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(Client(url, mode="legacy")) for _ in range(legacy)]
        busy = [await stack.enter_async_context(Client(url, mode=MODERN)) for _ in range(modern)]
        tasks = [asyncio.create_task(call_on(client, heard.append)) for client in busy]
        while True:
            said = await all_of(idle, call)
            calls, heard[:] = list(heard), ()
            say(
                idle=said.count(None),
                idle_failed=list(filter(None, said)),
                calls=len(calls),
                failed=list(filter(None, calls)),
            )
            if not await loop.run_in_executor(None, sys.stdin.readline):
                break
        for task in tasks:
            task.cancel()


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
