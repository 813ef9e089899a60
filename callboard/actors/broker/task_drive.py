"""Calls that a backend answers by a task, and that the broker sees through: it asks for the task until that is final.

What becomes of it is the result of the call. The call may be one that its client waits for, or one that goes on as a
task of the broker's own (`HostedTask`), which tells its client how the backend's stands. BRIDGING.md, section 14.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final, Never

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard import tree
from callboard.actors.broker.backend import LONG, Backend
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.forward import Forward
from callboard.actors.broker.input_bridge import InputRefused
from callboard.actors.broker.leases import Lease
from callboard.actors.client.conversation import Patience
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.task import HostedTask
from callboard.actors.server.task_exchange import TaskExchange
from callboard.actors.undo import undo_unless_done
from callboard.codecs.bridge.results import COMPLETE, Forwarded
from callboard.codecs.bridge.shapes import UnfitResult
from callboard.codecs.bridge.tasks import EXTENSION, has_task_extension, runs_tasks, unrelated, wants_tasks
from callboard.codecs.envelope import ErrorResponse, ResultResponse
from callboard.codecs.members import Members, raw, read_members
from callboard.codecs.revisions import Model, declares, meta, write
from callboard.codecs.revisions.inputs import InputRequest
from callboard.codecs.tasks import SHORTEST_POLL, TaskView, created_task, read_task
from callboard.errors import (
    INTERNAL_ERROR,
    CannotConnect,
    ConnectionLost,
    HttpRefused,
    Overloaded,
    PeerError,
    RequestFailed,
    RequestTimedOut,
    SupervisorClosed,
)
from callboard.supervisor import Actor
from callboard.supervisor.groups import own_nursery

FAREWELL: Final = 10.0
"""Seconds for a backend to cancel a task that is no longer wanted."""

POLL_TRIES: Final = 5
"""Times in a row that a backend may fail to say how a task stands; its connection may be another one each time."""

MAX_ASKED: Final = 1024
"""Most questions that one task of a backend may ask in all: each key is remembered for the life of the task."""

MAX_ASKED_BYTES: Final = 1024 * 1024
"""Most bytes of all of these: they are kept until they are answered, and their keys for the life of the task."""

_NAMES: Final = count(1)


class _TaskError(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: Raw | msgspec.UnsetType = UNSET


def held_task(exchange: Exchange | None) -> HostedTask | None:
    """The broker's own task that a call is, or may become."""
    task = exchange.task if isinstance(exchange, TaskExchange) else None
    return task if isinstance(task, HostedTask) else None


def _begin(exchange: Exchange | None, view: TaskView) -> None:
    """The backend has made a task of a call: so does the broker, if there is a client that can take one."""
    if (held := held_task(exchange)) is not None:
        if view.seconds is not None:
            held.keep_for(view.seconds)
        _mirror(exchange, view)
        held.defer()


def _mirror(exchange: Exchange | None, view: TaskView) -> None:
    if (held := held_task(exchange)) is not None:
        held.poll_interval, held.status_message = view.pause, view.status_message


def _deadline(forward: Forward) -> float:
    """When a call that its client waits for has taken too long. A task has its own time."""
    held = held_task(forward.exchange)
    return trio.current_time() + forward.to.backend.settings.cap if held is None else math.inf


class LegacyDrive(Forward):
    """A call that its backend (2025-11-25) takes only as a task, and its client not in that form."""

    __slots__ = ()

    async def ask(self, body: dict[str, Any]) -> ResultResponse | ErrorResponse:
        backend, connection = self.to.backend, self.connection
        if not runs_tasks(connection.revision, connection.agreed.capabilities):
            return await super().ask(body)
        held = held_task(self.exchange)
        ttl = backend.settings.cap if held is None else held.ttl
        created = await super().ask({**body, "task": {"ttl": int(ttl * 1000)}})
        view = None if isinstance(created, ErrorResponse) else created_task(connection.revision, created.result)
        if view is None:
            return created
        self.task = view.task_id
        _begin(self.exchange, view)
        with undo_unless_done(partial(_withdraw, self, {"taskId": view.task_id})):
            answer = await self._see_through(view)
        return unrelated(answer)

    async def _see_through(self, view: TaskView) -> ResultResponse | ErrorResponse:
        about, late = {"taskId": view.task_id}, _deadline(self)
        while view.status == "working":
            await trio.sleep(view.pause)
            if trio.current_time() >= late:
                raise RequestTimedOut(after=self.to.backend.settings.cap)
            answer = await self.connection.send("tasks/get", dict(about), Lease(), self.patience())
            if isinstance(answer, ErrorResponse):
                return answer
            view = read_task(answer.result)
            _mirror(self.exchange, view)
        return await self.connection.send("tasks/result", dict(about), self, until_final(self))


class ExtensionDrive(Forward):
    """A call of a modern backend with the extension of tasks, for a client that has no task there.

    The extension is declared to the backend from the start if the broker holds a task for the client, which can have
    one; else only when the backend says that it takes the call in no other way.
    """

    __slots__ = ("_answered", "_asked_bytes", "_said", "is_declared")

    is_declared: bool
    _asked_bytes: int
    _said: Mapping[str, Raw]
    """The `_meta` of all requests about the task."""
    _answered: trio.Event

    async def converse(self) -> Model | Forwarded:
        try:
            return await super().converse()
        except InputRefused as refused:
            return self._unanswered(refused)

    async def ask(self, body: dict[str, Any]) -> ResultResponse | ErrorResponse:
        connection = self.connection
        if not has_task_extension(connection.revision, connection.agreed.capabilities):
            return await super().ask(body)
        if not self.is_declared:
            answer = await self._ask_plainly(body)
            if answer is not None:
                return answer
            self.is_declared = True
        self._said = _able(body.get("_meta", {}))
        answer = await super().ask({**body, "_meta": self._said})
        view = None if isinstance(answer, ErrorResponse) else created_task(connection.revision, answer.result)
        if view is None:
            return answer
        _begin(self.exchange, view)
        with undo_unless_done(partial(_withdraw, self, self._about(view))):
            return await self._see_through(view)

    async def _ask_plainly(self, body: dict[str, Any]) -> ResultResponse | ErrorResponse | None:
        """Ask as if there were no tasks; None if the backend wants one."""
        try:
            answer = await super().ask(body)
        except HttpRefused as refused:
            if not isinstance(refused.error, ErrorResponse) or not wants_tasks(refused.error):
                raise
            return None
        return None if isinstance(answer, ErrorResponse) and wants_tasks(answer) else answer

    def _about(self, view: TaskView, **more: Any) -> dict[str, Any]:
        return {"taskId": view.task_id, **more, "_meta": self._said}

    async def _see_through(self, view: TaskView) -> ResultResponse | ErrorResponse:
        late, asked = _deadline(self), set[str]()
        self._asked_bytes = 0
        async with own_nursery(takes_first=True) as nursery:
            while not view.is_final:
                for key, request in self._questions(view, asked).items():
                    asked.add(key)
                    nursery.start_soon(self._answer, view, key, request)
                await self._pause(view)
                if trio.current_time() >= late and not nursery.child_tasks:
                    raise RequestTimedOut(after=self.to.backend.settings.cap)
                answer = await self._get(view)
                if isinstance(answer, ErrorResponse):
                    nursery.cancel_scope.cancel()
                    return answer
                view = read_task(answer.result)
                _mirror(self.exchange, view)
            nursery.cancel_scope.cancel()
        return self._outcome(view)

    async def _pause(self, view: TaskView) -> None:
        """Wait as long as the backend wishes; or until it has an answer, which it may act on at once."""
        self._answered = trio.Event()
        with trio.move_on_after(view.pause):
            await self._answered.wait()
            await trio.sleep(SHORTEST_POLL)

    async def _get(self, view: TaskView) -> ResultResponse | ErrorResponse:
        """Ask how it stands. A modern server may be reached again after a connection was lost."""
        for attempt in range(1, POLL_TRIES + 1):
            try:
                return await self._send("tasks/get", self._about(view))
            except (RequestTimedOut, ConnectionLost, CannotConnect):
                if self.connection.is_lost or attempt == POLL_TRIES:
                    raise
            await trio.sleep(view.pause)
        raise AssertionError  # the last attempt returns or raises

    async def _send(self, method: str, body: dict[str, Any]) -> ResultResponse | ErrorResponse:
        use, patience = Lease(self.exchange, self.principal), self.to.backend.patience
        try:
            return await self.connection.send(method, body, use, patience)
        except HttpRefused as refused:
            if not isinstance(refused.error, ErrorResponse):
                raise
            return refused.error

    def _questions(self, view: TaskView, asked: set[str]) -> Mapping[str, InputRequest]:
        """What it wants to know, and has not asked before."""
        new = {key: one for key, one in (view.input_requests or {}).items() if key not in asked}
        if view.status != "input_required" or not new:
            return {}
        if len(asked) + len(new) > MAX_ASKED:
            raise UnfitResult(f"more than {MAX_ASKED} questions of one task")
        size = sum(len(key.encode()) + len(one) for key, one in new.items())
        self._asked_bytes += size
        if self._asked_bytes > MAX_ASKED_BYTES:
            raise UnfitResult(f"more than {MAX_ASKED_BYTES} bytes of questions of one task")
        if (held := held_task(self.exchange)) is not None and held.is_registered:
            held.store.grow(held, size)
        return self._asking.questions({"inputRequests": raw(new)})

    async def _answer(self, view: TaskView, key: str, request: InputRequest) -> None:
        answer = await self._asking.answer_one(key, request)
        given = {key: write(self.connection.revision, answer)}
        await self._send("tasks/update", self._about(view, inputResponses=given))
        self._answered.set()

    def _outcome(self, view: TaskView) -> ResultResponse | ErrorResponse:
        """What the task came to, as the answer to its call. Raises `UnfitResult`."""
        if view.status == "completed" and view.result is not UNSET:
            try:
                return ResultResponse(0, {**read_members(view.result), "resultType": COMPLETE})
            except PeerError as error:
                raise UnfitResult(f"not a result: {error}") from None
        if view.status == "cancelled":
            if (held := held_task(self.exchange)) is not None:
                held.cancel()
            return ErrorResponse(0, INTERNAL_ERROR, "the task was cancelled")
        try:
            told = msgspec.json.decode(b"{}" if view.error is UNSET else view.error, type=_TaskError)
        except msgspec.MsgspecError:
            raise UnfitResult("not an error of a task") from None
        return ErrorResponse(0, told.code, told.message or view.status_message or "the task failed", told.data)


def drive_extension(*, is_declared: bool) -> Callable[..., ExtensionDrive]:
    """Makes drives: as the class, with what is to be declared."""

    def make(*given: Any) -> ExtensionDrive:
        made = ExtensionDrive(*given)
        made.is_declared = is_declared
        return made

    return make


def _able(said: Mapping[str, Raw] | Raw) -> dict[str, Raw]:
    """The `_meta` of a request, which declares the extension of tasks also."""
    members = dict(read_members(said) if isinstance(said, Raw) else said)
    capabilities = dict(read_members(members.get(meta.CLIENT_CAPABILITIES, Raw(b"{}"))))
    known: Members = read_members(capabilities["extensions"]) if "extensions" in capabilities else {}
    capabilities["extensions"] = raw({**known, EXTENSION: {}})
    return {**members, meta.CLIENT_CAPABILITIES: raw(capabilities)}


def until_final(forward: Forward) -> Patience:
    """The silence of a backend that is asked for an outcome means nothing: it works."""
    cap = forward.to.backend.settings.cap if held_task(forward.exchange) is None else LONG
    return Patience(timeout=cap, cap=LONG if forward.may_ask else cap)


@attrs.define(eq=False)
class _Withdrawal(Actor[Never]):
    """Cancels a task that no request waits for any more. Until that is done, its questions go to no other client."""

    mailbox = None

    backend: Backend
    connection: BackendConnection
    about: dict[str, Any]
    asking: Lease
    use: Lease
    account: str

    async def run(self) -> None:
        try:
            patience = Patience(timeout=FAREWELL, cap=FAREWELL)
            await self.connection.send("tasks/cancel", self.about, self.asking, patience)
        except (RequestFailed, CannotConnect):
            pass  # it will expire
        finally:
            self.backend.pool.withdrawals.give_back(self.account)
            self.backend.give_back(self.connection, self.use)


def _withdraw(forward: Forward, about: dict[str, Any]) -> None:
    """Never waits: its caller may be cancelled. A task that one client too often gives up runs out its time instead."""
    backend, connection = forward.to.backend, forward.connection
    is_modern = connection.revision.dialect.has_extensions
    if connection.is_lost or not (is_modern or declares(connection.agreed.capabilities, "tasks.cancel")):
        return
    account = forward.principal if forward.exchange is None else forward.exchange.slot.account
    try:
        backend.pool.withdrawals.take(account)
    except Overloaded:
        connection.note("task_not_withdrawn", reason="too many are being withdrawn")
        return
    use = Lease(may_ask=forward.may_ask)
    asking = Lease(forward.exchange, forward.principal) if is_modern else Lease()
    connection.begin(use)
    try:
        backend.group.supervisor_of(tree.ANSWERS).spawn(
            _Withdrawal(backend, connection, about, asking, use, account), name=f"t-{next(_NAMES)}"
        )
    except SupervisorClosed:  # the backend ends, and its tasks with it
        backend.pool.withdrawals.give_back(account)
        backend.give_back(connection, use)
