"""A client's side of a conversation: what it asks, the rounds that takes, and what it hears on the way."""

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.client.answerer import Answering
from callboard.actors.client.hearer import NOBODY, Hearer, NotificationHandler, OnChange, OnLog, OnProgress, Report
from callboard.actors.client.link import Link, OutgoingRequest, held
from callboard.actors.client.pace import ReadPace
from callboard.actors.frames import notification_frame
from callboard.codecs.envelope import ErrorResponse, Notification, Request, RequestId, ResultResponse, size_of
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.mcp_headers.mirror import MIRRORED_NAME, mirror
from callboard.codecs.members import raw, read_members, write_members
from callboard.codecs.revisions import (
    LATEST,
    METHODS,
    CallToolRequestParams,
    CancelledNotificationParams,
    ClientCapabilities,
    Implementation,
    InputRequiredResult,
    LoggingLevel,
    LoggingMessageNotificationParams,
    Model,
    NotificationParams,
    ProgressNotificationParams,
    RequestMetaObject,
    Revision,
    read,
    read_result,
    write,
    write_params,
)
from callboard.codecs.revisions import Result as Empty
from callboard.codecs.revisions.fast_result import read_plain
from callboard.codecs.revisions.meta import PROGRESS_TOKEN
from callboard.errors import BadAnswer, InvalidParams, PeerError, RequestTimedOut, ServerRefused, TooManyRounds
from callboard.supervisor import Snapshot, get_logger

log = get_logger("callboard.actors")

TIMEOUT: Final = 60.0
"""Seconds that a server may say nothing about a request. Each progress report begins them anew."""

CAP: Final = 600.0
"""Seconds that a request may take in all, with or without progress."""

MAX_ROUNDS: Final = 32
"""Rounds of questions that one request may take."""

ROUNDS_TIME: Final = 3600.0
"""Seconds in which they must be answered, all of them: people may take their time, but not for ever."""


class _SubscriptionMeta(msgspec.Struct):
    subscription_id: RequestId | msgspec.UnsetType = msgspec.field(
        name="io.modelcontextprotocol/subscriptionId", default=UNSET
    )


_READ_META: Final = msgspec.json.Decoder(_SubscriptionMeta)
MAX_NAME: Final = 512
"""Longest name or URI, in bytes, whose headers are remembered."""


P = TypeVar("P", bound=Model)
OnLost: TypeAlias = Callable[[Exception], None]
OnAdded: TypeAlias = Callable[[str, Mapping[str, Raw]], bool]
"""Takes notifications that the specification does not have. False for one that it does not know."""
Renew: TypeAlias = Callable[[], Awaitable[None]]
WaitChange: TypeAlias = Callable[[], Awaitable[None]]


@attrs.frozen(kw_only=True)
class Patience:
    """How long a request may take: *timeout* seconds of silence, *cap* seconds in all."""

    timeout: float = TIMEOUT
    cap: float = CAP


PATIENT: Final = Patience()


class _Call(OutgoingRequest):
    """A request that is on its way, as its caller sees it."""

    __slots__ = ("began", "conversation", "is_ended", "latest", "patience")

    def __init__(
        self,
        conversation: "Conversation",
        request_id: RequestId,
        method: str,
        revision: Revision,
        frame: bytes,
        began: float,
        patience: Patience,
        hearer: Hearer,
    ) -> None:
        timeout, cap = patience.timeout, patience.cap
        super().__init__(request_id, method, revision, frame, began + (min(timeout, cap)))
        self.conversation = conversation
        self.began = began
        self.latest = began + cap
        self.patience = patience
        self.hearer = hearer
        self.is_ended = False  # the server has ended it without an answer, as it may end a subscription

    @property
    def reason(self) -> str:
        why = self.hearer.why_cancelled
        return (why() if why is not None else "") or super().reason

    def hear(self, message: Request | Notification) -> Awaitable[None]:
        """Handle what came on its way."""
        return self.conversation.hear(message, self)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """The time that this takes does not count."""
        before = self.deadline
        try:
            with held(self):
                yield
        finally:
            self.latest += self.deadline - before

    def progressed(self, report: Report) -> None:
        if self.is_ended:
            return
        anew = min(trio.current_time() + self.patience.timeout, self.latest)
        self.deadline = max(self.deadline, anew)  # the server may be waiting for us all the same
        if self.hearer.on_progress is not None:
            self.hearer.on_progress(report)

    def wait_anew(self) -> None:
        """The server has given a sign of life."""
        self.deadline = min(trio.current_time() + self.patience.timeout, self.latest)

    def wait_long(self) -> None:
        """The server waits for us: its silence means nothing meanwhile."""
        self.deadline = self.latest


@attrs.define(eq=False)
class Conversation:
    """Asks one server, in one revision, and deals with what it says and asks meanwhile."""

    link: Link
    answering: Answering
    info: Implementation
    capabilities: ClientCapabilities
    log_level: LoggingLevel | None = None
    on_change: OnChange | None = None
    on_log: OnLog | None = None
    revision: Revision = LATEST
    renew: Renew | None = None
    """Opens a new session when the server has ended the old one."""
    wait_change: WaitChange | None = None
    """Waits, but not for long, while subscribers are behind."""
    on_lost: OnLost | None = None
    """Hears why nothing can come unasked any more."""
    pace: ReadPace | None = None
    """How fast the server is heard, where others must not wait for that."""
    on_added: OnAdded | None = None
    """Hears notifications of extensions first."""
    ignored: int = attrs.field(default=0, init=False)
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _known: "tuple[Revision, LoggingLevel | None, Mapping[str, Raw]] | None" = attrs.field(default=None, init=False)
    _calls: dict[RequestId, _Call] = attrs.field(factory=dict, init=False)

    def snapshots(self, path: str, now: float) -> tuple[Snapshot, ...]:
        """The requests on their way, as the tree shows them below the actor at *path*. None has a task."""
        return tuple(
            Snapshot(
                name=f"request-{request_id}",
                path=f"{path}/request-{request_id}",
                kind="OutgoingRequest",
                state="waiting",
                age=now - call.began,
                facts={"method": call.method, "deadline": round(call.deadline - now, 3)},
            )
            for request_id, call in self._calls.items()
        )

    async def request(
        self,
        method: str,
        params: Model,
        *,
        patience: Patience = PATIENT,
        on_progress: OnProgress | None = None,
        header_map: HeaderMap = NO_HEADERS,
    ) -> Model:
        """Ask, answer what the server wants to know first, and return its result.

        Raises `ServerRefused` for an error, `RequestTimedOut`, `TooManyRounds`, `BadAnswer`, and what the link raises.
        """
        until = trio.current_time() + ROUNDS_TIME
        for _ in range(MAX_ROUNDS):
            result = await self.once(method, params, patience=patience, on_progress=on_progress, header_map=header_map)
            if not isinstance(result, InputRequiredResult):
                return result
            params = await self.retry_of(params, result, until)
        raise TooManyRounds(rounds=MAX_ROUNDS)

    async def once(
        self,
        method: str,
        params: Model,
        *,
        patience: Patience = PATIENT,
        on_progress: OnProgress | None = None,
        on_told: OnChange | None = None,
        header_map: HeaderMap = NO_HEADERS,
        revision: Revision | None = None,
    ) -> Model:
        """As `request`, but one round: the result may be a question.

        *on_told* hears what a subscription has to say, which is what this request then is. The answer is read in
        *revision*, by default the one that the conversation then has.
        """
        hearer = (
            NOBODY
            if on_progress is None and on_told is None
            else NotificationHandler(on_progress=on_progress, on_told=on_told)
        )
        body = self.body(method, params)
        body["_meta"] = {**body.get("_meta", {}), **self.said()}
        answer = await self.send(method, body, patience=patience, hearer=hearer, header_map=header_map)
        if on_told is not None and isinstance(answer, ResultResponse) and not answer.result:
            return Empty()  # a subscription that the server ended
        return self.read(method, answer, revision)

    async def send(
        self,
        method: str,
        body: dict[str, Any],
        *,
        patience: Patience = PATIENT,
        hearer: Hearer = NOBODY,
        header_map: HeaderMap = NO_HEADERS,
        wants_progress: bool = True,
        trace: Sequence[tuple[bytes, bytes]] = (),
    ) -> ResultResponse | ErrorResponse:
        """Send a request as it is, and wait for its answer as it comes; both may hold members that are raw.

        *body* is the params: with the `_meta` that the server shall see (`said` is what this client has to say there),
        but for the progress token, which is added here if it *wants_progress*. A subscription that the server has
        ended without an answer is answered by nothing. *trace*: headers for HTTP, beside those that repeat the body.

        Raises `RequestTimedOut`, `BadAnswer`, and what the link raises.
        """
        began = trio.current_time()
        if self.link.is_stale and self.renew is not None and method != "initialize":
            with trio.move_on_at(began + min(patience.timeout, patience.cap)) as renewing:
                await self.renew()
            if renewing.cancelled_caught:
                raise RequestTimedOut(after=round(trio.current_time() - began, 2))
        request_id = next(self._ids)
        frame, headers = self._written(request_id, method, body, header_map, wants_progress=wants_progress)
        call = _Call(self, request_id, method, self.revision, frame, began, patience, hearer)
        call.headers = headers
        if trace:
            call.trace = trace
        self._calls[request_id] = call
        try:
            answer = await self.link.ask(call, call.hear)
        finally:
            del self._calls[request_id]
        if answer is not None:
            return answer
        if call.is_ended:
            return ResultResponse(request_id, {})
        raise RequestTimedOut(after=round(trio.current_time() - began, 2))

    async def retry_of(self, params: Model, asked: InputRequiredResult, until: float) -> Model:
        """The same request again, with the answers to what was asked, and the state as it was given.

        Raises `RequestTimedOut` if they are not there by *until*.
        """
        wanted = {} if asked.input_requests is UNSET else asked.input_requests
        with trio.CancelScope(deadline=until) as scope:
            given = await self.answering.answer_all(wanted, self.revision)
        if scope.cancelled_caught:
            raise RequestTimedOut(after=ROUNDS_TIME)
        again: Any = params
        return cast("Model", attrs.evolve(again, input_responses=given, request_state=asked.request_state))

    async def notify(self, method: str, params: Model | None = None) -> None:
        """Tell the server something. Raises `ConnectionLost`."""
        await self.link.tell(notification_frame(self.revision, method, params or NotificationParams()))

    async def tell(self, method: str, frame: bytes) -> None:
        """Send a notification as it is written in *frame*. Raises `ConnectionLost`."""
        mirrors = self.link.is_http and self.revision.dialect.mirrors_headers
        await self.link.tell(frame, _lines(mirror(self.revision.value, method)) if mirrors else b"")

    async def hear(self, message: Request | Notification, of: _Call | None = None) -> None:
        """Handle a notification of the server; *of* is the request whose stream it came on, if it came on one."""
        if self.pace is not None:
            await self.pace.keep(size_of(message))
        hearer = NOBODY if of is None else of.hearer
        if isinstance(message, Request):
            self._asked(message, of)
            return
        match message.method:
            case "notifications/progress":
                self._progressed(message)
            case "notifications/message":
                self._logged(message, hearer.on_log or self.on_log)
            case "notifications/cancelled":
                self._cancelled(message)
            case method:
                params = message.members
                if method not in METHODS and hearer.on_custom is not None:
                    hearer.on_custom(method, params)
                elif self.on_added is None or method in METHODS or not self.on_added(method, params):
                    self._told_of_change(method, params, hearer.on_told or self.on_change)
                if self.wait_change is not None:
                    await self.wait_change()

    def _asked(self, request: Request, of: _Call | None) -> None:
        if self.revision.dialect.asks_in_results:
            self.ignored += 1  # a modern server has no way to ask by itself, and a client none to answer
        elif of is not None and of.hearer.on_question is not None:
            of.wait_long()
            of.hearer.on_question(request)
        else:
            self.answering.begin(request, self.revision, self.link, self.wait_anew)
            for call in self._calls.values():
                call.wait_long()

    def wait_anew(self) -> None:
        """The client is not asked any more: the server's silence counts again."""
        for call in self._calls.values():
            call.wait_anew()

    # What goes out.

    def said(self) -> Mapping[str, Raw]:
        """The members of `_meta` that every request of this client has, written once."""
        known = self._known
        if known is None or known[:2] != (self.revision, self.log_level):
            written = write(self.revision, self._meta()) if self.revision.dialect.terms_per_request else {}
            known = self._known = self.revision, self.log_level, {key: raw(value) for key, value in written.items()}
        return known[2]

    def _written(
        self, request_id: RequestId, method: str, body: dict[str, Any], header_map: HeaderMap, *, wants_progress: bool
    ) -> tuple[bytes, bytes]:
        """A request as a frame, and the header lines that repeat some of it."""
        if wants_progress:
            meta = body.get("_meta", {})
            meta = read_members(meta) if isinstance(meta, Raw) else meta
            body = {**body, "_meta": {**meta, PROGRESS_TOKEN: request_id}}
        frame = write_members({"jsonrpc": "2.0", "id": request_id, "method": method, "params": body})
        if not self.link.is_http or not self.revision.dialect.mirrors_headers:
            return frame, b""
        name = MIRRORED_NAME.get(method, "")
        said = raw(body[name]) if name in body else None
        version = self.revision.value
        if said is None or header_map.paths or len(said) > MAX_NAME:
            members: dict[str, Raw] = {key: raw(body[key]) for key in (name, "arguments") if key in body}
            return frame, _lines(mirror(version, method, members, header_map))
        return frame, _name_lines(version, method, name, bytes(said))

    def body(self, method: str, params: Model) -> dict[str, Any]:
        """The params. A call that says nothing but what it calls needs no look at the model: most are of that kind."""
        if type(params) is CallToolRequestParams and _is_bare(params):
            bare: dict[str, Any] = {"name": params.name}
            return bare if params.arguments is UNSET else {**bare, "arguments": params.arguments}
        return write_params(self.revision, method, attrs.evolve(cast("Any", params), meta=self._meta()))

    def _meta(self) -> RequestMetaObject:
        if not self.revision.dialect.terms_per_request:
            return RequestMetaObject()
        return RequestMetaObject(
            protocol_version=self.revision.value,
            client_capabilities=self.capabilities,
            client_info=self.info,
            log_level=UNSET if self.log_level is None else self.log_level,
        )

    # What comes in.

    def read(self, method: str, answer: ResultResponse | ErrorResponse, revision: Revision | None = None) -> Model:
        """The result in an answer, by default of this revision. Raises `ServerRefused` for an error, or `BadAnswer`."""
        revision = revision or self.revision
        if isinstance(answer, ErrorResponse):
            data = None if answer.data is UNSET else answer.data
            raise ServerRefused(answer.code, answer.message, data)
        try:
            if method == "tools/call" and (plain := read_plain(revision, answer.result)) is not None:
                return plain
            return read_result(
                revision, method, {key: msgspec.json.decode(value) for key, value in answer.result.items()}
            )
        except InvalidParams as error:
            raise BadAnswer(f"{method}: {error}") from None

    def _progressed(self, message: Notification) -> None:
        report = self._told(message, ProgressNotificationParams)
        call = None if report is None else self._calls.get(report.progress_token)
        if call is None or report is None:
            self.ignored += 1
        else:
            call.progressed(report)

    def _logged(self, message: Notification, on_log: OnLog | None) -> None:
        said = self._told(message, LoggingMessageNotificationParams)
        if said is None or on_log is None:
            return
        try:
            on_log(said)
        except Exception as error:  # the user's function: what was said is not worth the connection
            log.warning("log_callback_failed", failure=f"{type(error).__name__}: {error}"[:200])

    def _cancelled(self, message: Notification) -> None:
        params = self._told(message, CancelledNotificationParams)
        if params is None or params.request_id is UNSET:
            return
        if not self.revision.dialect.asks_in_results:
            self.answering.cancel(params.request_id, "" if params.reason is UNSET else params.reason)
            return
        call = self._calls.get(params.request_id)  # a modern server asks nothing: it is a subscription of ours
        if call is not None and call.hearer.on_told is not None:
            call.is_ended = True
            call.deadline = -math.inf

    def _told_of_change(self, method: str, params: Mapping[str, Raw], on_change: OnChange | None) -> None:
        """Route a notification: to its subscription, or to the general callback if it belongs to none."""
        call = self._calls.get(_subscription(params)) if "_meta" in params else None
        if call is not None and call.hearer.on_told is not None:
            on_change = call.hearer.on_told
        if on_change is not None:
            on_change(method, params)

    def _told(self, message: Notification, model: type[P]) -> P | None:
        try:
            params = write_members(message.members)
            return read(self.revision, model, params)
        except PeerError:
            self.ignored += 1
            return None


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


@lru_cache(maxsize=256)
def _name_lines(version: str, method: str, key: str, name: bytes) -> bytes:
    """The header lines of a request of which only its *name* is repeated: the same for every call of a tool."""
    return _lines(mirror(version, method, {key: Raw(name)}))


def _is_bare(params: CallToolRequestParams) -> bool:
    rest = (params.task, params.input_responses, params.request_state, params.meta)
    return not params.extra and all(member is UNSET for member in rest)


def _subscription(params: Mapping[str, Raw]) -> RequestId:
    """The subscription that a notification belongs to; 0, which is none of ours, if it does not say."""
    try:
        found = _READ_META.decode(params["_meta"]).subscription_id
    except msgspec.MsgspecError:
        return 0
    return 0 if found is UNSET else found
