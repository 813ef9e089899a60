"""One call, seen by its caller."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

import trio

from callboard.codecs.revisions import ProgressNotificationParams
from callboard.supervisor.groups import own_nursery

REPORTS: Final = 64
"""Progress reports that wait to be looked at; older ones make room for newer."""

R_co = TypeVar("R_co", covariant=True)

Ask: TypeAlias = Callable[[Callable[[ProgressNotificationParams], None] | None], Awaitable[R_co]]


class Calling(Generic[R_co]):
    """A call that is about to be made. Await it for its result; or enter it, to hear how it goes:

    ```python
    async with client.call("forecast", city="Oslo") as call:
        async for update in call.progress:
            print(update.progress, update.total)
    print(call.result.content)
    ```
    """

    def __init__(self, ask: Ask[R_co]) -> None:
        self._ask = ask
        self._result: R_co | None = None
        self._send: trio.MemorySendChannel[ProgressNotificationParams] | None = None
        self._receive: trio.MemoryReceiveChannel[ProgressNotificationParams] | None = None
        self._nursery_block: Any = None
        self._nursery: trio.Nursery | None = None

    def __await__(self) -> Generator[Any, None, R_co]:
        return self._run().__await__()

    async def _run(self) -> R_co:
        return await self._ask(None)

    @property
    def progress(self) -> AsyncIterator[ProgressNotificationParams]:
        """Progress notifications until the result is there. Raises LookupError outside of the block."""
        if self._receive is None:
            raise LookupError("progress needs an entered call: async with client.call(...) as call")
        return self._receive

    @property
    def result(self) -> R_co:
        """The result, once the call is over. Raises LookupError before."""
        if self._result is None:
            raise LookupError("the call has not finished yet")
        return self._result

    async def __aenter__(self) -> Self:
        self._send, self._receive = trio.open_memory_channel[ProgressNotificationParams](REPORTS)
        self._nursery_block = own_nursery()
        self._nursery = await self._nursery_block.__aenter__()
        self._nursery.start_soon(self._go, self._send)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Wait for the result; left by an exception, or with `cancel`, the call is cancelled at the server."""
        return bool(await self._nursery_block.__aexit__(kind, error, traceback))

    def cancel(self) -> None:
        """No longer wanted: the server is told."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def _go(self, reports: trio.MemorySendChannel[ProgressNotificationParams]) -> None:
        with reports:
            self._result = await self._ask(self._reported)

    def _reported(self, report: ProgressNotificationParams) -> None:
        if self._send is None or self._receive is None:
            return
        try:
            self._send.send_nowait(report)
        except trio.WouldBlock:
            self._receive.receive_nowait()
            self._send.send_nowait(report)
        except trio.BrokenResourceError:
            return  # the stream is not read any more
