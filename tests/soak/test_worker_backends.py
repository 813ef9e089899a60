"""A stdio backend of a broker with four workers: SCALE's target 23. The short form is in `tests/workers`."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.figures import LONG, figure
from tests.workers.crowd import Crowd, children, crowd
from tests.workers.kept_alive import KeptAlive
from tests.workers.test_keeper_processes import LEGACY, PLAIN, count, counts_again, is_alive, wait_found, write

pytestmark = pytest.mark.skipif(not LONG, reason="the long form: make soak")

WORKERS = 4
CALLS = 250
"""At each worker."""
KILLS = 3


async def test_23_a_backend_exists_once_and_is_back_soon(tmp_path: Path) -> None:
    config = write(tmp_path / "servers.toml", once=f'{LEGACY}\nshare = "all"')
    async with crowd(command="serve", app=config, workers=WORKERS, patience=300.0) as many:
        numbers = await _count_at_all(many)
        assert sorted(one for some in numbers for one in some) == list(range(1, WORKERS * CALLS + 1))
        assert all(some == sorted(some) for some in numbers)
        back = list[float]()
        for _ in range(KILLS):
            keeper, (_, process) = many.keepers()[-1], await count(many)
            assert children(keeper) == [process]
            began = time.monotonic()
            os.kill(keeper, signal.SIGKILL)
            await wait_found(partial(_counts_in_another, many, process), 30.0)
            back.append(time.monotonic() - began)
            await wait_found(partial(_is_gone, process))
    figure(
        "target 23",
        f"{WORKERS * CALLS:,} calls at {WORKERS} workers at once: one process, which counts each once; its keeper"
        f" killed {KILLS} times: up again after {min(back):.1f} to {max(back):.1f} s",
        "1 process, 3 s",
    )
    assert max(back) <= 3


async def _count_at_all(many: Crowd) -> list[list[int]]:
    """Count by connections to each worker at once. Returns what each was told, in order."""
    clients, edges = list[KeptAlive](), dict[int, KeptAlive]()
    while set(edges) != set(many.workers()):
        clients.append(client := await KeptAlive.open(many))
        await client.ask(client.client.modern("tools/list", meta=PLAIN))
        edges[many.edge_of(client.client.socket.getsockname()[1])] = client
    told = dict[int, list[int]]((pid, []) for pid in edges)

    async def count_on(pid: int, client: KeptAlive) -> None:
        request = client.client.modern("tools/call", meta=PLAIN, name="once__count", arguments={})
        for _ in range(CALLS):
            text = (await client.ask(request)).result["content"][0]["text"]
            told[pid].append(int(text.strip("[]").split(",")[0]))

    async with trio.open_nursery() as nursery:
        for pid, client in edges.items():
            nursery.start_soon(count_on, pid, client)
    for client in clients:
        await client.client.aclose()
    return list(told.values())


async def _counts_in_another(many: Crowd, process: int) -> bool:
    return await counts_again(many) and (await count(many))[1] != process


async def _is_gone(process: int) -> bool:
    return not is_alive(process)
