"""Relay of the questions of a legacy backend to the client of the request, and of its answers back."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from callboard.actors.client.answerer import Answerer, Answering
from callboard.actors.client.conversation import Conversation
from callboard.actors.client.link import Link
from callboard.actors.server.client_requests import ClientRequest, SessionKey, check_declared
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.reply_slot import ReplySlot
from callboard.codecs.bridge.askable import NOTHING, Signature
from callboard.codecs.bridge.questions import NotExpressible, back_answer, front_question
from callboard.codecs.bridge.tasks import about_task, task_named
from callboard.codecs.envelope import Request
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import Members, write_members
from callboard.codecs.revisions import (
    Direction,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsResult,
    Model,
    Revision,
    Root,
    method_of,
    read_params,
)
from callboard.codecs.revisions import Result as Empty
from callboard.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BackendRefused,
    InvalidParams,
    MissingCapability,
    Overloaded,
    PeerRefused,
    RequestFailed,
)

HOLD: Final = 3.0
"""Seconds for which a question about roots waits for a request that it may belong to: many servers ask right after the
handshake, which their first request brought about."""

HOME_TIME: Final = 30.0
"""Seconds that the client of a session has for a question that belongs to none of its requests."""

Note: TypeAlias = Callable[..., None]
"""Logs an event with its facts, but not too often."""

NO_REQUEST: Final = "no client request in progress"
_NAMES: Final = count(1)  # many connections of a backend put their questions under one supervisor
_REFUSED: Final = -1  # what a user's "no" is called


class KnownTask(Protocol):
    """A task that some client knows of."""

    @property
    def id(self) -> str:
        """How the client calls it."""

    def hear(self, params: Members) -> None:
        """The backend says where it stands."""


@attrs.define(eq=False)
class QuestionRelay(Answering):
    """The questions of one connection. On a duplex one, the only request that may be asked about is the one meant."""

    backend: str = ""
    signature: Signature = NOTHING
    """The client's declared capabilities: other questions are not forwarded."""
    whose: Callable[[str | None], Exchange | None] = attrs.field(default=lambda _: None)
    wait_asker: Callable[[float], Awaitable[Exchange | None]] | None = None
    roots: tuple[str, ...] = ()
    tasks: Mapping[str, KnownTask] = attrs.field(factory=dict)
    session: SessionKey | None = attrs.field(default=None, init=False)
    """The session of a legacy client that the connection belongs to, if it belongs to one."""
    conversation: Conversation | None = attrs.field(default=None, init=False)

    def about(self) -> dict[str, object]:
        return {"backend": self.backend}

    def can_answer(self, _: str) -> bool:
        return True  # a client in front can: just that is declared

    def begin(self, request: Request, revision: Revision, link: Link, on_idle: Callable[[], None]) -> None:
        self._begin(request, None, revision, link, on_idle)

    def relay(self, request: Request, exchange: Exchange, link: Link) -> None:
        """Ask the client of *exchange*, to which the question belongs for sure."""
        if self.conversation is not None:
            self._begin(request, exchange, self.conversation.revision, link, self.conversation.wait_anew)

    def _begin(
        self, request: Request, exchange: Exchange | None, revision: Revision, link: Link, on_idle: Callable[[], None]
    ) -> None:
        admitted = self.admit(request)
        if admitted is None:
            return
        asker = RelayedQuestion(
            *(self, admitted.request, revision, link, on_idle, admitted.size, admitted.is_refused),
            exchange=exchange,
            relaying=self,
        )
        self._begun[request.id] = self.supervisor.spawn(asker, name=f"q-{next(_NAMES)}")


@attrs.define(eq=False)
class RelayedQuestion(Answerer):
    """Asks one question of a backend's."""

    exchange: Exchange | None = attrs.field(kw_only=True)
    relaying: QuestionRelay = attrs.field(kw_only=True)

    async def _result(self) -> Model:
        request, revision = self.request, self.revision
        method_of(revision, request.method, Direction.SERVER_TO_CLIENT)
        if request.method == "ping":
            return Empty()
        if self.is_refused:
            raise Overloaded("too many questions at once")
        given = request.members
        check_modelled(given)
        params = read_params(revision, request.method, write_members(given))
        task = task_named(given)
        question = ClientRequest(request.method, params)
        if question.needs not in self.relaying.signature:
            return self._undeclared(question)
        exchange = self.exchange or self.relaying.whose(task)
        if question.method == "roots/list":
            return back_answer(revision, await self._roots(question, exchange))
        if exchange is None:
            return self._unattached(request.method)
        known = None if task is None else self.relaying.tasks.get(task)
        answer = await self._ask(exchange, question, None if known is None else known.id)
        return about_task(back_answer(revision, answer), task)

    async def _ask(self, exchange: Exchange, question: ClientRequest, task: str | None = None) -> Model:
        return await ask_client(exchange, question.method, question.params, self.relaying.note, task=task)

    async def _roots(self, question: ClientRequest, exchange: Exchange | None) -> Model:
        """Roots are not a request's but the client's. A connection that belongs to one session can ask that, also when
        the request is over that opened the connection."""
        session = self.relaying.session
        if exchange is None and (session is None or session.home is None):
            exchange = await self._wait_asker()
        if exchange is not None:
            try:
                return await self._ask(exchange, question)
            except BackendRefused:
                if session is None or session.home is None or not exchange.life.is_over:
                    raise
        if session is None or session.home is None:
            return self._unattached(question.method)
        return await ask_session(session, session.home, question)

    async def _wait_asker(self) -> Exchange | None:
        wait = self.relaying.wait_asker
        return None if wait is None else await wait(HOLD)

    def _undeclared(self, question: ClientRequest) -> Model:
        """The client never said that it can answer this, and the backend knows."""
        if question.method == "roots/list" and self.relaying.roots:
            return self._configured_roots()
        reason = f"the client did not declare {question.needs}"
        self.relaying.note("question_refused", method=question.method, reason=reason)
        is_mode = isinstance(question.params, ElicitRequestURLParams)
        raise BackendRefused(INVALID_PARAMS if is_mode else METHOD_NOT_FOUND, reason)

    def _configured_roots(self) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=uri) for uri in self.relaying.roots])

    def _unattached(self, method: str) -> Model:
        if method == "roots/list" and self.relaying.roots:
            return self._configured_roots()
        self.relaying.note("question_refused", method=method, reason=NO_REQUEST)
        raise BackendRefused(INTERNAL_ERROR, NO_REQUEST, {"origin": "broker", "reason": NO_REQUEST})


async def ask_client(
    exchange: Exchange,
    method: str,
    params: Model,
    note: Note,
    elicitation_id: str | None = None,
    task: str | None = None,
    key: str | None = None,
) -> Model:
    """Ask the client of *exchange*, in its own words. What it cannot be asked is answered in its place. *task* is the
    one that the question belongs to, as the client calls it; *key* its name in a modern round, if it has one.

    Raises `BackendRefused` with what the backend is to be told.
    """
    try:
        asked = front_question(exchange.terms.revision, params, elicitation_id or secrets.token_urlsafe(12))
        [answer] = await exchange.ask([ClientRequest(method, asked, key=key, task=task)])
    except NotExpressible:
        note("question_not_expressible", method=method, revision=exchange.terms.revision.value)
        return refusal(method)
    except MissingCapability as error:
        is_mode = method == "elicitation/create" and isinstance(params, ElicitRequestURLParams)
        raise BackendRefused(INVALID_PARAMS if is_mode else METHOD_NOT_FOUND, str(error)) from None
    except PeerRefused as error:
        raise BackendRefused(error.peer_code, "the client returned an error") from None
    except InvalidParams as error:
        raise BackendRefused(INTERNAL_ERROR, str(error)) from None
    except RequestFailed:  # the client does not wait any more, or too much is waited for already
        return refusal(method)
    return answer


async def ask_session(session: SessionKey, home: ReplySlot, question: ClientRequest) -> Model:
    """Ask the client of a session outside of any request, on the session's own way. Raises `BackendRefused`."""
    try:
        check_declared(question, home.terms)
        with trio.move_on_after(HOME_TIME):  # a client may never open the stream on which it could be asked
            return await session.questions.ask(question, home)
    except MissingCapability as error:
        raise BackendRefused(METHOD_NOT_FOUND, str(error)) from None
    except PeerRefused as error:
        raise BackendRefused(error.peer_code, "the client returned an error") from None
    except (InvalidParams, RequestFailed) as error:
        raise BackendRefused(INTERNAL_ERROR, str(error)) from None
    return refusal(question.method)


def refusal(method: str) -> Model:
    """The answer to a backend when the client cannot be asked: no consent was given.

    Raises `BackendRefused` where there is no such answer.
    """
    if method == "elicitation/create":
        return ElicitResult(action="cancel")
    if method == "sampling/createMessage":
        raise BackendRefused(_REFUSED, "the client cannot be asked")
    raise BackendRefused(INTERNAL_ERROR, "the client cannot be asked")
