"""Questions: messages that want an answer."""

from enum import Enum
from typing import Any, Generic, Protocol, Self, TypeVar

import trio
from trio.lowlevel import Abort, RaiseCancelT, Task, enable_ki_protection

from callboard.supervisor.overflow import Lost, Owner

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
M_co = TypeVar("M_co", covariant=True)


class Asks(Protocol[M_co, R_co]):
    """How a type checker sees a question: a message of type M whose answer is an R."""

    def question(self) -> M_co: ...
    def answer(self) -> R_co: ...


class Ask(Generic[R]):
    """Base of messages that are answered: `class Get(Ask[int])`, and the actor calls `message.reply(3)`.

    A question that was told and not asked may be answered too: the answer is dropped.
    """

    __slots__ = ("_reply",)

    def reply(self, value: R) -> None:
        """Answer. The first answer counts; one that comes late is counted as a dead letter."""
        reply = reply_of(self)
        if reply is not None:
            reply.settle(self, value, None)

    def refuse(self, error: Exception) -> None:
        """Answer with an exception: `ask` raises it."""
        reply = reply_of(self)
        if reply is not None:
            reply.settle(self, None, error)

    def question(self) -> Self:
        """Itself. Only type checkers look at it, as they do at `answer`."""
        return self

    def answer(self) -> R:
        """The argument of `reply`. Raises WouldBlock before it was called."""
        reply = reply_of(self)
        if reply is None or reply.state is not AskState.ANSWERED:
            raise trio.WouldBlock
        return reply.value  # type: ignore[no-any-return]  # `reply` took an R


class AskState(Enum):
    OPEN = 1
    ANSWERED = 2
    REFUSED = 3
    ABANDONED = 4


class PendingReply:
    """The asker's side of one question."""

    __slots__ = ("_owner", "_task", "error", "state", "value")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._task: Task | None = None
        self.state = AskState.OPEN
        self.value: Any = None
        self.error: Exception | None = None

    @enable_ki_protection
    def settle(self, question: object, value: object, error: Exception | None) -> None:
        if self.state is not AskState.OPEN:
            late = self.state is AskState.ABANDONED
            self._owner.lose(question, Lost.LATE_REPLY if late else Lost.ANSWERED_TWICE)
            return
        self.state = AskState.ANSWERED if error is None else AskState.REFUSED
        self.value = value
        self.error = error
        self._wake()

    @enable_ki_protection
    def fail(self, error: Exception) -> None:
        """There will be no answer: `wait` raises *error*, and an answer that still comes is late."""
        if self.state is AskState.OPEN:
            self.state = AskState.ABANDONED
            self.error = error
            self._wake()

    def abandon(self) -> None:
        """The asker has left."""
        if self.state is AskState.OPEN:
            self.state = AskState.ABANDONED

    @enable_ki_protection
    async def wait(self) -> Any:
        """The answer; raises what the question was refused or failed with."""
        if self.state is AskState.OPEN:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        if self.error is None:
            return self.value
        error, self.error = self.error, None  # raised, it refers to frames, and these refer to the question
        try:
            raise error
        finally:
            del error

    def _abort(self, _: RaiseCancelT) -> Abort:
        self._task = None
        self.state = AskState.ABANDONED  # here and not when the asker runs: an answer in between is late already
        return Abort.SUCCEEDED

    def _wake(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)


# The slot is written through its descriptor: questions are frozen, and their fields are the user's.
_reply_slot: Any = Ask.__dict__["_reply"]


def reply_of(question: object) -> PendingReply | None:
    """The asker's side of *question*, if it is one and was asked."""
    return getattr(question, "_reply", None)


def open_reply(question: object, owner: Owner) -> PendingReply:
    """Make *question* ready to be asked.

    Raises:
        RuntimeError: it was asked before and is not answered; ask a fresh one.
    """
    before = reply_of(question)
    if before is not None and before.state not in (AskState.ANSWERED, AskState.REFUSED):
        raise RuntimeError(f"this {type(question).__name__} was already sent; create a new one")
    reply = PendingReply(owner)
    _reply_slot.__set__(question, reply)
    return reply
