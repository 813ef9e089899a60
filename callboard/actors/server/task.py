"""A hosted task: a call that goes on after its request was answered with a handle, as an actor of its own."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, Never, Protocol, TypeAlias

import attrs
import msgspec
import trio
from msgspec import Raw
from trio.lowlevel import ParkingLot

from callboard.actors.frames import Outcome, answer_frame, error_frame, text_frame
from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.server.client_requests import ClientRequest
from callboard.actors.server.exchange import Handler
from callboard.actors.server.input_rounds import REQUESTS
from callboard.actors.server.reply_slot import ReplySlot, has_failed
from callboard.actors.server.task_exchange import TaskExchange
from callboard.codecs.members import write_members
from callboard.codecs.revisions import Model, write
from callboard.codecs.revisions.calls import Structured
from callboard.codecs.tasks import FINAL, TaskStatus
from callboard.errors import Draining, RequestFailed
from callboard.supervisor import Actor, Fact, Unfinished
from callboard.supervisor.ended import drop_frames
from callboard.supervisor.groups import sole

MAX_OUTCOME: Final = 8 * 1024 * 1024 - 65_536
"""Largest outcome of a task, in bytes, with room for what tells it: many are kept, so not all that an answer may be."""

MAX_STATUS_MESSAGE: Final = 1024
"""Longest message about the state of a task, in characters: every poll repeats it."""

HearTask: TypeAlias = Callable[[str], None]
"""Told the id of a task that has changed. Never waits."""


class _Framed(msgspec.Struct):
    result: Raw = Raw(b"{}")
    error: Raw = Raw(b"{}")


_READ: Final = msgspec.json.Decoder(_Framed)


class TaskKeeper(Protocol):
    """Where tasks are kept: the `TaskStore`."""

    def grow(self, task: "HostedTask", size: int) -> None:
        """Count its outcome too. Raises `Overloaded`."""

    def forget(self, task: "HostedTask") -> None:
        """It is over. Harmless twice."""


@attrs.define(eq=False)
class TaskInput:
    """A question of a task, under the key that its client answers it by."""

    key: str
    question: ClientRequest
    answer: Model | Exception | None = None
    is_sent: bool = False
    """Whether a request asks it now: in 2025-11-25, while the result is waited for."""


def _said(task: "HostedTask", _: object, text: str) -> str:
    said = text[:MAX_STATUS_MESSAGE]
    if said != task.status_message:
        task.change()
    return said


@attrs.define(eq=False)
class HostedTask(Actor[Never]):
    """One call that may outlive its request. It stays until its time is over, so that its outcome can be fetched."""

    mailbox = None
    begin_stop = None

    id: str
    store: TaskKeeper
    handler: Handler
    ttl: float
    poll_interval: float
    guarded: tuple[str, str]
    """The server that its tool belongs to, and the tool, as rules name them."""
    exchange: TaskExchange = attrs.field(init=False)
    status: TaskStatus = attrs.field(default="working", init=False)
    status_message: str = attrs.field(default="", init=False, on_setattr=_said)
    created_at: str = attrs.field(factory=lambda: _now(), init=False)
    updated_at: str = attrs.field(factory=lambda: _now(), init=False)
    expires: float = attrs.field(default=math.inf, init=False)
    is_registered: bool = attrs.field(default=False, init=False)
    wants_handle: bool = attrs.field(default=False, init=False)
    """Whether its request is to be answered by a handle now, if its client can take one."""
    is_fetched: bool = attrs.field(default=False, init=False)
    """Whether its client has got the outcome: then it makes room for another one."""
    is_ended: bool = attrs.field(default=False, init=False)
    outcome: Outcome | Exception | None = attrs.field(default=None, init=False)
    """Of a call that never became a task: its request answers it."""
    result: Raw | None = attrs.field(default=None, init=False)
    error: Raw | None = attrs.field(default=None, init=False)
    inputs: dict[str, TaskInput] = attrs.field(factory=dict, init=False)
    size: int = attrs.field(default=0, init=False)
    followers: dict[HearTask, None] = attrs.field(factory=dict, init=False)
    ways: dict[ReplySlot, None] = attrs.field(factory=dict, init=False)
    """The ways to a client of 2025-11-25: a lasting connection, or a request for the result that waits."""
    _told_status: TaskStatus = attrs.field(default="working", init=False)
    _failure: Exception | None = attrs.field(default=None, init=False)
    _keys: Counter[str] = attrs.field(factory=Counter, init=False)
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _changed: ParkingLot = attrs.field(factory=ParkingLot, init=False)
    _work: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self) -> None:
        try:
            async with self.cancel_on_stop():
                with self._work:
                    self._end(await self._perform())
                if self.is_registered:
                    await trio.sleep_until(self.expires)
        finally:
            self.is_ended = True
            self.store.forget(self)
            self.change()

    def facts(self) -> Mapping[str, Fact]:
        return {"state": self.status if self.is_registered else "running", "tool": self.exchange.target}

    async def _perform(self) -> Outcome | Exception:
        try:
            return await self.handler(self.exchange)
        except Exception as error:  # the handler's own: answered, of any type
            return sole(error)

    # What it comes to.

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    def is_over(self) -> bool:
        """Whether its request need not wait any longer: the call has an outcome, or was ended."""
        return self.outcome is not None or self.is_ended

    def register(self, now: float) -> None:
        """From now on its client knows it by its id, and its request is answered."""
        slot = None if self.exchange.front is None else self.exchange.front.slot
        self.is_registered, self.expires = True, now + self.ttl
        self._work.deadline = self.expires
        self.exchange.front = None
        if slot is not None and slot.is_shared and slot.terms.revision.dialect.has_tasks:
            self.ways[slot] = None

    def keep_for(self, seconds: float) -> None:
        """Keep it no longer than that from now on, and tell its client so."""
        self.ttl = min(self.ttl, max(seconds, 1.0))
        if self.is_registered:
            self.expires = self._work.deadline = min(self.expires, trio.current_time() + self.ttl)

    def defer(self) -> None:
        """Have its request answered by a handle now, if its client can take one."""
        self.wants_handle = True
        self.change()

    def _end(self, outcome: Outcome | Exception) -> None:
        if not self.is_registered:
            self.outcome = outcome
        elif not self.is_final:
            try:
                self._keep(outcome)
            except (RequestFailed, ValueError) as error:
                self.fail(error)
        self.change()

    def _keep(self, outcome: Outcome | Exception) -> None:
        """Raises `RequestFailed` for an outcome that is too large."""
        slot = self.exchange.slot
        revision = slot.terms.revision
        if isinstance(outcome, Exception):
            self.fail(outcome)
            return
        if isinstance(outcome, (str, Structured)):
            frame, error = text_frame(0, revision, outcome, slot.server_info, self.exchange)
        else:
            frame, error = answer_frame(0, revision, slot.method, outcome, slot.server_info, self.exchange)
        if error is None and len(frame) > MAX_OUTCOME:
            error = RequestFailed(f"the outcome is larger than {MAX_OUTCOME} bytes")
        if error is not None:
            raise error if isinstance(error, RequestFailed) else RequestFailed("the outcome cannot be told")
        self.store.grow(self, len(frame))
        self.result = _READ.decode(frame).result
        failed = revision.dialect.has_tasks and not isinstance(outcome, (str, Structured)) and has_failed(outcome)
        self._become("failed" if failed else "completed")

    def fail(self, error: Exception) -> None:
        """It ends with an error of the protocol."""
        self._failure = error
        self.error = _READ.decode(error_frame(0, self.exchange.terms.revision, error)).error
        said = str(msgspec.json.decode(self.error).get("message", ""))
        drop_frames(error)
        self.status_message = self.status_message or said
        self._become("failed")

    def cancel(self) -> None:
        """Its client does not want it any more. Nothing happens if it is final."""
        if not self.is_final:
            self._become("cancelled")
            self._work.cancel()

    def _become(self, status: TaskStatus) -> None:
        self.status = status
        self.change()

    def change(self) -> None:
        """Something about it is another now."""
        self.updated_at = _now()
        self._changed.unpark_all()
        for hear in self.followers:
            hear(self.id)
        if self.ways and self.status != self._told_status:
            self._told_status = self.status
            self._tell_legacy()

    def _tell_legacy(self) -> None:
        """Tell a client of 2025-11-25 where it stands: a courtesy, which it must not count on."""
        told = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": self.told_legacy()}
        slot = next(reversed(self.ways))
        slot.outlet.send_nowait(Outbound(write_members(told), FrameKind.CHANGE, ("task", self.id)))

    async def wait_change(self) -> None:
        await self._changed.park()

    # What it asks.

    async def ask(self, questions: Sequence[ClientRequest]) -> list[Model]:
        """Ask its client, which hears of it when it asks for the task. Raises the refusal of the client."""
        asked = [TaskInput(self._key(question), question) for question in questions]
        self.inputs |= {one.key: one for one in asked}
        self._count_inputs()
        try:
            while any(one.answer is None for one in asked):
                await self._changed.park()
                for one in asked:
                    if isinstance(one.answer, Exception):
                        raise one.answer
        finally:
            for one in asked:
                self.inputs.pop(one.key, None)
            self._count_inputs()
        return [one.answer for one in asked if isinstance(one.answer, Model)]

    def _key(self, question: ClientRequest) -> str:
        """No key is used twice."""
        key = question.key or f"q{next(self._numbers)}"
        self._keys[key] += 1
        if self._keys[key] == 1:
            return key
        return f"{key}~{self._keys[key]}"

    @property
    def is_asking(self) -> bool:
        """Whether it waits for an answer of its client."""
        return bool(self.open_inputs())

    def open_inputs(self) -> list[TaskInput]:
        return [one for one in self.inputs.values() if one.answer is None]

    def answer(self, answers: Mapping[str, Model | Exception]) -> None:
        """Take answers of the client. Those that no question waits for are ignored."""
        for key, answer in answers.items():
            if key in self.inputs and self.inputs[key].answer is None:
                self.inputs[key].answer = answer
        self._count_inputs()

    def _count_inputs(self) -> None:
        if not self.is_final:
            self._become("input_required" if self.open_inputs() else "working")

    # What its client is told.

    def told(self, *, result_type: str = "complete") -> dict[str, Any]:
        """As the extension has it."""
        told: dict[str, Any] = {"resultType": result_type, **self._standing()}
        told |= {"ttlMs": round(self.ttl * 1000), "pollIntervalMs": max(round(self.poll_interval * 1000), 1)}
        return told

    def told_whole(self) -> dict[str, Any]:
        """With its outcome, or what it asks."""
        told, revision = self.told(), self.exchange.terms.revision
        if self.status == "completed":
            told["result"] = self.result
        elif self.status == "failed":
            told["error"] = self.error
        elif self.status == "input_required":
            told["inputRequests"] = {
                one.key: write(revision, REQUESTS[one.question.method](params=one.question.params))  # type: ignore[call-arg]
                for one in self.open_inputs()
            }
        return told

    def told_legacy(self) -> dict[str, Any]:
        """As 2025-11-25 has it."""
        return {
            **self._standing(),
            "ttl": round(self.ttl * 1000),
            "pollInterval": max(round(self.poll_interval * 1000), 1),
        }

    def _standing(self) -> dict[str, Any]:
        said = {"statusMessage": self.status_message} if self.status_message else {}
        about = {"taskId": self.id, "status": self.status, **said}
        return {**about, "createdAt": self.created_at, "lastUpdatedAt": self.updated_at}

    def failure(self) -> Exception:
        """What it failed with."""
        return self._failure or RequestFailed("the task was cancelled")

    # How it is drained: it may finish, but not wait for its client, whose answer is not taken any more. Then it fails,
    # and requests that wait for it say so.

    def unfinished(self) -> Iterable[Unfinished]:
        return (self,) if self.is_registered and self.cut_short() else ()

    async def wait_over(self) -> None:
        while self.cut_short() and not self.is_asking:
            await self.wait_change()

    def cut_short(self) -> bool:
        return not self.is_final and not self.is_ended

    async def part(self) -> None:
        self.fail(Draining())
        self._work.cancel()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
