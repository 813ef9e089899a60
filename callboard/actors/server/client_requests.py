"""Questions to a client: what a handler may ask, what the client must have declared, and the legacy way to ask it."""

import math
from collections.abc import Callable
from itertools import count
from typing import Any, Final

import attrs
import trio
from msgspec import UNSET

from callboard.actors.frames import notification_frame, request_frame
from callboard.actors.lifecycle import NOT_NEEDED
from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.terms import Terms
from callboard.codecs.envelope import ErrorResponse, RequestId, ResultResponse
from callboard.codecs.members import write_members
from callboard.codecs.revisions import (
    LATEST,
    METHODS,
    CancelledNotificationParams,
    CreateMessageRequestParams,
    ElicitationCompleteNotificationParams,
    ElicitRequestURLParams,
    Model,
    RequestMetaObject,
    RequestParams,
    Revision,
    declares,
    meta,
    read_result,
)
from callboard.errors import MissingCapability, PeerError, PeerRefused, RequestTimedOut
from callboard.supervisor import Snapshot

ANSWER_TIME: Final = 600.0
"""Seconds that a client has for an answer: as long as a request may take, since a person may have to think."""


MAX_ELICITATIONS: Final = 64
"""Pages of one session that are remembered until their user is done with them: as many as requests in flight."""


@attrs.frozen
class ClientRequest:
    """Something that only the client can answer. *key* is its name in a modern round, if it must have one; *task* that
    of the task it belongs to (2025-11-25), as the client knows it."""

    method: str
    params: Model
    key: str | None = None
    task: str | None = None

    @property
    def needs(self) -> str:
        """The capability without which it may not be asked, as a dotted path."""
        match self.params:
            case ElicitRequestURLParams():
                return "elicitation.url"
            case CreateMessageRequestParams(tools=tools) if tools is not UNSET:
                return "sampling.tools"
        return {"elicitation/create": "elicitation.form", "sampling/createMessage": "sampling"}.get(
            self.method, "roots"
        )


def check_may_ask(method: str) -> None:
    """Raises `RuntimeError` if *method* may not ask the client: in every revision what the latest one says. What a task
    wants to know is asked while its result is waited for."""
    if LATEST not in METHODS[method].may_ask and method != "tasks/result":
        raise RuntimeError(f"a handler of {method} cannot ask the client; tools, prompts and resources can")


def check_declared(question: ClientRequest, terms: Terms) -> None:
    """Raises `MissingCapability` if the client did not say that it can answer."""
    if not declares(terms.capabilities, question.needs):
        # `elicitation: {}` means forms in every revision.
        path = question.needs.removesuffix(".form").split(".")
        required: dict[str, object] = {}
        for name in reversed(path):
            required = {name: required}
        raise MissingCapability(question.needs, required)


@attrs.define(eq=False)
class OpenQuestion:
    """A question on its way. The scope's deadline moves when the client reports progress."""

    method: str
    began: float = attrs.field(factory=trio.current_time)
    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: ResultResponse | ErrorResponse | None = None
    patience: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_sent: bool = False
    slot: ReplySlot | None = None
    """Of the request that it belongs to."""


@attrs.define(eq=False)
class ClientRequests:
    """The questions that one legacy client has not answered yet. It is asked nothing before it is `ready`."""

    ready: trio.Event = attrs.field(factory=trio.Event, init=False)
    _open: dict[RequestId, OpenQuestion] = attrs.field(factory=dict, init=False)
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    def __len__(self) -> int:
        return len(self._open)

    def snapshots(self, path: str, now: float) -> tuple[Snapshot, ...]:
        """The questions, as the tree shows them below the session at *path*."""
        return tuple(
            Snapshot(
                name=f"asked-{request_id}",
                path=f"{path}/asked-{request_id}",
                kind="OutgoingRequest",
                state="waiting" if mine.is_sent else "not sent yet",
                age=now - mine.began,
                facts={"method": mine.method, "deadline": round(mine.patience.deadline - now, 3)},
            )
            for request_id, mine in self._open.items()
        )

    async def ask(self, question: ClientRequest, slot: ReplySlot) -> Model:
        """Ask on the way of *slot* and wait for the answer.

        Raises `PeerRefused` for an error, `RequestTimedOut` when the time is over: each progress report begins it anew,
        up to what the request has that asks. A task that stops waiting takes the question back.
        """
        request_id, revision = next(self._ids), slot.terms.revision
        mine = self._open[request_id] = OpenQuestion(question.method, slot=slot)
        self.extend(request_id)
        try:
            with mine.patience:
                await self.ready.wait()
                await slot.outlet.send(Outbound(self._frame(request_id, revision, question), FrameKind.QUESTION))
                mine.is_sent = True
                await mine.answered.wait()
        finally:
            del self._open[request_id]
            self._take_back(request_id, mine)
        match mine.answer:
            case ResultResponse(result=result):
                return read_result(revision, question.method, write_members(result))
            case ErrorResponse(code=code, message=message):
                raise PeerRefused(code, message)
        raise RequestTimedOut(after=ANSWER_TIME)

    def ping(self, slot: ReplySlot) -> OpenQuestion | None:
        """Send a ping on the way of *slot*, and wait for nothing: `forget` it later. None if it cannot be sent now."""
        request_id = next(self._ids)
        frame = request_frame(request_id, slot.terms.revision, "ping", RequestParams())
        if not slot.outlet.try_send(Outbound(frame, FrameKind.QUESTION)):
            return None
        mine = self._open[request_id] = OpenQuestion("ping", is_sent=True)
        mine.patience.deadline = math.inf
        return mine

    def forget(self, ping: OpenQuestion) -> None:
        """An answer to *ping* that still comes is ignored."""
        self._open = {request_id: mine for request_id, mine in self._open.items() if mine is not ping}

    def take_back(self, slot: ReplySlot) -> None:
        """The request of *slot* is over: tell the client, as long as its way is open, that it need not answer."""
        for request_id, mine in self._open.items():
            if mine.slot is slot:
                self._take_back(request_id, mine)

    def _take_back(self, request_id: RequestId, mine: OpenQuestion) -> None:
        if mine.answer is None and mine.is_sent and mine.slot is not None:
            mine.is_sent = False
            params = CancelledNotificationParams(request_id=request_id, reason=NOT_NEEDED)
            frame = notification_frame(mine.slot.terms.revision, "notifications/cancelled", params)
            mine.slot.outlet.send_nowait(Outbound(frame))

    def extend(self, token: RequestId) -> bool:
        """The client works on it. False if no task waits for that (any more)."""
        mine = self._open.get(token)
        if mine is not None:
            mine.patience.deadline = trio.current_time() + ANSWER_TIME
        return mine is not None

    def settle(self, answer: ResultResponse | ErrorResponse) -> bool:
        """Deliver an answer. False if no task waits for it (any more)."""
        mine = None if answer.id is None else self._open.get(answer.id)
        if mine is None or mine.answer is not None:
            return False
        mine.answer = answer
        mine.answered.set()
        return True

    def fail(self, error: PeerError) -> bool:
        """The client answered with what is no answer: its question fails now, and not when its time is over. False as
        above."""
        return self.settle(ErrorResponse(error.request_id, error.code, "invalid response of the client"))

    def _frame(self, request_id: RequestId, revision: Revision, question: ClientRequest) -> bytes:
        """The question, with its own id as the token to report progress by."""
        params: Any = question.params
        said = RequestMetaObject(progress_token=request_id)
        if question.task is not None:
            said = attrs.evolve(said, extra={meta.RELATED_TASK: {"taskId": question.task}})
        return request_frame(request_id, revision, question.method, attrs.evolve(params, meta=said))


@attrs.define(eq=False)
class SessionKey:
    """One session of a legacy client, told from all others by identity, and the way to ask that client."""

    name: str = attrs.field(default="", init=False)
    """Its id, if it has one that outlives this process."""
    questions: ClientRequests = attrs.field(factory=ClientRequests, init=False)
    is_over: bool = attrs.field(default=False, init=False)
    """Whether the session has ended: its client cannot be asked any more."""
    home: ReplySlot | None = attrs.field(default=None, init=False)
    """The session's own way, for questions that belong to none of its requests."""
    elicitations: dict[str, None] | None = attrs.field(default=None, init=False)
    """Ids of the pages that the client was sent to, the oldest first: it may be told when one is done with."""
    on_roots_changed: set[Callable[[], None]] = attrs.field(factory=set, init=False)
    """Called when the client says that its roots have changed."""

    def end(self) -> None:
        """The session has ended."""
        self.is_over, self.home = True, None
        self.on_roots_changed.clear()

    def sent_to(self, elicitation_id: str) -> None:
        """The client was sent to a page. The oldest of too many are forgotten."""
        self.elicitations = self.elicitations or {}
        self.elicitations[elicitation_id] = None
        if len(self.elicitations) > MAX_ELICITATIONS:
            del self.elicitations[next(iter(self.elicitations))]

    def tell_complete(self, elicitation_id: str) -> bool:
        """Tell the client that its user is done with a page. False if it was not sent there."""
        if self.home is None or self.elicitations is None or elicitation_id not in self.elicitations:
            return False
        del self.elicitations[elicitation_id]
        params = ElicitationCompleteNotificationParams(elicitation_id=elicitation_id)
        frame = notification_frame(self.home.terms.revision, "notifications/elicitation/complete", params)
        self.home.outlet.send_nowait(Outbound(frame, FrameKind.CHANGE, ("elicitation", elicitation_id)))
        return True

    def tell_roots_changed(self) -> None:
        for tell in list(self.on_roots_changed):
            tell()
