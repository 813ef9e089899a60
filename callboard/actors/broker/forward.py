"""One request on its way through the broker: to its backend, and its answer back, between any two eras."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs
from msgspec import Raw

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.hints import hint_for, is_failed, with_hint
from callboard.actors.broker.input_bridge import MAX_ROUNDS, InputBridge, InputRefused
from callboard.actors.broker.leases import Lease
from callboard.actors.client.caller import Patience
from callboard.actors.server.exchange import Exchange
from callboard.actors.shares import LOCAL
from callboard.actors.terms import Terms
from callboard.codecs.bridge.errors import front_error
from callboard.codecs.bridge.params import back_params, carried_meta
from callboard.codecs.bridge.results import Crossing, Forwarded, asks, front_result
from callboard.codecs.bridge.shapes import UnfitResult
from callboard.codecs.envelope import ErrorResponse, Request, ResultResponse
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import Members
from callboard.codecs.revisions import LATEST, METHODS, CallToolResult, Model, TextContent
from callboard.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    URL_ELICITATION_REQUIRED,
    BackendGone,
    BackendRefused,
    BackendTimedOut,
    BadAnswer,
    CannotConnect,
    ConnectionLost,
    HttpRefused,
    NotAuthorized,
    Overloaded,
    RequestTimedOut,
    SessionGone,
    TooManyRounds,
)

LONG: Final = 10 * 365 * 86_400.0  # no limit of its own: what waits so long is bounded elsewhere


@attrs.frozen(eq=False, kw_only=True)
class ForwardTarget:
    """The backend of a request, and its name there."""

    backend: Backend
    renamed: Mapping[str, Raw] = attrs.field(factory=dict)
    headers: Callable[[], HeaderMap] = lambda: NO_HEADERS
    """The members that are repeated in HTTP headers, as far as they are known."""
    uri: str | None = None
    may_repeat: bool = False
    must_defer: bool = False
    """Whether it can only be had as a task."""


@attrs.define(eq=False)
class Forward:
    """A request, where it comes from and where it goes. Without an *exchange* the client hears nothing on the way."""

    request: Request
    terms: Terms
    said: Members
    to: ForwardTarget
    exchange: Exchange | None = None
    account: str = LOCAL
    """The account that the request is counted to: that of the client of an *exchange*."""

    async def run(self) -> Model | Forwarded:
        """Ask the backend, and return its answer as the client gets it.

        Raises `BackendRefused`, `BackendGone`, `BackendTimedOut`, `Overloaded`, and what a client is told of itself.
        """
        in_flight = self.to.backend.in_flight
        account = self.account if self.exchange is None else self.exchange.slot.account
        in_flight.take(account)
        try:
            return await self._once(may_repeat=self.to.may_repeat)
        except _Again:
            return await self._once(may_repeat=False)
        finally:
            in_flight.give_back(account)

    async def _once(self, *, may_repeat: bool) -> Model | Forwarded:
        backend, use = self.to.backend, Lease(self.exchange, self.terms.principal)
        connection = await self.take(use)
        try:
            return await self.visit(connection, use).run()
        except RequestTimedOut as error:
            backend.late(connection)
            raise BackendTimedOut(after=error.after, backend=backend.name) from None
        except (ConnectionLost, CannotConnect) as error:
            if connection.is_taken_away:
                raise Overloaded("the client did not answer, and other calls needed the connection") from None
            backend.doubt(connection, error)
            if may_repeat:
                raise _Again from None
            raise self._lost(connection, error) from None
        except NotAuthorized as error:
            raise _ours(INTERNAL_ERROR, str(error), "upstream auth", backend) from None
        except HttpRefused as error:
            raise self._refused(connection, error) from None
        except (BadAnswer, UnfitResult) as error:
            raise _ours(INTERNAL_ERROR, f"{backend.name}: {error}", "invalid_backend_result", backend) from None
        finally:
            backend.give_back(connection, use)

    async def take(self, use: Lease) -> BackendConnection:
        """The connection to ask on. Raises as `Backend.take` does."""
        return await self.to.backend.take(self.terms, self.exchange, self.request.method, use)

    def visit(self, connection: BackendConnection, use: Lease) -> "Attempt":
        """What is done on it."""
        return Attempt(self, connection, use)

    def _lost(self, connection: BackendConnection, error: ConnectionLost | CannotConnect) -> BackendGone:
        name = self.to.backend.name
        reason = "session lost" if isinstance(error, SessionGone) else "server lost"
        why = connection.lost if connection.failure is not None else error.brief or str(error)
        return BackendGone(f"{name}: {why}"[:500], backend=name, reason=reason, exit_code=connection.exit_code)

    def _refused(self, connection: BackendConnection, error: HttpRefused) -> Exception:
        backend = self.to.backend
        if isinstance(error.error, ErrorResponse):
            return front_error(self.terms.revision, connection.revision, self.request.method, error.error, self.to.uri)
        if error.status in (401, 403):
            return _ours(INTERNAL_ERROR, f"{backend.name}: HTTP {error.status}", "upstream auth", backend)
        return BackendGone(f"{backend.name}: HTTP {error.status}", backend=backend.name)


@attrs.define(eq=False)
class Attempt:
    """The request on one connection, however many rounds it takes there."""

    forwarding: Forward
    connection: BackendConnection
    use: Lease
    _is_retry: bool = attrs.field(default=False, init=False)

    async def run(self) -> Model | Forwarded:
        forwarding, connection = self.forwarding, self.connection
        exchange, method = forwarding.exchange, forwarding.request.method
        asking = InputBridge(forwarding.to.backend, connection, forwarding.terms, exchange, method)
        body = self._body(asking)
        if exchange is not None:
            await connection.want_level(exchange)
        is_refreshed = False
        for _ in range(MAX_ROUNDS):
            answer = await self.ask(body)
            try:
                if isinstance(answer, ResultResponse):
                    if not connection.revision.dialect.asks_in_results or not asks(answer.result):
                        return await self.complete(answer.result, asking)
                    if not self._may_ask:
                        raise UnfitResult(f"input_required in response to {method}")
                    if forwarding.terms.revision.dialect.asks_in_results:
                        return await asking.hand_over(answer.result)
                    await asking.answer(body, answer.result)
                elif answer.code == HEADER_MISMATCH and connection.is_http and not is_refreshed:
                    is_refreshed = True
                    await forwarding.to.backend.refresh_now()  # what it wants repeated is another now
                elif not await self._visits_first(answer, asking):
                    refused = front_error(
                        forwarding.terms.revision, connection.revision, method, answer, forwarding.to.uri
                    )
                    hint = self._hint(answer.message.encode())
                    raise BackendRefused(refused.error_code, f"{refused} ({hint})", refused.data) if hint else refused
                self._is_retry = True
            except InputRefused as refused:
                return self._unanswered(refused)
        raise TooManyRounds(rounds=MAX_ROUNDS)

    async def ask(self, body: dict[str, Any]) -> ResultResponse | ErrorResponse:
        """Ask once. Raises as `BackendConnection.send` does."""
        to = self.forwarding.to
        return await self.connection.send(self.forwarding.request.method, body, self.use, self.patience(), to.headers())

    @property
    def _may_ask(self) -> bool:
        return LATEST in METHODS[self.forwarding.request.method].may_ask

    def _body(self, asking: InputBridge) -> dict[str, Any]:
        forwarding, connection = self.forwarding, self.connection
        params = forwarding.request.members
        body = back_params(params, forwarding.to.renamed)
        meta = {**carried_meta(forwarding.said), **connection.said(forwarding.terms, forwarding.said)}
        if meta:
            body["_meta"] = meta
        if connection.revision.dialect.asks_in_results and "inputResponses" in params:
            self._is_retry = True
            body["inputResponses"] = params["inputResponses"]
        asking.take_up(body)
        return body

    async def _visits_first(self, answer: ErrorResponse, asking: InputBridge) -> bool:
        """Whether the backend wants the user somewhere else before, and a modern client has been sent there."""
        forwarding = self.forwarding
        is_meant = answer.code == URL_ELICITATION_REQUIRED and self._may_ask
        front, back = forwarding.terms.revision.dialect, self.connection.revision.dialect
        if not is_meant or back.asks_in_results or not front.asks_in_results:
            return False
        await asking.send_to_urls(answer)
        return True

    async def complete(self, result: Members, asking: InputBridge, method: str | None = None) -> Model | Forwarded:
        """The result as the client gets it. *method* is the method of the result, if it differs from the request's."""
        await asking.finish()
        forwarding, connection = self.forwarding, self.connection
        method = method or forwarding.request.method
        backend = forwarding.to.backend
        front = forwarding.exchange.terms.revision if forwarding.exchange is not None else forwarding.terms.revision
        crossing = Crossing(front, connection.revision, backend.name, backend.settings.trusted)
        keeps = not (self._is_retry or asking.has_asked)
        answer = front_result(crossing, method, result, keeps=keeps)
        if "isError" in result and is_failed(result) and isinstance(answer, Forwarded):
            hint = self._hint(bytes(result.get("content", b"")))
            return with_hint(answer, hint) if hint else answer
        return answer

    def _hint(self, said: bytes) -> str:
        """A hint for the operator about an error, if there is one. It is in the log, too."""
        hint = hint_for(self.forwarding.to.backend.name, self.connection.revision, said)
        if hint:
            self.connection.note("backend_cannot_ask", hint=hint)
        return hint

    def patience(self) -> Patience:
        settings = self.forwarding.to.backend.settings
        # While a client thinks about a question, only the request's own time counts: it stands still when parked.
        return _patience(settings.timeout, LONG if self.use.may_ask else settings.cap)

    def _unanswered(self, refused: InputRefused) -> Model:
        """There is no way to tell a modern server of a refusal, and it would only ask again: the client's own request
        ends. A model can act on what a tool says."""
        if self.forwarding.request.method == "tools/call":
            return CallToolResult(content=[TextContent(text=str(refused))], is_error=True)
        raise BackendRefused(INTERNAL_ERROR, str(refused), {"origin": "broker", "input": refused.key, **refused.cause})


@lru_cache(maxsize=64)
def _patience(timeout: float, cap: float) -> Patience:
    return Patience(timeout=timeout, cap=cap)


class _Again(Exception):
    """The connection was lost, and what was asked changes nothing."""


def _ours(code: int, message: str, reason: str, backend: Backend) -> BackendRefused:
    return BackendRefused(code, message[:500], {"origin": "broker", "reason": reason, "backend": backend.name})
