"""One operation of a client, from admission to its outcome. In the modern era it may span several front requests."""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from itertools import count
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import trio
from msgspec import UNSET

from callboard.actors.frames import Outcome
from callboard.actors.lifecycle import Consequence, Lifecycle, RequestEvent, RequestState
from callboard.actors.outlet import Carrier
from callboard.actors.rate import RateLimit
from callboard.actors.rules import AccessRules, Approval
from callboard.actors.server.client_requests import (
    ClientRequest,
    ClientRequests,
    SessionKey,
    check_declared,
    check_may_ask,
)
from callboard.actors.server.input_rounds import GATHER, InputRounds, PendingInput, given_in
from callboard.actors.server.log_levels import KEPT_LOGS, LOG_RATE, check_level, is_heard
from callboard.actors.server.progress import Progress, ProgressRelay, ProgressReport, ProgressTimer, Relayed, as_kept
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.shares import Shares
from callboard.actors.terms import Terms
from callboard.codecs.approval import ShownCall
from callboard.codecs.caller import caller_of_key
from callboard.codecs.envelope import Request
from callboard.codecs.home import Names
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import raw, write_members
from callboard.codecs.revisions import (
    LATEST,
    InputRequiredResult,
    JSONValue,
    LoggingLevel,
    LoggingMessageNotificationParams,
    Model,
    meta,
    read,
    read_result,
)
from callboard.codecs.routing import Route
from callboard.errors import RequestFailed
from callboard.supervisor import Address, Supervisor
from callboard.supervisor.audit import is_audited, note
from callboard.supervisor.ended import drop_frames
from callboard.supervisor.groups import own_nursery

P = TypeVar("P", bound=Model)

MAX_TARGET: Final = 128
"""Characters of a tool's name or a URI that the tree shows: they are the peer's own text."""

_NONE: Final[Mapping[str, Model]] = MappingProxyType({})

# Stands for a `_meta` that was read when the terms were: the least that the modern revision takes for one.
_SEEN: Final = raw({meta.PROTOCOL_VERSION: LATEST.value, meta.CLIENT_CAPABILITIES: {}})


class Parks(Protocol):
    """The place where an exchange waits for its client's next request."""

    async def park(self, exchange: "Exchange") -> None:
        """Answer the front request with what is asked for, and let go of it."""

    def leave(self, exchange: "Exchange") -> None:
        """The exchange is over, or was never parked."""

    async def hand_over(
        self, exchange: "Exchange", questions: Sequence[ClientRequest], payload: bytes
    ) -> InputRequiredResult:
        """Ask, and forget: the client keeps *payload*, sealed, and the retry is a fresh run that gets it back."""

    async def wrap(self, exchange: "Exchange", payload: bytes) -> str:
        """A state for the client to keep: the retry is a fresh run that gets *payload* back."""


class Operators(Protocol):
    """The calls that wait for an operator: `Approvals`."""

    async def wait(self, exchange: "Exchange", call: ShownCall, decide: Callable[[], Approval | None]) -> bool: ...


class RequestHost(Protocol):
    """The server's side of all requests, as each of them needs it: the `Host`."""

    cap: float
    """Seconds that a request may take."""
    context: Context
    """The context variables that each request begins with."""
    reports: ProgressTimer
    rules: AccessRules | None
    """What callers may use. None: everything."""

    @property
    def parking(self) -> Parks: ...

    @property
    def approvals(self) -> Operators: ...

    root: Supervisor
    numbers: "count[int]"
    """For names in the tree."""
    memory: Shares
    """What all clients take up."""
    task_names: Names
    """Makes the ids of tasks."""


class Running(Protocol):
    """The actor of a request that waits."""

    @property
    def why_cut(self) -> str: ...

    def expire(self, at: float) -> None: ...
    def pause(self) -> None: ...
    def go_on(self) -> None: ...
    def leave(self) -> None: ...


class Exchange(Lifecycle):
    """The request as its handler sees it, and its state.

    There is one for each request, and most never wait: what few of them need is a default of the class until then.
    """

    session: SessionKey | None = None  # of a legacy client; None for a modern one, whose requests stand alone
    carrier: Carrier | None = None  # the task that read it, if that can stay with it
    actor: Running | None = None  # once it has waited
    outcome: Outcome | Exception | None = None  # kept for a retry
    digest: bytes | None = None  # of what a retry must repeat, once it is worked out
    passed: Sequence[tuple[bytes, bytes]] = ()  # headers of its HTTP request that some backend gets
    carried: bytes | None = None  # what an earlier run gave the client to keep
    waits_for_operator: str | None = None  # what an operator must approve it by
    answers: Mapping[str, Model] = _NONE
    progress: Progress | None = None
    _rounds: InputRounds | None = None
    _relay: Address[Relayed] | None = None
    _kept_report: ProgressReport | None = None
    _kept_logs: "deque[LoggingMessageNotificationParams] | None" = None
    _asking: dict[trio.CancelScope, None] | None = None
    _logged: RateLimit | None = None

    def __init__(
        self, engine: RequestHost, request: Request, route: Route, slot: ReplySlot, supervisor: Supervisor
    ) -> None:
        self.engine = engine
        self.request = request
        self.route = route  # what was read of the request to find its handler
        self.slot = slot
        self.supervisor = supervisor  # under which it is in the tree
        self.kill: Callable[[str], None] = _does_not_wait

    @property
    def life(self) -> Lifecycle:
        """Its way through the table: itself. One object less for each request."""
        return self

    @property
    def parking(self) -> Parks:
        return self.engine.parking

    def hands_over(self) -> bool:  # whether a client keeps what its handler wants to find again in the next run
        return self.terms.revision.dialect.asks_in_results

    @property
    def target(self) -> str:
        """The tool, prompt or resource that it is about; empty for other methods."""
        return (self.route.name or self.route.uri or "")[:MAX_TARGET]

    @property
    def terms(self) -> Terms:
        """The terms of the latest front request."""
        return self.slot.terms

    @property
    def rounds(self) -> InputRounds:
        """The questions of a modern request; most ask none."""
        if self._rounds is None:
            self._rounds = InputRounds()
        return self._rounds

    @property
    def waits_for_client(self) -> bool:
        """Whether the client was asked something, and has not answered yet."""
        return self.life.state is RequestState.PARKED or bool(self._asking)

    def why_cancelled(self) -> str:
        """Why the client no longer wants it, in its own words; empty if it gave no reason."""
        return self.slot.reason

    def params(self, model: type[P]) -> P:
        """The typed params of the latest front request; its modern `_meta` is in the terms. Raises `InvalidParams`."""
        members = self.request.members
        if self.terms.revision.dialect.terms_per_request:
            members = {**members, "_meta": _SEEN}
        check_modelled(members, but="arguments" if self.request.method == "tools/call" else "")
        return read(self.terms.revision, model, write_members(members))

    def answer_to(self, question: ClientRequest) -> Model | None:
        """The answer that the client brought along, if there is one under the question's key."""
        key = question.key
        if key is None:
            return None
        if key in self.answers:
            return self.answers[key]
        given = given_in(self.request)
        return read_result(self.terms.revision, question.method, given[key]) if key in given else None

    # What a handler says on the way.

    async def log(self, level: LoggingLevel, data: JSONValue, logger: str | None = None) -> None:
        """Send a log message, if the client wants to hear any of this level, and not too many. Raises ValueError for a
        level that there is not."""
        check_level(level)
        await trio.lowlevel.checkpoint()  # also for a handler that logs much, and is not wanted any more
        if self._wants_log(level):
            params = LoggingMessageNotificationParams(
                level=level, data=data, logger=UNSET if logger is None else logger
            )
            await self.slot.notify("notifications/message", params)

    async def tell(self, frame: bytes) -> None:
        """Send a notification of an extension. While this is parked there is no client to hear it."""
        await self.slot.report(frame)

    def log_nowait(self, params: LoggingMessageNotificationParams) -> None:
        """As `log`, for a caller that may not wait: an actor says it. What is said while this is parked is for the
        next front request, if that wants to hear it."""
        if self.life.state is RequestState.PARKED:
            self._kept_logs = self._kept_logs or deque(maxlen=KEPT_LOGS)
            self._kept_logs.append(as_kept(params))
        elif self._wants_log(params.level) and self.life.state is RequestState.WAITING:
            self._relay_later(as_kept(params))

    def tell_nowait(self, frame: bytes) -> None:
        """As `tell`, for a caller that may not wait. A stream is begun for it."""
        if self._relay is not None or not self.slot.try_report(frame):
            self._relay_later(frame)

    def _relay_later(self, said: Relayed) -> None:
        if self._relay is None:
            self._relay = self.supervisor.spawn(ProgressRelay(self.slot), name=f"r-{next(self.engine.numbers)}.log")
        self._relay.send_nowait(said)

    def _wants_log(self, level: LoggingLevel) -> bool:
        heard = is_heard(level, self.terms.log_level)
        if self._logged is None:
            self._logged = RateLimit(LOG_RATE)
        return heard and self._logged.allow(None, trio.current_time())

    async def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client gave a token. A value that does not rise is dropped."""
        if self.progress is None:  # the first one waits for nothing: a handler that reports once need not wait at all
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        self.report_nowait(ProgressReport(progress, total, message))

    def report_nowait(self, report: ProgressReport) -> None:
        """As `report`, for a caller that may not wait."""
        state = self.life.state
        if state is RequestState.PARKED:
            self._kept_report = report  # no client hears it now, and the old token is over
        elif state is RequestState.WAITING:
            if self.progress is None and self.terms.progress_token is not None:
                self.progress = Progress(self.slot, self.terms.progress_token, self.engine.reports)
            if self.progress is not None:
                self.progress.report(report)

    # What a handler asks.

    async def ask(self, questions: Sequence[ClientRequest], *, at_once: bool = False) -> list[Model]:
        """Ask the client and wait for all answers. *at_once*: these are all; do not wait for others to join them.

        Raises `RuntimeError` in a handler of a method that may not ask; `MissingCapability` if the client lacks the
        capability; `RequestFailed` if it was cancelled, for a handler that goes on regardless; in the legacy era
        the exceptions of `ClientRequests.ask`.
        """
        check_may_ask(self.request.method)
        self._check_wanted()
        for question in questions:
            check_declared(question, self.terms)
        if is_audited():
            return await self._ask_noted(questions, at_once=at_once)
        return await self._ask(questions, at_once=at_once)

    async def _ask_noted(self, questions: Sequence[ClientRequest], *, at_once: bool) -> list[Model]:
        """Note that the client is asked, and its action: neither the question nor the answer."""
        about = {"caller": caller_of_key(self.terms.principal), "method": self.request.method, "name": self.target}
        outcome, answers = "failed", list[Model]()
        for question in questions:
            note("question_asked", **about, kind=question.needs)
        try:
            answers = await self._ask(questions, at_once=at_once)
            outcome = "ok"
        finally:
            for number, question in enumerate(questions):
                action = getattr(answers[number], "action", "accept") if answers else "none"
                note("question_answered", **about, kind=question.needs, outcome=outcome, action=action)
        return answers

    async def _ask(self, questions: Sequence[ClientRequest], *, at_once: bool) -> list[Model]:
        if self.terms.revision.dialect.asks_in_results:
            return await self._ask_in_rounds(questions, at_once=at_once)
        if self.session is None:
            raise RuntimeError("this transport cannot send requests to the client")
        asking = self._asking = {} if self._asking is None else self._asking
        with trio.CancelScope() as scope:
            asking[scope] = None
            try:
                return await self._ask_by_requests(self.session.questions, questions)
            finally:
                del asking[scope]
        raise RequestFailed("the request has ended")

    async def _ask_by_requests(self, way: ClientRequests, questions: Sequence[ClientRequest]) -> list[Model]:
        if len(questions) == 1:
            return [await self._ask_traced(way, questions[0])]
        answers: dict[int, Model] = {}

        async def ask(index: int, question: ClientRequest) -> None:
            answers[index] = await self._ask_traced(way, question)

        async with own_nursery(takes_first=True) as nursery:
            for index, question in enumerate(questions):
                nursery.start_soon(ask, index, question)
        return [answers[index] for index in range(len(questions))]

    async def _ask_traced(self, way: ClientRequests, question: ClientRequest) -> Model:
        trace = self.slot.trace
        if trace is None:
            return await way.ask(question, self.slot)
        span = trace.begin_question(question.method)
        outcome: Model | Exception | None = None
        try:
            outcome = await way.ask(question, self.slot)
        except Exception as error:
            outcome = error
            raise
        else:
            return outcome
        finally:
            span.end(outcome)
            outcome = None  # a failure's traceback holds this frame

    async def _ask_in_rounds(self, questions: Sequence[ClientRequest], *, at_once: bool) -> list[Model]:
        asked = self.rounds.add(questions)
        try:
            self._take_given(asked)
            while any(one.answer is None for one in asked):
                self._check_wanted()
                if self.life.state is RequestState.WAITING and not self.rounds.closing:
                    await self._close_round(at_once=at_once)
                else:
                    await self.rounds.wait_change()
        finally:
            self.rounds.withdraw(asked)
        return [one.answer for one in asked if one.answer is not None]

    def _check_wanted(self) -> None:
        if self.life.is_over:
            raise RequestFailed("the request has ended")

    def _take_given(self, asked: Sequence[PendingInput]) -> None:
        """A first request may bring answers to questions that it knows the keys of."""
        if self.life.state is RequestState.WAITING and not self.rounds.number:
            for one in asked:
                one.answer = self.answer_to(one.question)
            self.rounds.withdraw([one for one in asked if one.answer is not None])

    async def _close_round(self, *, at_once: bool) -> None:
        self.rounds.closing = True
        try:
            if not at_once:
                await trio.sleep(GATHER)
            await self.parking.park(self)
        finally:
            self.rounds.closing = False
            self.rounds.change()

    # How it goes on and ends.

    def pause(self) -> None:
        """The clock stands still while it is parked, or waits for a person."""
        if self.actor is not None:
            self.actor.pause()

    def go_on(self) -> None:
        """The clock goes on."""
        if self.actor is not None:
            self.actor.go_on()

    def attach(self, slot: ReplySlot, request: Request, route: Route) -> None:
        """Go on with the next front request: its id, its token, its terms."""
        if slot.trace is not None and self.slot.trace is not None:
            slot.trace.follow(self.slot.trace)
        self.slot, self.request, self.route = slot, request, route
        self.go_on()
        report, self._kept_report = self._kept_report, None
        if report is not None:
            self.report_nowait(report)
        kept, self._kept_logs = self._kept_logs, None
        for params in kept or ():
            self.log_nowait(params)

    def begin_settling(self, outcome: Outcome | Exception) -> Coroutine[Any, Any, None] | None:
        """The handler has come to an end. If there is more to do than to answer at once, it must be awaited."""
        if isinstance(outcome, Exception):
            return self.settle(outcome, RequestEvent.FAILURE)
        if self.progress is not None or self._relay is not None or self.state is not RequestState.WAITING:
            return self.settle(outcome, RequestEvent.RESULT)
        self.meet(RequestEvent.RESULT)
        return self.slot.begin_answer(outcome, self)  # that is all there is to do for most calls

    async def settle(self, outcome: Outcome | Exception, event: RequestEvent) -> None:
        """The handler has come to an end: answer, or keep it for the retry, or say nothing."""
        act = self.life.meet(event)
        if act is Consequence.ANSWER:
            await self.answer(outcome)
            return
        if isinstance(outcome, Exception):  # it is not answered now: `error_frame` does not see it
            drop_frames(outcome)
        if act is Consequence.KEEP:
            self.outcome = outcome

    async def answer(self, outcome: Outcome | Exception) -> None:
        """Send what was reported last, and then the answer."""
        if self.progress is not None or self._relay is not None:
            await self.finish_saying()
        if isinstance(outcome, Exception):
            await self.slot.fail(outcome)
        else:
            await self.slot.answer(outcome, self)

    async def finish_saying(self) -> None:
        """See that everything is said that comes before the answer."""
        progress, self.progress = self.progress, None
        if progress is not None:
            await progress.finish()
        relay, self._relay = self._relay, None
        if relay is not None:
            await relay.stop()

    def hush(self) -> None:
        """End of the exchange: no more messages go out."""
        if self.progress is not None:
            self.progress.forget()
        if self._relay is not None:
            self._relay.kill()

    def leave(self) -> None:
        """The handler's task ends: no answer goes out any more, and a retry finds only what was kept."""
        self.slot.close()
        if self.progress is not None or self._relay is not None:
            self.hush()
        if self._asking is not None:
            self._take_back()
        if self.outcome is None and self._rounds is not None:
            self.parking.leave(self)

    def _take_back(self) -> None:
        """Stop asking a legacy client: another task of the handler may be the one that asks."""
        if self._asking and self.session is not None:
            self.session.questions.take_back(self.slot)
        for scope in self._asking or ():
            scope.cancel()

    async def give_up(self) -> None:
        """It was cancelled: tell the way that there will be no answer."""
        await self.slot.outlet.give_up()

    def cancel(self, event: RequestEvent, reason: str = "") -> bool:
        """The request is no longer wanted, for this *reason*. True if that ended it: then nothing more is sent."""
        if self.life.meet(event) is not Consequence.STAY_SILENT:
            return False
        self.slot.reason = reason
        self.slot.close()
        self.kill(event.value)
        self._take_back()
        if self._rounds is not None:
            self._rounds.change()
        return True


Handler: TypeAlias = Callable[[Exchange], Awaitable[Outcome]]
"""Serves a request."""


def _does_not_wait(_: str) -> None:
    """Used until a request waits: nothing can come in between that would cancel it."""
