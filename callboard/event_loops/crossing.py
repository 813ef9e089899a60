"""Calls from one event loop to the other. The caller waits for the result; a caller that is cancelled cancels the call.

Neither loop ever blocks for the other: what crosses is a callback, by the one thread-safe function that each loop has.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import attrs
import outcome
import trio
from sniffio import current_async_library_cvar

from callboard.supervisor import get_logger
from callboard.supervisor.ended import failure_text, where

log = get_logger("callboard.event_loops")

GRACE: Final = 2.0
"""Seconds that a cancelled call has to end. Longer, and its caller goes on without it: asyncio code may catch the
cancellation, and a request that was cancelled must not hold up the shutdown of its server."""

T = TypeVar("T")


class LoopEnded(RuntimeError):
    """The event loop that should run the call has ended, or ended during the call."""


@attrs.define(eq=False)
class _AsyncioCall(Generic[T]):
    """One call that a Trio task makes."""

    function: Callable[[], Awaitable[T]]
    loop: asyncio.AbstractEventLoop
    context: contextvars.Context
    token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    result: outcome.Outcome[T] | None = attrs.field(default=None, init=False)
    is_awaited: bool = attrs.field(default=True, init=False)
    _task: "asyncio.Task[None] | None" = attrs.field(default=None, init=False)
    _is_cancelled: bool = attrs.field(default=False, init=False)

    # In the thread of asyncio.

    def start(self) -> None:
        if self._is_cancelled:
            self._end()
            return
        self._task = self.loop.create_task(self._run(), context=self.context)
        self._task.add_done_callback(lambda _: self._end())

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self.result = outcome.Value(await self.function())
        except BaseException as error:  # SystemExit would end the loop; the caller gets it
            self.result = outcome.Error(error)

    def _end(self) -> None:
        self.loop_over()
        if not self.is_awaited and isinstance(self.result, outcome.Error):
            error = self.result.error
            if not isinstance(error, asyncio.CancelledError):
                log.warning("abandoned_call_failed", failure=failure_text(error), where=where(error))

    def loop_over(self) -> None:
        """Wake the caller up: nothing more comes."""
        with suppress(trio.RunFinishedError):
            self.token.run_sync_soon(self.ended.set)


async def call_asyncio(loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[T]]) -> T:
    """Run *function* in the asyncio event loop of another thread, and wait for it in this Trio task.

    A cancelled caller cancels the asyncio task and waits for its end, at most `GRACE` seconds. Raises what the function
    raises, and `LoopEnded`. A function that is cancelled by its own code raises RuntimeError.
    """
    call = _AsyncioCall(function, loop, _context())
    _soon(loop, call.start)
    try:
        await call.ended.wait()
    finally:
        if not call.ended.is_set():
            with suppress(LoopEnded):
                _soon(loop, call.cancel)
            with trio.CancelScope(shield=True, deadline=trio.current_time() + GRACE):
                await call.ended.wait()
            call.is_awaited = call.ended.is_set()
    result, call.result = call.result, None  # an exception whose traceback leads here must not be held from here
    if result is None or (isinstance(result, outcome.Error) and isinstance(result.error, asyncio.CancelledError)):
        raise RuntimeError("the function was cancelled by asyncio code")
    return result.unwrap()


@attrs.define(eq=False)
class TrioCalls:
    """Lets asyncio code make calls to Trio: they run in *nursery*, and end with it. Make it in Trio."""

    nursery: trio.Nursery
    token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token, init=False)

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run *function* in Trio, and wait for it in this asyncio task. A cancelled caller cancels it.

        Raises what the function raises; and `LoopEnded` if Trio, or that nursery, has ended.
        """
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[outcome.Outcome[T]] = loop.create_future()
        scope = trio.CancelScope()

        def settle(result: outcome.Outcome[T]) -> None:
            if not settled.done():
                settled.set_result(result)

        def answer(result: outcome.Outcome[T]) -> None:
            with suppress(RuntimeError):  # that loop is closed, and nothing waits there
                loop.call_soon_threadsafe(settle, result)

        async def run() -> None:
            result: outcome.Outcome[T] = outcome.Error(LoopEnded("the request has ended"))
            try:
                with scope:
                    try:
                        result = outcome.Value(await function())
                    except Exception as error:  # it is the caller's
                        result = outcome.Error(error)
            finally:
                answer(result)

        def start() -> None:
            try:
                self.nursery.start_soon(run)
            except RuntimeError:  # it is closed
                answer(outcome.Error(LoopEnded("the request has ended")))

        self.soon(start)
        try:
            return (await asyncio.shield(settled)).unwrap()
        except asyncio.CancelledError:
            with suppress(LoopEnded):
                self.soon(scope.cancel)
                await asyncio.wait([settled], timeout=GRACE)
            raise

    def soon(self, function: Callable[..., object], *args: Any) -> None:
        """Run a plain function in Trio, and do not wait. It must not raise. Raises `LoopEnded`."""
        try:
            self.token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            raise LoopEnded("the Trio event loop has ended") from None


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        raise LoopEnded("the asyncio event loop has ended") from None


def _context() -> contextvars.Context:
    """The caller's, for traces and the like; without its word that this is Trio, which libraries for both go by."""
    context = contextvars.copy_context()
    context.run(current_async_library_cvar.set, None)
    return context
