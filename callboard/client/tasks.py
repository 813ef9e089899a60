"""Calls that go on as tasks at a server: their handles."""

from collections.abc import Generator
from typing import Any, Final, Self, cast

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.client.conversation import Conversation, Patience
from callboard.actors.client.hearer import OnProgress
from callboard.actors.client.negotiate import refusal
from callboard.actors.client.task_calls import MAX_WAIT, ask_about, call_as_task
from callboard.client.cache import ListCache
from callboard.codecs.bridge.tasks import EXTENSION, is_task_missing, runs_tasks
from callboard.codecs.envelope import ResultResponse
from callboard.codecs.members import read_members
from callboard.codecs.revisions import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    InputRequiredResult,
    ServerCapabilities,
    read,
    write,
)
from callboard.codecs.tasks import TaskStatus, TaskView, read_task
from callboard.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BadAnswer,
    CallboardError,
    HttpRefused,
    InvalidParams,
    PeerError,
    ServerRefused,
    TaskCancelled,
)

FAREWELL: Final = 2.0
"""Seconds in which a server is told that a task is not wanted any more; then it is not told."""


MAX_ASKED: Final = 1024
"""Most questions that one task may ask in all: each key is remembered as long as its handle."""


class _Refused(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Raw | msgspec.UnsetType = UNSET


@attrs.define(eq=False)
class TaskHandle:
    """A call at a server that is answered later. Await it for its result; or look at it as it goes:

    ```python
    task = await client.call("compute", task=True, seconds=60)
    async for change in task:
        print(change.status, change.status_message)
    print((await task).content)
    ```

    What the task wants to know is answered by the callbacks of the client, while the handle is awaited or looked at.
    A server may answer at once all the same: then there is no id, and the handle has its result already.
    """

    tasks: "ClientTasks"
    tool: str | None
    """The tool that was called; None for a task that is known by its id alone."""
    view: TaskView | None = None
    """What the server told of it last; None if it has answered at once."""
    _result: CallToolResult | None = None
    _answered: set[str] = attrs.field(factory=set, init=False)

    @property
    def id(self) -> str | None:
        """The id of the task; None if the server has answered at once."""
        return None if self.view is None else self.view.task_id

    @property
    def status(self) -> TaskStatus:
        """`working`, `input_required`, `completed`, `failed` or `cancelled`, as the server told last."""
        return "completed" if self.view is None else self.view.status

    @property
    def status_message(self) -> str:
        """What the tool says about how far it is."""
        return "" if self.view is None else self.view.status_message

    @property
    def is_final(self) -> bool:
        """Whether the status will not change any more."""
        return self.view is None or self.view.is_final

    def __await__(self) -> Generator[Any, None, CallToolResult]:
        return self.wait().__await__()

    async def wait(self) -> CallToolResult:
        """Wait for the result. Raises `ServerRefused` for a task that failed, and `TaskCancelled`."""
        while not self.is_final:
            await self.step()
        if self._result is None:
            await trio.lowlevel.checkpoint()
            self._result = await self.tasks.outcome(self)
        return self._result

    def __aiter__(self) -> "TaskChanges":
        return TaskChanges(self)

    async def refresh(self) -> None:
        """Ask the server where it stands. Raises `ServerRefused` if the server does not know it any more."""
        if self.view is not None:
            self.view = await self.tasks.get(self.view.task_id)

    async def cancel(self) -> None:
        """No longer wanted: the server is told. A task that is final stays as it is."""
        if self.view is not None and not self.view.is_final:
            await self.tasks.cancel(self.view.task_id)
            await self.refresh()

    async def step(self) -> None:
        """Answer what it asks, or wait as long as the server wishes; then ask where it stands."""
        view = self.view
        if view is None or view.is_final:
            return
        asked = {key: one for key, one in (view.input_requests or {}).items() if key not in self._answered}
        if len(self._answered) + len(asked) > MAX_ASKED:
            raise BadAnswer(f"tasks/get: more than {MAX_ASKED} questions of one task")
        if asked:
            given = await self.tasks.answer(asked)
            await self.tasks.update(view.task_id, given)
            self._answered |= asked.keys()
        elif view.status == "input_required" and self.tasks.is_legacy:
            self._result = await self.tasks.outcome(self)  # it asks while its outcome is waited for
        else:
            await trio.sleep(view.pause)
        await self.refresh()

    async def see_through(self) -> CallToolResult:
        """As `wait`, for a caller that made a plain call: if that is given up, so is the task."""
        try:
            return await self.wait()
        finally:
            if not self.is_final:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + FAREWELL):
                    await self._withdraw()

    async def _withdraw(self) -> None:
        try:
            await self.cancel()
        except CallboardError:
            return  # it will expire


@attrs.define(eq=False)
class TaskChanges:
    """The handle of a task, as it is now and whenever it has changed; it ends when the task is final."""

    task: TaskHandle
    _is_begun: bool = attrs.field(default=False, init=False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TaskHandle:
        task = self.task
        if self._is_begun:
            if task.is_final:
                raise StopAsyncIteration
            before = task.status, task.status_message
            while (task.status, task.status_message) == before:
                await task.step()
        else:
            await trio.lowlevel.checkpoint()
        self._is_begun = True
        return task


@attrs.frozen(eq=False)
class ClientTasks:
    """Calls that may become tasks, at one server."""

    conversation: Conversation
    cache: ListCache
    patience: Patience
    offered: ServerCapabilities

    @property
    def is_legacy(self) -> bool:
        """Whether they are those of 2025-11-25, which are asked for by the client."""
        return self.conversation.revision.dialect.has_tasks

    async def begin(
        self,
        params: CallToolRequestParams,
        *,
        ttl: float | None = None,
        patience: Patience,
        on_progress: OnProgress | None = None,
    ) -> TaskHandle:
        """Call a tool, as a task if the server has that."""
        conversation, revision = self.conversation, self.conversation.revision
        if not revision.dialect.has_extensions and not runs_tasks(revision, self.offered):
            plain = await self.cache.call(params, patience, on_progress)
            return TaskHandle(self, params.name, None, cast("CallToolResult", plain))
        begun = await self.cache.with_headers(
            params.name,
            lambda headers: call_as_task(
                conversation, params, ttl=ttl, patience=patience, on_progress=on_progress, header_map=headers
            ),
        )
        if isinstance(begun, TaskView):
            return TaskHandle(self, params.name, begun)
        return TaskHandle(self, params.name, None, await self._checked(params.name, begun))

    def must_begin(self, declared: ClientCapabilities) -> bool:
        """Whether any call may become a task, since the client has declared that for all of them."""
        is_declared = declared.extensions is not UNSET and EXTENSION in declared.extensions
        return is_declared and self.conversation.revision.dialect.has_extensions

    def is_wanted(self, refused: ServerRefused | HttpRefused) -> bool:
        """Whether a server says that it takes the call only as a task."""
        code, data = refusal(refused)
        if code == METHOD_NOT_FOUND:
            return runs_tasks(self.conversation.revision, self.offered)
        return is_task_missing(code, data)

    async def get(self, task_id: str) -> TaskView:
        return read_task(await ask_about(self.conversation, "tasks/get", task_id, self.patience))

    async def cancel(self, task_id: str) -> None:
        try:
            await ask_about(self.conversation, "tasks/cancel", task_id, self.patience)
        except ServerRefused as refused:
            if not self.is_legacy or refused.error_code != INVALID_PARAMS:
                raise
            await self.get(task_id)  # it is final already, or there is none: then this says so

    async def answer(self, asked: dict[str, Raw]) -> dict[str, Any]:
        """The answers of the client's callbacks, all at once. Raises what they raise."""
        revision = self.conversation.revision
        wanted = {"resultType": "input_required", "inputRequests": asked, "requestState": ""}
        try:
            questions = read(revision, InputRequiredResult, msgspec.json.encode(wanted)).input_requests
        except InvalidParams as error:
            raise BadAnswer(f"tasks/get: {error}") from None
        given = await self.conversation.answering.answer_all(questions or {}, revision)
        return {key: write(revision, one) for key, one in given.items()}

    async def update(self, task_id: str, given: dict[str, Any]) -> None:
        more = {"inputResponses": given}
        await ask_about(self.conversation, "tasks/update", task_id, self.patience, more)

    async def outcome(self, task: TaskHandle) -> CallToolResult:
        """The result of a task. Raises `ServerRefused` and `TaskCancelled`."""
        view = task.view
        if view is None:
            raise BadAnswer("not a task")
        if view.status == "cancelled":
            raise TaskCancelled
        if self.is_legacy:
            endless = Patience(timeout=MAX_WAIT, cap=MAX_WAIT)
            members = await ask_about(self.conversation, "tasks/result", view.task_id, endless)
        elif view.status == "failed" or view.result is UNSET:
            raise _failure(view)
        else:
            members = _members(view.result)
        return await self._checked(task.tool, self.conversation.read("tools/call", ResultResponse(0, members)))

    async def _checked(self, tool: str | None, result: object) -> CallToolResult:
        if not isinstance(result, CallToolResult):
            raise BadAnswer("tools/call: not a result")
        return result if tool is None else await self.cache.checked(tool, result)


def _failure(view: TaskView) -> ServerRefused:
    try:
        told = msgspec.json.decode(b"{}" if view.error is UNSET else view.error, type=_Refused)
    except msgspec.MsgspecError:
        told = _Refused()
    message = told.message or view.status_message or "the task failed"
    return ServerRefused(told.code, message, None if told.data is UNSET else told.data)


def _members(result: Raw) -> dict[str, Raw]:
    try:
        return dict(read_members(result))
    except PeerError as error:
        raise BadAnswer(f"tasks/get: {error}") from None
