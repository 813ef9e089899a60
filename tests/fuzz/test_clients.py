"""Odd clients at every door: nothing of ours crashes, only valid messages go out, others are served, nothing stays.

`CALLBOARD_FUZZ` says how many frames for each codec, and here how many clients: one for 50. `CALLBOARD_FUZZ_SEED`
repeats a run, and with `CALLBOARD_FUZZ_BATCH` only one server of it. Time is virtual, as in `test_backends`.
"""

import gc
import random
from contextlib import suppress
from itertools import count
from typing import Any, Final

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from callboard.actors.broker.policy import BackendSettings
from callboard.broker import Broker
from callboard.server.served import Hosted
from callboard.supervisor.snapshot import render
from callboard.transports.limits import Settings
from tests.broker.front import backend
from tests.fuzz.callers import visit
from tests.fuzz.doors import HOST, Doors, opened
from tests.fuzz.strict import Complaints
from tests.fuzz.test_backends import AT_ONCE, COUNT, ONLY, SEED, STALL, Steps, at_once, uncollected
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import Gone, request

BATCHES: Final = max(2, COUNT // 2500)
AT_A_TIME: Final = 10
TIMES: Final = 5
TIGHT: Final = Settings(max_frame=200_000, max_header=8_000, max_streams=4, max_events=20, max_event_bytes=20_000)
OVER: Final = 5000.0
"""Seconds of virtual time after which nothing is kept for any client: longer than a session may be idle."""


async def need(doors: Doors, complaints: Complaints, over: trio.Event) -> None:
    """A good client, which is answered at once."""
    for number in count():
        door = ("native", "asgi", "admin")[number % 3]
        client, is_served = doors.client(door), False
        with trio.move_on_after(AT_ONCE), suppress(Gone, KeyError, trio.BrokenResourceError):
            if door == "admin":
                await client.send(request("GET", "/readyz", host=HOST))
                is_served = (await client.answer()).status == 200
            else:
                is_served = (await client.call("echo", text="hello")).result["content"][0]["text"] == "hello"
        await client.aclose()
        if not is_served:
            complaints.add(f"the neighbour was not served: {door}")
        if over.is_set():
            return
        await trio.sleep(0.1 + number / 10)


def served(batch: int) -> Hosted:
    """A server, or the same one behind a broker."""
    house = open_house().server
    if batch % 2 == 0:
        return house
    return Broker([backend(house, "house", BackendSettings(prefix=""))])


async def run_batch(batch: int, complaints: Complaints, steps: Steps, logs: list[Any]) -> None:
    draw = random.Random(f"{SEED} clients {batch}")
    trio._core._run._r.seed(draw.random())  # else tasks are run in an order that no seed repeats
    random.seed(draw.random())
    over = trio.Event()
    async with opened(served(batch), TIGHT) as doors, trio.open_nursery() as nursery:
        nursery.start_soon(need, doors, complaints, over)
        for number in range(TIMES):
            complaints.round = f"CALLBOARD_FUZZ_SEED={SEED} CALLBOARD_FUZZ_BATCH={batch} crowd {number}"
            steps.longest = (0.0, "")
            async with trio.open_nursery() as crowd:
                for _ in range(AT_A_TIME):
                    crowd.start_soon(visit, doors, complaints, random.Random(draw.random()))
            if steps.longest[0] > STALL:
                complaints.add(f"the loop stood still in {steps.longest[1]}", f"{steps.longest[0]:.3f} s")
            complaints.heed(logs)
        over.set()
        await trio.sleep(OVER)
        for what, held in doors.held.items():
            if held:
                complaints.add(f"left over: {what}", f"{held} in\n{render(doors.host.root.tree())}")
    complaints.heed(logs)


async def test_odd_clients_harm_nobody(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    complaints, steps = Complaints(), Steps()
    trio.lowlevel.add_instrument(steps)
    with capture_logs() as logs, uncollected():
        for batch in range(BATCHES) if ONLY is None else [int(ONLY)]:
            await run_batch(batch, complaints, steps, logs)
            gc.collect()
    trio.lowlevel.remove_instrument(steps)
    assert complaints.messages > 50
    assert not complaints.first, f"\n{complaints.report()}"
