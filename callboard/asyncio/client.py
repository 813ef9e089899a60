"""The client for asyncio: the client on Trio, which runs in a thread of its own, behind functions of asyncio."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Literal, Never, Self, TypeVar, Unpack, cast, overload

import attrs

from callboard.actors.changes import Change
from callboard.actors.client.conversation import Patience
from callboard.asyncio.callbacks import crossed
from callboard.client.base import check_by_name
from callboard.client.call import REPORTS, Calling
from callboard.client.candidates import Candidates
from callboard.client.client import Client, Common
from callboard.client.client import connect as connect_on_trio
from callboard.client.routes import Target
from callboard.client.subscriptions import ChangeStream
from callboard.client.tasks import TaskHandle
from callboard.codecs.revisions import (
    CallToolResult,
    GetPromptResult,
    Implementation,
    JSONObject,
    LoggingLevel,
    ProgressNotificationParams,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    Revision,
    ServerCapabilities,
    Tool,
)
from callboard.codecs.tasks import TaskStatus
from callboard.event_loops.trio_thread import TrioThread, shared_trio_thread

R = TypeVar("R")
T = TypeVar("T")

_OVER: Final = object()


@attrs.define(eq=False)
class AsyncioCalling(Generic[R]):
    """A call that is about to be made. Await it for its result; or enter it, to hear how it goes:

    ```python
    async with client.call("forecast", city="Oslo") as call:
        async for update in call.progress:
            print(update.progress, update.total)
    print(call.result.content)
    ```
    """

    _thread: TrioThread
    _make: Callable[[], Calling[Any]]
    _convert: Callable[[Any], R]
    _reports: deque[ProgressNotificationParams] = attrs.field(factory=lambda: deque(maxlen=REPORTS), init=False)
    _woken: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _task: "asyncio.Future[Any] | None" = attrs.field(default=None, init=False)
    _is_cancelled: bool = attrs.field(default=False, init=False)

    def __await__(self) -> Generator[Any, None, R]:
        return self._run().__await__()

    async def _run(self) -> R:
        async def ask() -> Any:
            return await self._make()

        return self._convert(await self._thread.call(ask))

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()

        async def follow() -> Any:
            async with self._make() as call:
                async for update in call.progress:
                    loop.call_soon_threadsafe(self._reported, update)
            return call.result

        self._task = asyncio.ensure_future(self._thread.call(follow))
        self._task.add_done_callback(lambda _: self._woken.set())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for the result; left by an exception, or with `cancel`, the call is cancelled at the server."""
        if self._task is None:
            return
        if kind is not None:
            self._task.cancel()
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if kind is None and not (self._is_cancelled and self._task.cancelled()):
            self._task.result()  # raises what the call raised

    def _reported(self, update: ProgressNotificationParams) -> None:
        self._reports.append(update)
        self._woken.set()

    @property
    def progress(self) -> AsyncIterator[ProgressNotificationParams]:
        """Progress notifications until the result is there. Raises LookupError outside of the block."""
        if self._task is None:
            raise LookupError("progress needs an entered call: async with client.call(...) as call")
        return self._updates(self._task)

    async def _updates(self, task: "asyncio.Future[Any]") -> AsyncIterator[ProgressNotificationParams]:
        while True:
            while self._reports:
                yield self._reports.popleft()
            if task.done():
                return
            self._woken.clear()
            await self._woken.wait()

    @property
    def result(self) -> R:
        """The result, once the call is over. Raises LookupError before."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            raise LookupError("the call has not finished yet")
        return self._convert(self._task.result())

    def cancel(self) -> None:
        """No longer wanted: the server is told."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()


@attrs.frozen(eq=False)
class AsyncioTask:
    """A call that goes on at the server as a task. Await it for its result. See `callboard.client.tasks.TaskHandle`."""

    _thread: TrioThread
    _handle: TaskHandle

    @property
    def id(self) -> str | None:
        return self._handle.id

    @property
    def status(self) -> TaskStatus:
        return self._handle.status

    @property
    def status_message(self) -> str:
        return self._handle.status_message

    @property
    def is_final(self) -> bool:
        return self._handle.is_final

    def __await__(self) -> Generator[Any, None, CallToolResult]:
        return self.wait().__await__()

    async def wait(self) -> CallToolResult:
        return await self._thread.call(self._handle.wait)

    async def refresh(self) -> None:
        await self._thread.call(self._handle.refresh)

    async def cancel(self) -> None:
        await self._thread.call(self._handle.cancel)


@attrs.define(eq=False)
class AsyncioChanges:
    """Changes, one after the other. Use it as a block: leaving that ends the subscription."""

    _thread: TrioThread
    _stream: ChangeStream

    async def __aenter__(self) -> Self:
        await self._thread.call(self._stream.__aenter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._thread.call(self._stream.__aexit__)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        async def following() -> object:
            return await anext(self._stream, _OVER)

        change = await self._thread.call(following)
        if change is _OVER:
            raise StopAsyncIteration
        return cast("Change", change)


def _same(value: Any) -> Any:
    return value


@attrs.frozen(eq=False)
class AsyncioClient:
    """A conversation with one server, for asyncio. Its functions are those of `Client`. Make it with `connect`."""

    _client: Client
    _thread: TrioThread

    @property
    def revision(self) -> Revision:
        return self._client.revision

    @property
    def server_info(self) -> Implementation | None:
        """The server's name as it says itself. Hearsay: for display, never for a decision."""
        return self._client.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        return self._client.server_capabilities

    @property
    def instructions(self) -> str | None:
        return self._client.instructions

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._client.is_lost

    async def _on_trio(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        return await self._thread.call(partial(function, *args, **options))

    async def tools(self) -> Sequence[Tool]:
        """All tools, kept as long as the server allows."""
        return await self._on_trio(self._client.tools)

    async def resources(self) -> Sequence[Resource]:
        return await self._on_trio(self._client.resources)

    async def templates(self) -> Sequence[ResourceTemplate]:
        return await self._on_trio(self._client.templates)

    async def prompts(self) -> Sequence[Prompt]:
        return await self._on_trio(self._client.prompts)

    @overload
    def call(
        self, tool: str, /, *, patience: Patience | None = None, task: Literal[True], **arguments: Any
    ) -> AsyncioCalling[AsyncioTask]: ...
    @overload
    def call(
        self, tool: str, /, *, patience: Patience | None = None, **arguments: Any
    ) -> AsyncioCalling[CallToolResult]: ...
    def call(self, tool: str, /, *given: Never, **options: Any) -> AsyncioCalling[Any]:
        """Call a tool: awaited it is the result, entered it also tells of progress. With `task=True` it may go on as a
        task. A cancelled asyncio task cancels the call at the server."""
        check_by_name("call", given)
        convert = self._task if options.get("task") is True else _same
        return AsyncioCalling(self._thread, lambda: self._client.call(tool, **options), convert)

    def call_with(
        self, tool: str, arguments: Mapping[str, Any], *, patience: Patience | None = None
    ) -> AsyncioCalling[CallToolResult]:
        """As `call`, for arguments that are no Python names, or come as they are."""
        return AsyncioCalling(self._thread, lambda: self._client.call_with(tool, arguments, patience=patience), _same)

    def _task(self, handle: TaskHandle) -> AsyncioTask:
        return AsyncioTask(self._thread, handle)

    def task(self, task_id: str) -> AsyncioTask:
        """The handle of a task that is known by its id. Nothing is asked yet: `refresh` does that."""
        return self._task(self._client.task(task_id))

    async def read(self, uri: str, *, patience: Patience | None = None) -> ReadResourceResult:
        """Read a resource, kept as long as the server allows."""
        return await self._on_trio(self._client.read, uri, patience=patience)

    async def prompt(
        self, name: str, /, *given: Never, patience: Patience | None = None, **arguments: str
    ) -> GetPromptResult:
        check_by_name("prompt", given)
        return await self.prompt_with(name, arguments, patience=patience)

    async def prompt_with(
        self, name: str, arguments: Mapping[str, str], *, patience: Patience | None = None
    ) -> GetPromptResult:
        """As `prompt`, for arguments that are no Python names, or come as they are."""
        return await self._on_trio(self._client.prompt_with, name, arguments, patience=patience)

    async def complete(
        self, of: str, argument: str, value: str, *, settled: Mapping[str, str] | None = None
    ) -> Candidates:
        """Candidates for an argument of a prompt (by name), or of a template (by its text)."""
        return await self._on_trio(self._client.complete, of, argument, value, settled=settled)

    async def request(self, method: str, /, *, patience: Patience | None = None, **params: Any) -> JSONObject:
        """Ask for a method that the specification does not have, of an extension."""
        return await self._on_trio(self._client.request, method, patience=patience, **params)

    async def notify(self, method: str, /, **params: Any) -> None:
        """Send a notification that the specification does not have, of an extension."""
        await self._thread.call(partial(self._client.notify, method, **params))

    async def ping(self, *, patience: Patience | None = None) -> None:
        await self._on_trio(self._client.ping, patience=patience)

    async def set_log_level(self, level: LoggingLevel) -> None:
        await self._on_trio(self._client.set_log_level, level)

    def listen(
        self, *, tools: bool = False, prompts: bool = False, lists: bool = False, resources: Sequence[str] = ()
    ) -> AsyncioChanges:
        """Hear of changes: `async with client.listen(tools=True) as changes: async for change in changes: ...`"""
        stream = self._client.listen(tools=tools, prompts=prompts, lists=lists, resources=resources)
        return AsyncioChanges(self._thread, stream)


@asynccontextmanager
async def connect(target: Target, **common: Unpack[Common]) -> AsyncIterator[AsyncioClient]:
    """Connect to an MCP server, from asyncio: target and options are those of `callboard.connect`.

    *sampling*, *elicitation*, *roots*, *on_log*, *on_stderr* and the functions of *extensions* run in this asyncio
    loop. The client itself runs on Trio, in one thread for all connections of this loop.

    Raises `CannotConnect` or `NotAuthorized` with the reason, in one line.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("callboard.asyncio.connect runs on asyncio; on Trio use callboard.connect") from None
    options = cast("Common", crossed(loop, dict(common)))
    async with (
        shared_trio_thread() as thread,
        thread.hold(lambda: connect_on_trio(target, **options)) as client,
    ):
        yield AsyncioClient(client, thread)
