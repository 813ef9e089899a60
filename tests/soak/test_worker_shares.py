"""What workers share: connections, sessions, and an author's rates: SCALE's targets 10 and 22."""

import time
from collections import Counter

import pytest
import trio

from tests.figures import LONG, figure
from tests.workers.crowd import Crowd, crowd
from tests.workers.kept_alive import KeptAlive

CONNECTIONS, CONNECTIONS_OFF = (400, 0.05) if LONG else (40, 0.5)
SESSIONS, SESSIONS_OFF = (400, 0.10) if LONG else (24, 0.5)
"""So many, and how far the share of a worker may be off."""
ALLOWED, PER = 100, 60.0
"""The author's rate: see `tests/apps/many.py`."""
WANTED = 400 if LONG else 140


@pytest.mark.parametrize("workers", [2, 4] if LONG else [2])
async def test_10_and_22_workers_share_connections_and_sessions_and_count_together(workers: int) -> None:
    async with crowd(workers=workers, patience=120.0) as many:
        assert len(many.workers()) == workers
        await _share_connections(many)
        await _share_sessions(many)
        await _count_together(many)


async def _share_connections(many: Crowd) -> None:
    clients = [await KeptAlive.open(many) for _ in range(CONNECTIONS)]
    shares = Counter([await client.call("where") for client in clients])
    for client in clients:
        await client.client.aclose()
    _judge(many, f"{CONNECTIONS} connections", shares, CONNECTIONS_OFF)


async def _share_sessions(many: Crowd) -> None:
    """One after the other, each by a connection that is closed again: so only the sessions are left to count by."""
    sessions = [await many.session() for _ in range(SESSIONS)]
    homes = [await session.call("where") for session in sessions]
    assert [await session.call("where") for session in sessions] == homes
    _judge(many, f"{SESSIONS} sessions", Counter(homes), SESSIONS_OFF)


def _judge(many: Crowd, what: str, shares: Counter[int], allowed: float) -> None:
    assert set(shares) == set(many.workers())
    fair = shares.total() / len(shares)
    off = max(abs(share - fair) / fair for share in shares.values())
    figure("target 10", f"{what}, {len(shares)} workers: {sorted(shares.values())}, off by {off:.0%}", f"{allowed:.0%}")
    assert off <= allowed


async def _count_together(many: Crowd) -> None:
    """All workers are asked at once."""
    clients = [await KeptAlive.open(many, pid) for pid in many.workers() for _ in range(2)]
    statuses = Counter[int]()

    async def ask(client: KeptAlive) -> None:
        for _ in range(WANTED // len(clients)):
            statuses[(await client.ask(client.client.modern("prompts/list"))).status] += 1

    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(ask, client)
    refilled = int((time.monotonic() - began) / (PER / ALLOWED) + 0.5)  # what a minute allows, by the time this took
    for client in clients:
        await client.client.aclose()
    figure(
        "target 22",
        f"{statuses.total()} requests at {len(many.workers())} workers at once: {statuses[200]} allowed, and 429 for"
        f" {statuses[429]}; {refilled} more were allowed meanwhile",
        f"{ALLOWED}",
    )
    assert set(statuses) == {200, 429}
    assert ALLOWED <= statuses[200] <= ALLOWED + refilled
