"""Work that goes on for a while after its task is cancelled: a code or a refresh token is good for one use only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from callboard.supervisor.groups import own_nursery


@asynccontextmanager
async def shielded(seconds: float) -> AsyncIterator[None]:
    """Let the block go on although its task is cancelled, until *seconds* after it began. Uncancelled, it may take
    longer than that."""
    async with own_nursery() as nursery:
        nursery.cancel_scope.shield = True  # bounded: lifted after *seconds*

        async def lift() -> None:
            await trio.sleep(seconds)
            nursery.cancel_scope.shield = False

        nursery.start_soon(lift)
        yield
        nursery.cancel_scope.cancel()
