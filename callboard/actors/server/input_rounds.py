"""The questions of one modern exchange, gathered into rounds: what is asked together goes out together."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

import attrs
from msgspec import Raw
from trio.lowlevel import ParkingLot

from callboard.actors.server.client_requests import ClientRequest
from callboard.codecs.envelope import Request
from callboard.codecs.members import read_members
from callboard.codecs.revisions import Model, Revision, read_result
from callboard.codecs.revisions.inputs import CreateMessageRequest, ElicitRequest, InputRequest, ListRootsRequest
from callboard.errors import InvalidParams, InvalidRequest

GATHER: Final = 0.02
"""Seconds that a first question waits for others which the handler's other tasks may ask in the same breath."""

REQUESTS: Final[Mapping[str, type[Model]]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}


@attrs.define(eq=False)
class PendingInput:
    """A question that waits for its answer, under the key that the client will answer it by."""

    key: str
    question: ClientRequest
    answer: Model | None = None

    def request(self) -> InputRequest:
        return REQUESTS[self.question.method](params=self.question.params)  # type: ignore[call-arg,return-value]


@attrs.define(eq=False)
class InputRounds:
    """The open questions of an exchange. `number` is the round that was sent last."""

    number: int = 0
    closing: bool = False
    pending: dict[str, PendingInput] = attrs.field(factory=dict, init=False)
    _count: int = attrs.field(default=0, init=False)
    _changed: ParkingLot = attrs.field(factory=ParkingLot, init=False)

    def add(self, questions: Sequence[ClientRequest]) -> list[PendingInput]:
        """Take questions in. Raises ValueError for a key that is in use."""
        added: dict[str, PendingInput] = {}
        for question in questions:
            self._count += 1
            key = question.key or f"r{self.number + 1}.{self._count}"
            if key in self.pending or key in added:
                raise ValueError(f"duplicate key {key!r} for two questions")
            added[key] = PendingInput(key, question)
        self.pending |= added
        return list(added.values())

    def withdraw(self, asked: Sequence[PendingInput]) -> None:
        """The asking task no longer waits; an answer that still comes is ignored."""
        for one in asked:
            if self.pending.get(one.key) is one:
                del self.pending[one.key]

    def requests(self) -> dict[str, InputRequest]:
        """The open questions, as the client gets them."""
        return {key: asked.request() for key, asked in self.pending.items() if asked.answer is None}

    def missing(self, responses: Container[str]) -> Iterator[ClientRequest]:
        """The questions that remain open after *responses*."""
        return (one.question for key, one in self.pending.items() if one.answer is None and key not in responses)

    def read(self, revision: Revision, responses: Mapping[str, Raw]) -> dict[str, Model]:
        """The answers among *responses* that a task waits for. Raises `InvalidParams` for one of the wrong shape."""
        waiting = {key: asked for key, asked in self.pending.items() if asked.answer is None and key in responses}
        return {key: read_result(revision, asked.question.method, responses[key]) for key, asked in waiting.items()}

    def take(self, answers: Mapping[str, Model]) -> bool:
        """Keep *answers*. When none is missing any more, all waiters go on: True."""
        for key, answer in answers.items():
            self.pending[key].answer = answer
        if any(asked.answer is None for asked in self.pending.values()):
            return False
        self.pending.clear()
        self._count = 0
        self.change()
        return True

    def change(self) -> None:
        """Wake all waiters: something changed."""
        self._changed.unpark_all()

    async def wait_change(self) -> None:
        await self._changed.park()


def given_in(request: Request) -> Mapping[str, Raw]:
    """The answers that a front request brings along, by their keys. Raises `InvalidParams` if they have none."""
    if "inputResponses" not in request.members:
        return {}
    try:
        return read_members(request.members["inputResponses"])
    except InvalidRequest as error:
        raise InvalidParams(f'"inputResponses": {error}') from None
