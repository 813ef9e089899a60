"""Promises 6 and 7: who reads is told all that changes, however much it is and however slow others are."""

from contextlib import AsyncExitStack
from typing import Final

import pytest
import trio

from tests.figures import LONG, figure
from tests.soak.clients import Ear, following, listen
from tests.soak.stage import Scene, scene

KINDS: Final = ("modern http", "legacy http", "modern ws", "legacy ws")
BURST: Final = 5_000
"""Different changes in one go: five times what waits for one subscriber."""
RATE: Final = 900
COUNT: Final = 40_000 if LONG else 1_500
QUIET: Final = 3.0
"""Seconds without any news after which no more are waited for."""
MIB: Final = 1 << 20


async def wait_heard(ears: list[Ear], count: int) -> None:
    """Wait until all of them have heard *count* changes, or nobody has heard anything for a while."""
    heard, since = -1, trio.current_time()
    while any(len(ear.heard) < count for ear in ears) and trio.current_time() < since + QUIET:
        total = sum(len(ear.heard) for ear in ears)
        if total > heard:
            heard, since = total, trio.current_time()
        await trio.sleep(0.02)


def lost(ears: list[Ear], count: int) -> str:
    """Who missed what."""
    missed = {ear.kind: count - len(set(ear.heard)) for ear in ears}
    cut = [ear.kind for ear in ears if ear.is_cut]
    return f"lost {missed}, cut off {cut}"


def check_all_heard(ears: list[Ear], count: int) -> None:
    for ear in ears:
        assert not ear.is_cut, lost(ears, count)
        assert ear.heard == list(range(count)), lost(ears, count)  # each once, in order


async def enter_ears(stack: AsyncExitStack, nursery: trio.Nursery, here: Scene) -> list[Ear]:
    ears = []
    for kind in KINDS:
        ear, read = await stack.enter_async_context(following(kind, here.run.stand))
        nursery.start_soon(listen, ear, read)
        ears.append(ear)
    return ears


@pytest.mark.finding("faults-H3")
async def test_7_a_burst_of_different_changes_reaches_everybody_who_reads() -> None:
    async with scene() as here:
        await here.run.wait_up("b0")
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            ears = await enter_ears(stack, nursery, here)
            began = trio.current_time()
            outcome = await here.run.ask("b0", "tell", count=BURST, different=BURST)
            assert outcome is not None
            assert outcome.is_result
            await wait_heard(ears, BURST)
            took = trio.current_time() - began
            nursery.cancel_scope.cancel()
    figure(
        "promise 7", f"{BURST} different changes at once: {lost(ears, BURST)}, in {took:.1f} s", "0 lost, nobody cut"
    )
    check_all_heard(ears, BURST)


@pytest.mark.finding("faults-H3")
async def test_6_those_who_read_lose_nothing_beside_three_who_do_not() -> None:
    async with scene(("b0",), "--write-time", "3") as here:
        run, stand = here.run, here.run.stand
        await run.wait_up("b0")
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            for kind in KINDS[:3]:
                await stack.enter_async_context(following(kind, stand, slow=True))
            ears = await enter_ears(stack, nursery, here)
            before = stand.state()["memory"]
            await run.ask("b0", "stream", count=COUNT, different=COUNT, rate=RATE)
            await wait_heard(ears, COUNT)
            grown = (stand.state()["memory"] - before) / MIB
            nursery.cancel_scope.cancel()
    found = f"{COUNT} changes, {RATE}/s, three do not read: {lost(ears, COUNT)}, {grown:+.1f} MiB"
    figure("promise 6", found, "0 lost, <= 16 MiB")
    check_all_heard(ears, COUNT)
    assert grown <= 16
