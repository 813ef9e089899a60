"""When the garbage collector runs in a process that serves: little and often, and thoroughly only while it is idle.

What a request, a connection or a session makes is gone with it, without a collector's help. The collector is there for
what handlers leave behind. Left to itself it looks at everything now and then, which among ten thousand sessions stops
all of them for more than a second.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

YOUNG: Final = 10_000
"""Objects made, and not gone, after which the collector looks at them: a few ms. Python's own figure is 700."""

MIDDLE: Final = 4
"""Collections of the young after which those that were left over are looked at once more: some 25 ms. Left for a timer
they were hundreds of thousands after a storm of connections, and took most of a second."""

NEVER: Final = 1_000_000
"""Collections of those after which the collector would look at everything unasked."""

EVERY: Final = 5.0
"""Seconds between two looks at what is no longer young, and has never been looked at since."""

IDLE: Final = 0.1
"""Share of a core up to which the process is idle."""

FEW: Final = 200_000
"""Blocks of memory, beyond those at the start, up to which everything is looked at while the process is idle: 50 ms.
An object has one or two; counting the objects themselves would be a look at all of them."""

THOROUGH: Final = 60.0
"""Seconds between two such looks, at the least."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Have the collector look at the young only; what was loaded so far is never looked at."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def collecting_now_and_then() -> Iterator[None]:
    """Look at the rest meanwhile. In a system task: a nursery would put what is raised here into a group."""
    scope = trio.CancelScope()

    async def collect() -> None:
        with scope:
            await collect_now_and_then()

    trio.lowlevel.spawn_system_task(collect)
    try:
        yield
    finally:
        scope.cancel()


async def collect_now_and_then(
    collect: Callable[[int], object] = gc.collect,
    count: Callable[[], int] = sys.getallocatedblocks,
    cpu: Callable[[], float] = time.process_time,
) -> None:
    """Look at the rest, for as long as the process serves."""
    thorough, loaded = trio.current_time() + THOROUGH, count()
    while True:
        used = cpu()
        await trio.sleep(EVERY)
        collect(1)
        is_idle = cpu() - used < IDLE * EVERY
        if is_idle and trio.current_time() >= thorough and count() - loaded <= FEW:
            collect(2)
            thorough = trio.current_time() + THOROUGH
