"""How a client answers what a server asks: the same functions, whether it asks by a request or inside a result."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final, Never, TypeAlias

import attrs
import trio

from callboard.actors.client.link import Link
from callboard.actors.frames import error_frame, result_frame
from callboard.actors.rate import Rate, RateLimit
from callboard.actors.shares import Shares
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.bridge.tasks import about_task, task_named
from callboard.codecs.envelope import Request, RequestId, size_of
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import write_members
from callboard.codecs.revisions import Direction, Model, Revision, method_of, read_params
from callboard.codecs.revisions import Result as Empty
from callboard.errors import BadAnswer, CannotConnect, MethodNotFound, Overloaded, RequestFailed
from callboard.supervisor import Actor, Address, Supervisor, get_logger
from callboard.supervisor.groups import own_nursery

log = get_logger("callboard.actors")

MAX_QUESTIONS: Final = 64
"""Most questions of one server that are answered at once; the next ones are refused."""

MAX_QUESTION_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of the questions of one server that are being answered: two of the largest, or many of the usual ones.
Each is held several times over while its client is asked."""

MAX_QUESTION_ID: Final = 1024
"""Longest id of a question, in characters. A question with a longer one is not answered: the answer would repeat it."""

NOTED: Final = Rate(1, per=10.0)
"""How often the log has one kind of event of a connection. A server may ask in a loop."""

MAX_REFUSALS: Final = 64
"""And how many are being refused: a server that goes on and does not even read that is not answered at all."""

Answer: TypeAlias = Callable[[Any], Awaitable[Model]]
"""Answers one kind of question: params in, result out."""


AddedAnswer: TypeAlias = Callable[[Request, Revision], Awaitable[Forwarded]]
"""Answers a request that the specification does not have, of an extension."""

NONE_ADDED: Final[Mapping[str, AddedAnswer]] = {}


def question_bytes() -> Shares:
    """Counts the bytes of one server's questions."""
    return Shares("bytes of questions", MAX_QUESTION_BYTES, MAX_QUESTION_BYTES)


@attrs.define(eq=False)
class Answering:
    """The questions of one server that are being answered, each by an actor of its own."""

    answers: Mapping[str, Answer]
    supervisor: Supervisor
    asked: Shares = attrs.field(factory=question_bytes, kw_only=True)
    """Bytes of the questions that are being answered: of this connection, or of all to the same server."""
    added: Mapping[str, AddedAnswer] = attrs.field(default=NONE_ADDED, kw_only=True)
    """What answers requests of extensions, by method."""
    _begun: dict[RequestId, Address[Never]] = attrs.field(factory=dict, init=False)
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _noted: RateLimit = attrs.field(factory=lambda: RateLimit(NOTED), init=False)
    _left_out: Counter[str] = attrs.field(factory=Counter, init=False)

    def note(self, event: str, **facts: object) -> None:
        """Log an event of this connection: once in a while, with the number of those that were left out."""
        if self._noted.allow(event, trio.current_time()):
            left_out = self._left_out.pop(event, 0)
            log.info(event, **self.about(), **facts, **({"left_out": left_out} if left_out else {}))
        else:
            self._left_out[event] += 1

    def about(self) -> dict[str, object]:
        """The facts that identify the connection in the log."""
        return {}

    def can_answer(self, method: str) -> bool:
        """Whether a server may ask this by a request."""
        return method in self.answers

    def begin(self, request: Request, revision: Revision, link: Link, on_idle: Callable[[], None]) -> None:
        """Answer a request of the server's, whenever that is done. When none is left, *on_idle* is called."""
        admitted = self.admit(request)
        if admitted is not None:
            actor = Answerer(self, admitted.request, revision, link, on_idle, admitted.size, admitted.is_refused)
            self._begun[request.id] = self.supervisor.spawn(actor, name=f"q-{next(self._names)}")

    def admit(self, request: Request) -> "Admitted | None":
        """Whether a request is answered or refused, and what is kept of it. None if it is dropped."""
        if request.id in self._begun:
            return None  # an answer to it would end the first one
        is_long = isinstance(request.id, str) and len(request.id) > MAX_QUESTION_ID
        if is_long or len(self._begun) >= MAX_QUESTIONS + MAX_REFUSALS:
            self.note("question_dropped", method=request.method[:128])
            return None
        size = size_of(request)
        try:
            if size:
                self.asked.take("", size)
        except Overloaded:
            return Admitted(Request(request.id, request.method), 0, is_refused=True)
        return Admitted(request, size, is_refused=len(self._begun) >= MAX_QUESTIONS)

    def cancel(self, request_id: RequestId, reason: str) -> None:
        """The server no longer wants to know."""
        address = self._begun.get(request_id)
        if address is not None:
            self.note("question_cancelled", request=request_id, reason=reason[:200])
            address.kill("request cancelled")

    def done(self, request_id: RequestId, size: int, on_idle: Callable[[], None]) -> None:
        self._begun.pop(request_id, None)
        if size:
            self.asked.give_back("", size)
        if not self._begun:
            on_idle()

    async def answer_all(self, wanted: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
        """Answer everything that one round asks for, all at once.

        Raises what a function raises, and `BadAnswer` for a round of too many questions.
        """
        if len(wanted) > MAX_QUESTIONS:
            raise BadAnswer(f"more than {MAX_QUESTIONS} questions at once")
        given: dict[str, Any] = {}

        async def answer(key: str, asked: Any) -> None:
            given[key] = await self.find(asked.method)(asked.params)

        async with own_nursery(takes_first=True) as nursery:
            for key, asked in wanted.items():
                nursery.start_soon(answer, key, asked)
        return {key: given[key] for key in wanted}

    def find(self, method: str) -> Answer:
        """The function that answers *method*. Raises `MethodNotFound`."""
        answer = self.answers.get(method)
        if answer is None:
            raise MethodNotFound(f"{method} is not supported")
        return answer


@attrs.frozen(eq=False)
class Admitted:
    """A request of the server's that is answered, or refused: then nothing but its id is kept of it."""

    request: Request
    size: int
    """Bytes that are counted for it."""
    is_refused: bool


@attrs.define(eq=False)
class Answerer(Actor[Never]):
    """Answers one request of the server's."""

    mailbox = None

    answering: Answering
    request: Request
    revision: Revision
    link: Link
    on_idle: Callable[[], None]
    size: int = 0
    is_refused: bool = False
    """Whether one more is too many."""

    async def run(self) -> None:
        request, revision = self.request, self.revision
        try:
            try:
                result = await self._result()
                frame = result_frame(request.id, revision, request.method, result, None)
            except Exception as error:  # the user's function: the server is told that it failed, and no more
                frame = error_frame(request.id, revision, error)
            await self.link.tell(frame)
        except (RequestFailed, CannotConnect):
            pass  # the server is gone
        finally:
            self.answering.done(request.id, self.size, self.on_idle)

    async def _result(self) -> Model | Forwarded:
        request = self.request
        added = self.answering.added.get(request.method)
        if added is None:
            method_of(self.revision, request.method, Direction.SERVER_TO_CLIENT)
        if request.method == "ping":
            return Empty()
        if self.is_refused:
            raise Overloaded("too many questions at once")
        params = request.members
        check_modelled(params)
        if added is not None:
            return await added(request, self.revision)
        answer = self.answering.find(request.method)
        result = await answer(read_params(self.revision, request.method, write_members(params)))
        return about_task(result, task_named(params)) if self.revision.dialect.has_tasks else result
