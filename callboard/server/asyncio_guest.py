"""Handlers and lifespans of an author whose libraries need asyncio: they run in an asyncio loop beside Trio's."""

import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import attrs
import trio

from callboard.actors.changes import ListName
from callboard.actors.server.client_requests import ClientRequest
from callboard.actors.server.task import HostedTask
from callboard.codecs.revisions import JSONValue, LoggingLevel, Model
from callboard.event_loops.asyncio_thread import AsyncioThread
from callboard.event_loops.crossing import TrioCalls
from callboard.server.context import Asker, Asking, Context
from callboard.server.include import ORIGINAL
from callboard.server.signature.signature import Signature
from callboard.supervisor.groups import own_nursery


@attrs.define(eq=False)
class AsyncioGuest:
    """The asyncio side of one server: a thread with a loop, from the first use to the end of the server's run."""

    name: str
    thread: AsyncioThread = attrs.field(init=False)
    _runs: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = AsyncioThread(f"{self.name} asyncio")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around each run of the server; the thread ends with the last one."""
        self._runs += 1
        try:
            yield
        finally:
            self._runs -= 1
            if not self._runs:
                with trio.CancelScope(shield=True):  # bounded by the thread's own time to end
                    await self.thread.aclose()

    def open(self, manager: Callable[[], AbstractAsyncContextManager[Any]]) -> AbstractAsyncContextManager[Any]:
        """A lifespan that is entered and left on asyncio, for Trio to enter."""
        return self.thread.hold(manager)

    def handler(self, function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
        """*function*, which is for asyncio, as one for Trio."""
        parameter, thread = signature.context_parameter, self.thread

        @functools.wraps(function)
        async def on_asyncio(**arguments: Any) -> Any:
            if parameter is None:
                return await thread.call(functools.partial(function, **arguments))
            async with own_nursery() as nursery:
                arguments[parameter] = _bridged(arguments[parameter], TrioCalls(nursery))
                try:
                    return await thread.call(functools.partial(function, **arguments))
                finally:
                    nursery.cancel_scope.cancel()

        setattr(on_asyncio, ORIGINAL, function)
        return on_asyncio


@attrs.frozen(eq=False)
class _BridgedAsker:
    """Asks on Trio, for a handler on asyncio."""

    asker: Asker
    crossing: TrioCalls

    async def ask(self, questions: Sequence[ClientRequest], *, at_once: bool = False) -> list[Model]:
        return await self.crossing.call(lambda: self.asker.ask(questions, at_once=at_once))


class _BridgedTask:
    """The task of a call: what is set here is set on Trio, where its client may be waiting for it."""

    def __init__(self, task: HostedTask, crossing: TrioCalls) -> None:
        object.__setattr__(self, "_task", task)
        object.__setattr__(self, "_crossing", crossing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._crossing.soon(setattr, self._task, name, value)


@attrs.frozen(eq=False, kw_only=True)
class AsyncioContext(Context):
    """A context whose questions and notifications are awaited on asyncio."""

    _crossing: TrioCalls

    @property
    def _asker(self) -> Asker:
        return _BridgedAsker(self._exchange, self._crossing)

    @property
    def task(self) -> HostedTask | None:
        task = super().task
        return None if task is None else cast("HostedTask", _BridgedTask(task, self._crossing))

    async def log(self, level: LoggingLevel, data: JSONValue, *, logger: str | None = None) -> None:
        await self._crossing.call(lambda: self._exchange.log(level, data, logger))

    async def report(self, progress: float, total: float | None = None, *, message: str | None = None) -> None:
        await self._crossing.call(lambda: self._exchange.report(progress, total, message))

    async def notify(self, method: str, /, **params: JSONValue) -> None:
        await self._crossing.call(functools.partial(super().notify, method, **params))

    async def close_stream(self, *, retry: float = 1.0) -> None:
        await self._crossing.call(lambda: self._exchange.slot.outlet.close_stream(retry))

    def notify_updated(self, uri: str) -> None:
        self._crossing.soon(self._news.notify_updated, uri)

    def notify_changed(self, name: ListName) -> None:
        self._crossing.soon(self._news.notify_changed, name)

    async def ask_all(self, *askings: Asking[Any]) -> Any:
        answers = await self._asker.ask([asking.question for asking in askings], at_once=True)
        return tuple(asking.read(answer) for asking, answer in zip(askings, answers, strict=True))


def _bridged(context: Context, crossing: TrioCalls) -> AsyncioContext:
    facts = {field.alias: getattr(context, field.name) for field in attrs.fields(Context)}
    return AsyncioContext(crossing=crossing, **cast("dict[str, Any]", facts))
