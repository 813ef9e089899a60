"""Questions of a legacy backend, asked of the client whose request they belong to, and its answers back."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final, Protocol

import attrs
from msgspec import UNSET

from callboard.actors.answering import MAX_QUESTIONS, MAX_REFUSALS, Answerer, Answering
from callboard.actors.caller import Caller
from callboard.actors.exchange import Exchange
from callboard.actors.link import Link
from callboard.actors.questions import Question
from callboard.codecs.crossing.questions import NotExpressible, back_answer, front_question
from callboard.codecs.crossing.tasks import about_task, task_named
from callboard.codecs.envelope import Request
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
from callboard.supervisor import get_logger

log = get_logger("callboard.broker")

HOLD: Final = 3.0
"""Seconds for which a question about roots waits for a request that it may belong to: many servers ask right after the
handshake, which their first request brought about."""

NO_REQUEST: Final = "no client request in progress"
_NAMES: Final = count(1)  # many connections of a backend put their questions under one supervisor
_REFUSED: Final = -1  # what a user's "no" is called


class Known(Protocol):
    """A task that some client knows of."""

    @property
    def id(self) -> str:
        """How the client calls it."""

    def hear(self, params: Members) -> None:
        """The backend says where it stands."""


@attrs.define(eq=False)
class Relaying(Answering):
    """The questions of one connection. On a duplex one, whose they are is found out by who is there."""

    backend: str = ""
    whose: Callable[[str | None], Exchange | None] = attrs.field(default=lambda _: None)
    wait_asker: Callable[[float], Awaitable[Exchange | None]] | None = None
    roots: tuple[str, ...] = ()
    tasks: Mapping[str, Known] = attrs.field(factory=dict)
    caller: Caller | None = attrs.field(default=None, init=False)

    def can_answer(self, _: str) -> bool:
        return True  # somebody in front can: just that is declared

    def begin(self, request: Request, revision: Revision, link: Link, on_idle: Callable[[], None]) -> None:
        self._begin(request, None, revision, link, on_idle)

    def relay(self, request: Request, exchange: Exchange, link: Link) -> None:
        """Ask the client of *exchange*, to which the question belongs for sure."""
        if self.caller is not None:
            self._begin(request, exchange, self.caller.revision, link, self.caller.wait_anew)

    def _begin(
        self, request: Request, exchange: Exchange | None, revision: Revision, link: Link, on_idle: Callable[[], None]
    ) -> None:
        if request.id in self._begun:
            return  # an answer to it would end the first one
        if len(self._begun) >= MAX_QUESTIONS + MAX_REFUSALS:
            log.warning("question_dropped", backend=self.backend, method=request.method[:128])
            return
        is_refused = len(self._begun) >= MAX_QUESTIONS
        asker = Asker(self, request, revision, link, on_idle, is_refused, exchange=exchange, relaying=self)
        self._begun[request.id] = self.supervisor.spawn(asker, name=f"q-{next(_NAMES)}")


@attrs.define(eq=False)
class Asker(Answerer):
    """Asks one question of a backend's."""

    exchange: Exchange | None = attrs.field(kw_only=True)
    relaying: Relaying = attrs.field(kw_only=True)

    async def _result(self) -> Model:
        request, revision = self.request, self.revision
        method_of(revision, request.method, Direction.SERVER_TO_CLIENT)
        if request.method == "ping":
            return Empty()
        if self.is_refused:
            raise Overloaded(f"more than {MAX_QUESTIONS} questions at once")
        given = {} if request.params is UNSET else request.params
        params = read_params(revision, request.method, write_members(given))
        task = task_named(given)
        exchange = self.exchange or await self._whose(request.method, task)
        if exchange is None:
            return self._unattached(request.method)
        known = None if task is None else self.relaying.tasks.get(task)
        answer = await ask_client(
            exchange, request.method, params, self.relaying.backend, task=None if known is None else known.id
        )
        return about_task(back_answer(revision, answer), task)

    async def _whose(self, method: str, task: str | None) -> Exchange | None:
        found = self.relaying.whose(task)
        if found is None and method == "roots/list" and self.relaying.wait_asker is not None:
            return await self.relaying.wait_asker(HOLD)
        return found

    def _unattached(self, method: str) -> Model:
        if method == "roots/list" and self.relaying.roots:
            return ListRootsResult(roots=[Root(uri=uri) for uri in self.relaying.roots])
        log.info("question_refused", backend=self.relaying.backend, method=method, reason=NO_REQUEST)
        raise BackendRefused(INTERNAL_ERROR, NO_REQUEST, {"origin": "broker", "reason": NO_REQUEST})


async def ask_client(
    exchange: Exchange,
    method: str,
    params: Model,
    backend: str,
    elicitation_id: str | None = None,
    task: str | None = None,
) -> Model:
    """Ask the client of *exchange*, in its own words. What it cannot be asked is answered in its place. *task* is the
    one that the question belongs to, as the client calls it.

    Raises `BackendRefused` with what the backend is to be told.
    """
    try:
        asked = front_question(exchange.terms.revision, params, elicitation_id or secrets.token_urlsafe(12))
        [answer] = await exchange.ask([Question(method, asked, task=task)])
    except NotExpressible:
        log.info("question_not_expressible", backend=backend, method=method, revision=exchange.terms.revision.value)
        return refusal(method)
    except MissingCapability as error:
        is_mode = method == "elicitation/create" and isinstance(params, ElicitRequestURLParams)
        raise BackendRefused(INVALID_PARAMS if is_mode else METHOD_NOT_FOUND, str(error)) from None
    except PeerRefused as error:
        raise BackendRefused(error.peer_code, "the client refused") from None
    except InvalidParams as error:
        raise BackendRefused(INTERNAL_ERROR, str(error)) from None
    except RequestFailed:  # nobody waits any more, or too much is waited for already
        return refusal(method)
    return answer


def refusal(method: str) -> Model:
    """What a backend is answered when the client cannot be: nobody said yes.

    Raises `BackendRefused` where there is no such answer.
    """
    if method == "elicitation/create":
        return ElicitResult(action="cancel")
    if method == "sampling/createMessage":
        raise BackendRefused(_REFUSED, "the client cannot be asked")
    raise BackendRefused(INTERNAL_ERROR, "the client cannot be asked")
