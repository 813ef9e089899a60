"""An asyncio event loop in a thread of its own, for functions of a Trio program that need one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

import attrs
import trio

from callboard.event_loops.crossing import TrioCalls, call_asyncio
from callboard.supervisor import get_logger
from callboard.supervisor.ended import failure_text, where
from callboard.supervisor.groups import own_nursery

log = get_logger("callboard.event_loops")

ENDS_WITHIN: Final = 5.0
"""Seconds for the tasks of the loop to end when it is closed. Then the thread is left behind: it cannot be killed, and
does not keep the process alive."""

T = TypeVar("T")


@attrs.define(eq=False)
class AsyncioThread:
    """The loop and its thread. They begin with the first use, and end with `aclose`."""

    name: str = "asyncio"
    _loop: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _is_closing: bool = attrs.field(default=False, init=False)

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run *function* there. See `call_asyncio`."""
        return await call_asyncio(self._begun(), function)

    @asynccontextmanager
    async def hold(self, open_it: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """Enter an asynchronous context manager there, and leave it at the end of the block, in one asyncio task."""
        async with own_nursery() as nursery:
            crossing = TrioCalls(nursery)
            opened: trio.Event = trio.Event()
            values: list[T] = []
            closing = asyncio.Event()  # of that loop, with its first wait

            def ready(value: T) -> None:
                values.append(value)
                opened.set()

            async def held() -> None:
                async with open_it() as value:
                    crossing.soon(ready, value)
                    await closing.wait()

            async def hold() -> None:
                await self.call(held)
                if not opened.is_set():
                    raise RuntimeError("the context manager ended before it was entered")

            nursery.start_soon(hold)
            await opened.wait()
            try:
                yield values[0]
            finally:
                self._begun().call_soon_threadsafe(closing.set)

    async def aclose(self) -> None:
        """Cancel what still runs there, and end the thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._loop = self._thread = None
        self._is_closing = True
        loop.call_soon_threadsafe(loop.stop)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + ENDS_WITHIN + 1):
            await trio.to_thread.run_sync(thread.join, ENDS_WITHIN)
        if thread.is_alive():
            log.warning("asyncio_not_ended", thread=thread.name, after=ENDS_WITHIN)

    def _begun(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._is_closing = False
            self._loop = asyncio.new_event_loop()
            arguments = (self._loop,)
            self._thread = threading.Thread(target=self._run, args=arguments, name=self.name, daemon=True)
            self._thread.start()
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._is_closing:
            try:
                loop.run_forever()
            except BaseException as error:  # a task that calls sys.exit() ends nothing but itself
                log.warning("asyncio_task_failed", failure=failure_text(error), where=where(error))
        try:
            _cancel_all(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=ENDS_WITHIN / 2))
    loop.run_until_complete(loop.shutdown_asyncgens())
