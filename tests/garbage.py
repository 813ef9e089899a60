"""What is left for the garbage collector after something was done many times."""

import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from trio.testing import wait_all_tasks_blocked

COUNT = 50


async def left_by(once: Callable[[], Awaitable[Any]], count: int = COUNT) -> Counter[str]:
    """What is left for the collector after each of many times, by its type.

    All that was there before is set aside: looking at it again and again would take most of the time.
    """
    for _ in range(2):
        await once()
    await wait_all_tasks_blocked()
    gc.disable()
    gc.collect()
    gc.freeze()  # for good: after `unfreeze` the next collection would look at the objects of all tests
    try:
        for _ in range(count):
            await once()
        await wait_all_tasks_blocked()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        counted = Counter(type(one).__qualname__ for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    return Counter({name: n for name, n in counted.items() if n >= count // 2})  # not what is left but once
