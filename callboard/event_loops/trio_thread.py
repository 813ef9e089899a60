"""A Trio event loop in a thread of its own, for callers on asyncio."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import attrs
import trio

from callboard.event_loops.crossing import LoopEnded, TrioCalls
from callboard.supervisor.groups import first_leaf

ENDS_WITHIN: Final = 30.0
"""Seconds to wait for the end of the thread. What still runs there is cancelled, and has times of its own to end."""

JOINED_WITHIN: Final = 1.0
"""Seconds for the thread to be gone after its last line. It takes microseconds."""

T = TypeVar("T")


@attrs.define(eq=False)
class TrioThread:
    """The loop and its thread, between `begin` and `end`. All of it is used on one asyncio loop."""

    name: str = "trio"
    _calls: TrioCalls | None = attrs.field(default=None, init=False)
    _stop: trio.Event = attrs.field(factory=trio.Event, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _ended: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    async def begin(self) -> None:
        """Start the thread, and wait until calls can be made."""
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[TrioCalls] = loop.create_future()

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                loop.call_soon_threadsafe(begun.set_result, TrioCalls(nursery))
                await self._stop.wait()
                nursery.cancel_scope.cancel()

        def run() -> None:
            try:
                trio.run(main)
            finally:
                with suppress(RuntimeError):  # the asyncio loop is closed
                    loop.call_soon_threadsafe(self._ended.set)

        self._thread = threading.Thread(target=run, name=self.name, daemon=True)
        self._thread.start()
        self._calls = await begun

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run *function* in Trio. See `TrioCalls.call`."""
        if self._calls is None:
            raise LoopEnded("the Trio event loop does not run")
        return await self._calls.call(function)

    @asynccontextmanager
    async def hold(self, open_it: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """Enter an asynchronous context manager of Trio, and leave it at the end of the block, in one Trio task."""
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[T] = loop.create_future()
        closing = trio.Event()

        async def held() -> None:
            try:
                async with open_it() as value:
                    loop.call_soon_threadsafe(opened.set_result, value)
                    await closing.wait()
            except BaseExceptionGroup as group:
                error = first_leaf(group)
                raise (error if isinstance(error, Exception) else group) from None

        holding = asyncio.ensure_future(self.call(held))
        try:
            both: set[asyncio.Future[Any]] = {holding, opened}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                await holding  # which raises: it ends in no other way before the block does
            yield opened.result()
        except BaseException:
            await self._leave(closing, holding)
            raise
        if self._calls is not None:
            self._calls.soon(closing.set)
        await holding

    async def _leave(self, closing: trio.Event, holding: "asyncio.Future[None]") -> None:
        """After an exception, which says more than what comes of the end."""
        if not holding.done() and self._calls is not None:
            with suppress(LoopEnded):
                self._calls.soon(closing.set)
        holding.cancel()
        await asyncio.wait([holding])
        if not holding.cancelled():
            holding.exception()

    async def end(self) -> None:
        """Cancel what still runs there, and wait for the end of the thread."""
        if self._calls is not None:
            with suppress(LoopEnded):
                self._calls.soon(self._stop.set)
            self._calls = None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), ENDS_WITHIN)
                if self._thread is not None:
                    self._thread.join(JOINED_WITHIN)


@attrs.define(eq=False)
class _Shared:
    thread: TrioThread
    users: int = 0
    begun: "asyncio.Task[None] | None" = None


_SHARED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared]] = WeakKeyDictionary()


@asynccontextmanager
async def shared_trio_thread() -> AsyncIterator[TrioThread]:
    """The one Trio thread of this asyncio loop. It begins with the first user, and ends with the last."""
    loop = asyncio.get_running_loop()
    shared = _SHARED.get(loop)
    if shared is None:
        shared = _SHARED[loop] = _Shared(TrioThread())
        shared.begun = asyncio.ensure_future(shared.thread.begin())
    shared.users += 1
    try:
        if shared.begun is not None:
            await asyncio.shield(shared.begun)
        yield shared.thread
    finally:
        shared.users -= 1
        if not shared.users:
            del _SHARED[loop]
            await shared.thread.end()
