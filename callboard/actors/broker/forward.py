"""One request on its way through the broker: to its backend, and its answer back, between any two eras."""

from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, Final

import attrs
import msgspec
import trio
from msgspec import Raw

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.custom_told import tell_exchange
from callboard.actors.broker.hints import hint_for, is_failed, with_hint
from callboard.actors.broker.input_bridge import MAX_ROUNDS, InputBridge, InputRefused
from callboard.actors.broker.leases import Lease
from callboard.actors.broker.logins import have_login
from callboard.actors.client.conversation import Patience
from callboard.actors.client.hearer import OnChange, OnQuestion
from callboard.actors.frames import error_type
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.observer import CANCELLED, TOOL_ERROR, Observer
from callboard.actors.server.reply_slot import ReplySlot, has_failed
from callboard.actors.server.spans import BackSpan, TraceHeaders
from callboard.actors.shares import LOCAL
from callboard.actors.terms import Terms
from callboard.actors.undo import undo_unless_done
from callboard.codecs.bridge.apps import ShownUri, result_with_uris
from callboard.codecs.bridge.capped import cap_call, size_of_result
from callboard.codecs.bridge.errors import front_error
from callboard.codecs.bridge.hidden import HiddenArguments
from callboard.codecs.bridge.params import back_params
from callboard.codecs.bridge.results import Crossing, Forwarded, asks, front_result
from callboard.codecs.bridge.shapes import UnfitResult
from callboard.codecs.envelope import ErrorResponse, Request, ResultResponse
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import Members
from callboard.codecs.revisions import LATEST, METHODS, CallToolResult, Model, TextContent
from callboard.codecs.routing import Route
from callboard.codecs.state import STATE_TTL
from callboard.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    BackendGone,
    BackendRefused,
    BackendTimedOut,
    BadAnswer,
    CallboardError,
    CannotConnect,
    ConnectionLost,
    HttpRefused,
    NotAuthorized,
    Overloaded,
    RequestTimedOut,
    ResourceNotFound,
    SessionGone,
    TooManyRounds,
)

_FAILURES: Final = (
    *(RequestTimedOut, ConnectionLost, CannotConnect, NotAuthorized, HttpRefused),
    *(BadAnswer, UnfitResult),
)
"""What can go wrong at a backend, and is told to the client in other words."""


@attrs.define(eq=False, kw_only=True)
class ForwardTarget:
    """The backend of a request, and its name there."""

    backend: Backend
    renamed: Mapping[str, Raw] = attrs.field(factory=dict)
    headers: HeaderMap = NO_HEADERS
    """The members that are repeated in HTTP headers to the backend, as far as they are known."""
    front_headers: HeaderMap = NO_HEADERS
    """The same, of what the client says."""
    hidden: HiddenArguments | None = None
    """Arguments that are the broker's, and not the client's."""
    find_headers: Callable[[], HeaderMap] | None = lambda: NO_HEADERS
    """The same, for when the lists have been read anew; none if they have been for this request."""
    find_again: "Callable[[ForwardTarget], ForwardTarget] | None" = None
    """The same tool as this one, for when its backend was started for the call. Raises if it may not be called any
    more."""
    uri: str | None = None
    asked: str | None = None
    """The URI that the client named, of a skill that has another one there: it is told of no other."""
    may_repeat: bool = False
    may_share: bool = True
    """Whether any client may be given the result that one got, if the backend says so and is trusted."""
    must_defer: bool = False
    """Whether it can only be had as a task."""
    guarded: str = ""
    """The name of a tool that rules go by."""
    shown_uri: ShownUri | None = None
    """How clients know the `ui://` URIs of the backend; None if each is shown as it is."""


class Forward(Lease):
    """A request, where it comes from and where it goes: on one connection, however many rounds it takes there.
    Without an *exchange* the client hears nothing on the way.

    It is its own lease of the connection, and what only some requests need is made when they do: every object more for
    a request costs a microsecond.
    """

    __slots__ = ("_bridge", "_is_retry", "account", "connection", "request", "route", "span", "terms", "to")

    connection: BackendConnection
    """The one that it is on."""

    def __init__(
        self,
        request: Request,
        terms: Terms,
        route: Route,
        to: ForwardTarget,
        exchange: Exchange | None = None,
        account: str = LOCAL,
    ) -> None:
        super().__init__(exchange, terms.principal)
        self.request = request
        self.terms = terms
        self.route = route
        self.to = to
        self.account = account if exchange is None else exchange.slot.account  # that the request is counted to
        self.span: BackSpan | None = None  # of what the backend is asked, if the request is traced
        self._is_retry = False
        self._bridge: InputBridge | None = None

    def run(self) -> Coroutine[Any, Any, Model | Forwarded]:
        """Ask the backend, and return its answer as the client gets it.

        Raises `BackendRefused`, `BackendGone`, `BackendTimedOut`, `Overloaded`, and what a client is told of itself.
        """
        if self.exchange is not None and self.exchange.slot.observer is not None:
            return self._run_observed(self.exchange.slot, self.exchange.slot.observer)
        return self._run()

    async def _run_observed(self, slot: ReplySlot, observer: Observer) -> Model | Forwarded:
        backend, request, error = self.to.backend, self.request, CANCELLED
        outcome: Model | Forwarded | Exception | None = None
        began = perf_counter()
        if slot.trace is not None:
            name = msgspec.json.decode(self.to.renamed["name"]) if "name" in self.to.renamed else self.route.name
            trusts = backend.settings.trusted
            self.span = slot.trace.begin_back(backend.name, request.method, name, trusts=trusts)
        try:
            outcome = await self._run()
            error = TOOL_ERROR if has_failed(outcome) else ""
        except Exception as failure:
            error, outcome = error_type(failure), failure
            raise
        else:
            return outcome
        finally:
            seconds = perf_counter() - began
            slot.behind += seconds
            observer.backend_over(backend.name, request.method, self.route.name, error, seconds)
            if self.span is not None:
                self.span.end(outcome)
            outcome = None  # a failure's traceback holds this frame

    async def _run(self) -> Model | Forwarded:
        backend, may_repeat = self.to.backend, self.to.may_repeat
        backend.in_flight.take(self.account)
        try:
            while True:
                connection = self.take_nowait() or await self.take()
                self.connection = connection
                try:
                    return await self.converse()
                except trio.Cancelled:
                    connection.given_up.add(self)
                    raise
                except _FAILURES as error:
                    is_lost = isinstance(error, (ConnectionLost, CannotConnect)) and not connection.is_taken_away
                    if is_lost:
                        backend.doubt(connection, error)
                    if not is_lost or not may_repeat:
                        raise self._failure(error) from None
                finally:
                    backend.pool.give_back(connection, self)
                may_repeat = self.may_ask = self._is_retry = False
                self._bridge = None
        finally:
            backend.in_flight.give_back(self.account)

    def take_nowait(self) -> BackendConnection | None:
        """The connection to ask on, if it can be had at once."""
        return self.to.backend.take_shared(self.terms, self.exchange, self)

    async def take(self) -> BackendConnection:
        """The connection to ask on, if that was not to be had at once. Raises as `Backend.take` does."""
        backend, method = self.to.backend, self.request.method
        was_up, find_again = backend.is_up, self.to.find_again  # another call may start it while a user logs in
        if backend.personal is not None and (login := backend.personal.login) is not None:
            await have_login(backend.name, login, self.terms, self.exchange, method)
        connection = await backend.take(self.terms, self.exchange, method, self)
        if not was_up and find_again is not None:  # it may list other tools than it did before
            with undo_unless_done(lambda: backend.give_back(connection, self)):
                self.to = find_again(self.to)
        return connection

    def _failure(self, error: CallboardError) -> CallboardError:
        """What went wrong, as the client is told."""
        backend, connection = self.to.backend, self.connection
        match error:
            case RequestTimedOut():
                connection.given_up.add(self)
                backend.late(connection)
                limit = "cap" if error.after >= backend.settings.cap else "timeout"
                return BackendTimedOut(after=error.after, backend=backend.name, limit=limit)
            case ConnectionLost() | CannotConnect():
                if connection.is_taken_away:
                    return Overloaded("the client did not answer, and other calls needed the connection")
                return self._lost(error)
            case NotAuthorized():
                return backend.not_authorized(error)
            case HttpRefused():
                return self._refused(error)
        return _ours(INTERNAL_ERROR, f"{backend.name}: {error}", "invalid_backend_result", backend)

    def _lost(self, error: ConnectionLost | CannotConnect) -> BackendGone:
        name, connection = self.to.backend.name, self.connection
        reason = "session lost" if isinstance(error, SessionGone) else "server lost"
        why = connection.lost if connection.failure is not None else error.brief or str(error)
        return BackendGone(f"{name}: {why}"[:500], backend=name, reason=reason, exit_code=connection.exit_code)

    def _refused(self, error: HttpRefused) -> CallboardError:
        backend = self.to.backend
        if isinstance(error.error, ErrorResponse):
            return self._front_error(error.error)
        if error.status in (401, 403):
            return _ours(INTERNAL_ERROR, f"{backend.name}: HTTP {error.status}", "upstream auth", backend)
        return BackendGone(f"{backend.name}: HTTP {error.status}", backend=backend.name)

    def _front_error(self, error: ErrorResponse) -> BackendRefused:
        """An error of the backend, as the client gets it. Raises `ResourceNotFound` for a skill's file that there is
        not: as for one that the client may not know of."""
        asked, codes = self.to.asked, (RESOURCE_NOT_FOUND, INVALID_PARAMS)
        if asked is not None and error.code in codes:
            raise ResourceNotFound(asked)
        back = self.connection.revision
        return front_error(self.terms.revision, back, self.request.method, error, self.to.uri)

    @property
    def on_custom(self) -> OnChange | None:  # type: ignore[override]  # without a client there is none
        return None if self.exchange is None else partial(tell_exchange, self.to.backend, self.exchange)

    @property
    def on_question(self) -> OnQuestion | None:
        return None if self.exchange is None else self.connection.relay_of(self.exchange)

    # On one connection.

    async def converse(self) -> Model | Forwarded:
        """Ask, and see to what the backend wants to know first, until there is a result."""
        connection, exchange = self.connection, self.exchange
        body = self._body()
        if exchange is not None and exchange.slot.terms.log_level is not None:
            await connection.want_level(exchange)
        asks_in_results = connection.revision.dialect.asks_in_results
        for _ in range(MAX_ROUNDS):
            answer = await self.ask(body)
            connection.timeouts = 0
            if isinstance(answer, ResultResponse) and not (asks_in_results and asks(answer.result)):
                if self._bridge is not None:
                    await self._bridge.finish()
                return self.complete(answer.result)
            try:
                handed_over = await self._prepare_next(body, answer)
            except InputRefused as refused:
                return self._unanswered(refused)
            if handed_over is not None:
                return handed_over
            self._is_retry = True
        raise TooManyRounds(rounds=MAX_ROUNDS)

    def ask(self, body: dict[str, Any]) -> Coroutine[Any, Any, ResultResponse | ErrorResponse]:
        """Ask once. Raises as `BackendConnection.send` does."""
        return self.connection.send(self.request.method, body, self, self.patience(), self.to.headers)

    async def _prepare_next(self, body: dict[str, Any], answer: ResultResponse | ErrorResponse) -> Forwarded | None:
        """Do what an *answer* that is no result asks for, so that the request can be sent again; or hand it over to the
        client, which does it. Raises `InputRefused`, and what else the answer comes to."""
        if isinstance(answer, ResultResponse):
            if not self._may_be_asked:
                raise UnfitResult(f"input_required in response to {self.request.method}")
            if self.terms.revision.dialect.asks_in_results:
                return await self._asking.hand_over(answer.result)
            await self._asking.answer(body, answer.result)
        elif answer.code == HEADER_MISMATCH and self.connection.is_http and self.to.find_headers is not None:
            await self.to.backend.refresh_now()  # what it wants repeated is another now
            self.to = attrs.evolve(self.to, headers=self.to.find_headers(), find_headers=None)
        elif not await self._visits_first(answer):
            refused = self._front_error(answer)
            hint = self._hint(answer.message.encode())
            raise BackendRefused(refused.error_code, f"{refused} ({hint})", refused.data) if hint else refused
        return None

    @property
    def _may_be_asked(self) -> bool:
        row = METHODS.get(self.request.method)
        return row is not None and LATEST in row.may_ask

    @property
    def _asking(self) -> InputBridge:
        if self._bridge is None:
            method = self.request.method
            self._bridge = InputBridge(self.to.backend, self.connection, self.terms, self.exchange, method)
        return self._bridge

    def _body(self) -> dict[str, Any]:
        connection, exchange = self.connection, self.exchange
        params = self.request.members
        body = back_params(params, self.to.renamed)
        if self.to.hidden is not None:
            body["arguments"] = self.to.hidden.put_into(params)
        if meta := self.traced(connection.metas.of(self.terms, self.route)):
            body["_meta"] = meta
        if "inputResponses" in params and connection.revision.dialect.asks_in_results:
            self._is_retry = True
            body["inputResponses"] = params["inputResponses"]
        if exchange is not None and exchange.carried is not None:
            self._asking.take_up(body, exchange.carried)
        return body

    def traced(self, meta: Mapping[str, Raw] | Raw) -> Mapping[str, Raw] | Raw:
        """The `_meta` of a request to the backend, with the span of it where there is one."""
        if self.span is None:
            return meta
        self.span.reached(self.connection.revision, is_http=self.connection.is_http)
        return self.span.put_into(meta)

    @property
    def trace_headers(self) -> TraceHeaders:  # type: ignore[override]  # for most leases there are none
        headers = () if self.span is None else self.span.headers
        if self.exchange is not None and self.exchange.passed:
            names = self.to.backend.passes
            headers = (*headers, *(header for header in self.exchange.passed if header[0] in names))
        return headers

    async def _visits_first(self, answer: ErrorResponse) -> bool:
        """Whether the backend wants the user somewhere else before, and a modern client has been sent there."""
        is_meant = answer.code == URL_ELICITATION_REQUIRED and self._may_be_asked
        if is_meant:
            self.to.backend.sleep.keep_awake(STATE_TTL)  # the page may be one of this very process
        front, back = self.terms.revision.dialect, self.connection.revision.dialect
        if not is_meant or back.asks_in_results or not front.asks_in_results:
            return False
        await self._asking.send_to_urls(answer)
        return True

    def complete(self, result: Members, method: str | None = None) -> Model | Forwarded:
        """The result as the client gets it. *method* is the method of the result, if it differs from the request's."""
        connection, backend = self.connection, self.to.backend
        front = self.terms.revision if self.exchange is None else self.exchange.slot.terms.revision
        crossing = _crossing(front, connection.revision, backend.name, backend.settings.trusted and self.to.may_share)
        keeps = not self._is_retry and (self._bridge is None or not self._bridge.has_asked)
        if (limit := backend.settings.max_result) is not None and size_of_result(result) > limit:
            result = self._capped(result, limit, method or self.request.method)
        if self.to.shown_uri is not None:
            result = result_with_uris(result, self.to.shown_uri)
        answer = front_result(crossing, method or self.request.method, result, keeps=keeps)
        if "isError" in result and is_failed(result) and isinstance(answer, Forwarded):
            hint = self._hint(bytes(result.get("content", b"")))
            return with_hint(answer, hint) if hint else answer
        return answer

    def _capped(self, result: Members, limit: int, method: str) -> Members:
        """A result that is larger than its backend's may be. Raises `BackendRefused` for one that cannot be cut."""
        backend, size = self.to.backend, size_of_result(result)
        self.connection.note("result_too_large", method=method, name=self.route.name, size=size, limit=limit)
        if method == "tools/call":
            return cap_call(result, limit, backend.name)
        told = f"{backend.name}: the result has {size} bytes, and this broker passes on at most {limit}"
        raise _ours(INTERNAL_ERROR, told, "result_too_large", backend)

    def _hint(self, said: bytes) -> str:
        """A hint for the operator about an error, if there is one. It is in the log, too."""
        hint = hint_for(self.to.backend.name, self.connection.revision, said)
        if hint:
            self.connection.note("backend_cannot_ask", hint=hint)
        return hint

    def patience(self) -> Patience:
        backend = self.to.backend
        return backend.asking_patience if self.may_ask else backend.patience

    def _unanswered(self, refused: InputRefused) -> Model:
        """There is no way to tell a modern server of a refusal, and it would only ask again: the client's own request
        ends. A model can act on what a tool says."""
        if self.request.method == "tools/call":
            return CallToolResult(content=[TextContent(text=str(refused))], is_error=True)
        raise BackendRefused(INTERNAL_ERROR, str(refused), {"origin": "broker", "input": refused.key, **refused.cause})


_crossing: Final = lru_cache(maxsize=256)(Crossing)


def _ours(code: int, message: str, reason: str, backend: Backend) -> BackendRefused:
    return BackendRefused(code, message[:500], {"origin": "broker", "reason": reason, "backend": backend.name})
