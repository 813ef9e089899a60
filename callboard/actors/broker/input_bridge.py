"""Rounds of questions between a backend and a client of another era (BRIDGING.md, sections 5.1 and 13)."""

import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import trio
from msgspec import UNSET

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.question_relay import ask_client
from callboard.actors.client.answerer import MAX_QUESTIONS
from callboard.actors.server.client_requests import ClientRequest, check_declared
from callboard.actors.server.exchange import Exchange
from callboard.actors.terms import Terms
from callboard.actors.undo import undo_unless_done
from callboard.codecs.bridge.askable import signature_of
from callboard.codecs.bridge.results import Crossing, Forwarded, front_meta
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import Members, raw
from callboard.codecs.revisions import (
    ElicitationCompleteNotificationParams,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsRequestParams,
    Model,
    read,
    write,
)
from callboard.codecs.revisions.convert import read_form
from callboard.codecs.revisions.elicitation import URLElicitationRequiredData
from callboard.codecs.revisions.inputs import InputRequest, InputRequests
from callboard.codecs.state import STATE_TTL
from callboard.errors import INTERNAL_ERROR, BackendRefused, InvalidRequest, InvalidState, MissingCapability, PeerError
from callboard.supervisor.groups import own_nursery

MAX_ROUNDS: Final = 16
"""Rounds that one request may take at its backend."""

SHORT_WAIT: Final = 20.0
"""Seconds for a backend to hear that its user has been where it sent him."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds before a request is sent again that a backend only wants repeated."""

_read_state = msgspec.json.Decoder(str).decode
_read_carried = msgspec.json.Decoder(tuple[str, str]).decode


class InputRefused(Exception):
    """The client did not answer what a modern backend must know. *key* is the question's, *cause* what it said."""

    def __init__(self, key: str, why: str, cause: BackendRefused | None = None) -> None:
        super().__init__(f"the client did not answer: {why}")
        self.key = key
        self.cause = {} if cause is None else {"cause": {"code": cause.error_code, "message": str(cause)}}


@attrs.define(eq=False)
class InputBridge:
    """The questions of one request so far."""

    backend: Backend
    connection: BackendConnection
    terms: Terms
    exchange: Exchange | None
    method: str
    has_asked: bool = attrs.field(default=False, init=False)
    _visited: dict[str, str] = attrs.field(factory=dict, init=False)  # URLs, and the ids that we gave them
    _pause: float = attrs.field(default=FIRST_PAUSE, init=False)

    # Modern client, modern backend: the client keeps the backend's state, sealed together with the backend's name.

    def take_up(self, body: dict[str, Any], carried: bytes) -> None:
        """Give the backend the state back that it gave. Raises `InvalidState` if that was another backend."""
        try:
            name, state = _read_carried(carried)
        except msgspec.MsgspecError:
            raise InvalidState from None
        if name != self.backend.name:
            raise InvalidState
        self.has_asked = True
        body["requestState"] = state

    async def hand_over(self, result: Members) -> Forwarded:
        """Pass the backend's questions on as they are. Raises `MissingCapability` for one that may not be asked, and
        `BackendRefused` for what is not written as questions are."""
        self._check_declared(self._read(result))
        members: dict[str, Any] = dict(result)
        crossing = Crossing(self.terms.revision, self.connection.revision, self.backend.name)
        members["_meta"] = front_meta(crossing, result.get("_meta"))
        self.backend.sleep.keep_awake(STATE_TTL)  # also without a state: a user may be on the way to its own page
        if "requestState" in result and self.exchange is not None:
            payload = msgspec.json.encode((self.backend.name, self._state(result)))
            members["requestState"] = raw(await self.exchange.parking.wrap(self.exchange, payload))
        return Forwarded(members)

    def _state(self, result: Members) -> str:
        try:
            return _read_state(result["requestState"])
        except msgspec.MsgspecError:
            raise BackendRefused(
                INTERNAL_ERROR, f"{self.backend.name}: result.requestState: expected a string"
            ) from None

    def _check_declared(self, wanted: Mapping[str, InputRequest]) -> None:
        for request in wanted.values():
            check_declared(ClientRequest(request.method, _params(request)), self.terms)

    def _read(self, result: Members) -> Mapping[str, InputRequest]:
        if "inputRequests" not in result:
            if "requestState" not in result:
                raise BackendRefused(INTERNAL_ERROR, f"{self.backend.name}: input_required without a question")
            return {}
        try:
            check_modelled({"inputRequests": result["inputRequests"]})
            found: Mapping[str, InputRequest]
            found = read_form(
                self.connection.revision, InputRequests, result["inputRequests"], at="result.inputRequests"
            )
            if len(found) > MAX_QUESTIONS:
                raise InvalidRequest(f"result.inputRequests: more than {MAX_QUESTIONS} questions at once")
        except PeerError as error:
            raise BackendRefused(INTERNAL_ERROR, f"{self.backend.name}: {error}") from None
        return found

    # Legacy client, modern backend: the questions become requests, and the answers the next round.

    async def answer(self, body: dict[str, Any], result: Members) -> None:
        """Ask the client what the backend wants to know, and put the answers into *body*.

        Raises `InputRefused`; `BackendRefused` for a backend that asks what it was told it cannot.
        """
        wanted = self.questions(result)
        body.pop("inputResponses", None)
        body.pop("requestState", None)
        if "requestState" in result:
            body["requestState"] = self._state(result)
        if not wanted or all(self._was_visited(request) for request in wanted.values()):
            await trio.sleep(self._pause)  # nothing to ask: it only wants to be asked again, later
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if wanted:
            with undo_unless_done(partial(self._withdraw, result)):
                body["inputResponses"] = await self._answers(wanted)

    def _withdraw(self, result: Members) -> None:
        """The client will not answer, and the backend would wait for it in vain."""
        withdraw = self.backend.withdraw
        if withdraw is not None and self.exchange is not None and "requestState" in result:
            withdraw(self.method, self._state(result), self.exchange)

    async def _answers(self, wanted: Mapping[str, InputRequest]) -> dict[str, Any]:
        answers: dict[str, Any] = {}

        async def one(key: str, request: InputRequest) -> None:
            answers[key] = write(self.connection.revision, await self._answer(key, request))

        self.has_asked = True
        async with own_nursery(takes_first=True) as nursery:
            for key, request in wanted.items():
                nursery.start_soon(one, key, request)
        return answers

    def questions(self, result: Members) -> Mapping[str, InputRequest]:
        """The questions of a modern backend. Raises `BackendRefused`, also for one that it was told it cannot ask."""
        wanted = self._read(result)
        try:
            self._check_declared(wanted)
        except MissingCapability as error:
            self.connection.note("question_undeclared", reason=str(error))
            raise BackendRefused(INTERNAL_ERROR, f"{self.backend.name}: {error}", {"origin": "broker"}) from None
        return wanted

    async def answer_one(self, key: str, request: InputRequest) -> Model:
        """Ask the client one question of a task, by its own key. Raises `InputRefused`."""
        self.has_asked = True
        return await self._answer(key, request, its_own=key)

    async def _answer(self, key: str, request: InputRequest, its_own: str | None = None) -> Model:
        params = _params(request)
        if self.exchange is None:
            raise InputRefused(
                key, "the transport cannot send requests to the client"
            )  # only a client that declares nothing has none
        if self._was_visited(request):
            return ElicitResult(action="accept")
        ours = secrets.token_urlsafe(12)
        try:
            answer = await ask_client(
                self.exchange, request.method, params, self.connection.note, elicitation_id=ours, key=its_own
            )
        except BackendRefused as refused:
            if request.method == "elicitation/create":
                return ElicitResult(action="cancel")
            raise InputRefused(key, f"{request.method}: {refused}", refused) from None
        is_gone = isinstance(answer, ElicitResult) and answer.action == "accept"
        if is_gone and isinstance(params, ElicitRequestURLParams):
            self._visited[params.url] = ours
        return answer

    def _was_visited(self, request: InputRequest) -> bool:
        params = _params(request)
        return isinstance(params, ElicitRequestURLParams) and params.url in self._visited

    async def finish(self) -> None:
        """The request is complete: a client of 2025-11-25 that was sent to a URL is told so."""
        if self.exchange is not None and self._visited and self.terms.revision.dialect.has_elicitation_ids:
            for ours in self._visited.values():
                params = ElicitationCompleteNotificationParams(elicitation_id=ours)
                await self.exchange.slot.notify("notifications/elicitation/complete", params)

    # Modern client, legacy backend that refuses until its user has been somewhere else.

    async def send_to_urls(self, refusal: ErrorResponse) -> None:
        """Send the user where a legacy backend wants him first. Nothing waits there: the call is made again.

        Raises `MissingCapability` if the client cannot be asked, `InputRefused` if its user does not go.
        """
        try:
            data = read(self.connection.revision, URLElicitationRequiredData, refusal.data, at="error.data")
        except PeerError:
            raise BackendRefused(INTERNAL_ERROR, refusal.message, {"cause": {"code": refusal.code}}) from None
        if self.exchange is None or "elicitation.url" not in signature_of(self.terms.capabilities):
            raise MissingCapability("elicitation.url", {"elicitation": {"url": {}}})
        new = [one for one in data.elicitations if one.url not in self._visited]
        if not new:
            ids = [one.elicitation_id for one in data.elicitations if isinstance(one.elicitation_id, str)]
            await self.connection.visits.wait(ids, SHORT_WAIT)
            self._visited.clear()  # if that does not help, the user is asked again
            return
        self.has_asked = True
        asked = [
            ClientRequest("elicitation/create", attrs.evolve(one, elicitation_id=UNSET, task=UNSET, meta=UNSET))
            for one in new
        ]
        for one, answer in zip(new, await self.exchange.ask(asked, at_once=True), strict=True):
            if not isinstance(answer, ElicitResult) or answer.action != "accept":
                raise InputRefused("elicitation", "the user did not open the URL that the server requires first")
            self._visited[one.url] = ""


def _params(request: InputRequest) -> Model:
    found: Any = request.params
    params: Model = ListRootsRequestParams() if found is UNSET else found
    return params
