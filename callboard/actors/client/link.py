"""The way to a server: what every transport of a client can do."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol, TypeAlias

import trio

from callboard.actors.client.hearer import NOBODY, Hearer
from callboard.actors.deadlines import Deadline
from callboard.actors.lifecycle import NOT_NEEDED
from callboard.codecs.envelope import ErrorResponse, Notification, Request, RequestId, ResultResponse
from callboard.codecs.revisions import Revision

Hear: TypeAlias = Callable[[Request | Notification], Awaitable[None]]
"""Takes in what a server says unasked. Never waits for long: others are heard on the same way."""

LONGEST_HOLD: Final = 900.0
"""Seconds for which a clock may stand still while a user is asked for authorization."""

Hold: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Stops the clock of a request, while a user is asked to authorize it."""


@contextmanager
def held(scope: trio.CancelScope | Deadline) -> Iterator[None]:
    """Stop the clock of *scope*. The caller sets a bound to it, and here is another."""
    began = trio.current_time()
    scope.deadline += LONGEST_HOLD
    try:
        yield
    finally:
        scope.deadline += min(trio.current_time() - began, LONGEST_HOLD) - LONGEST_HOLD


class OutgoingRequest(Deadline):
    """One request on its way to a server, and the task that waits for its answer.

    It is its own deadline, and the place where its answer is put: an object for each of these, and an event to wait
    for, would cost more than all else that is done to ask.
    """

    __slots__ = (
        "_task",
        "answer",
        "failure",
        "frame",
        "headers",
        "hearer",
        "id",
        "is_late",
        "is_over",
        "method",
        "on_late",
        "revision",
        "trace",
    )

    def __init__(self, request_id: RequestId, method: str, revision: Revision, frame: bytes, at: float) -> None:
        self.id = request_id
        self.method = method
        self.revision = revision
        self.frame = frame
        self.headers = b""  # lines with the members that HTTP repeats in headers (2026-07-28)
        self.trace: Sequence[tuple[bytes, bytes]] = ()  # headers that differ with each request
        self.hearer: Hearer = NOBODY  # hears what is said on its way; and it may say whom the request is for
        self._at = at
        self.on_move = None
        self.answer: ResultResponse | ErrorResponse | None = None
        self.failure = ""  # why the answer that came is none
        self.is_over = False  # there is an answer, or there will be none
        self.is_late = False  # its time has passed before there was an answer
        self.on_late: Callable[[], None] | None = None  # has it told that its time has passed, where no task waits here
        self._task: trio.lowlevel.Task | None = None

    @property
    def reason(self) -> str:
        """The reason that the server gets when the request is cancelled."""
        return NOT_NEEDED

    def hold(self) -> AbstractContextManager[None]:
        """Stop the clock, while a user is asked to authorize it."""
        return held(self)

    def end(self) -> None:
        """There is an answer, or there will be none."""
        self.is_over = True
        self._wake()

    def pass_time(self) -> None:
        """The time is up: an answer that still comes is ignored."""
        if not self.is_over:
            self.is_late = True
            if self.on_late is not None:
                self.on_late()
            self._wake()

    async def wait_over(self) -> None:
        """Wait until there is an answer, or none to be waited for."""
        if self.is_over or self.is_late:
            await trio.lowlevel.checkpoint()
            return
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)


class Link(Protocol):
    """A way to one server. A transport makes one.

    A task that is cancelled in `ask` need do nothing more: the link lets the server know, as its transport has it.
    """

    is_http: bool
    """Whether requests are told apart by the stream that they open, and headers repeat what they say."""
    is_stale: bool
    """Whether the server has ended the session, and a new handshake would open another."""
    ignored: int
    """Messages that no request waited for."""
    lost: str
    """Why nothing can be asked any more, once that is so."""

    @property
    def heard(self) -> int:
        """Messages of any kind that have come from the server; 0 where they are not counted."""

    @property
    def process(self) -> trio.Process | None:
        """The server's process, if the link started one."""

    @property
    def tail(self) -> Sequence[str]:
        """What that process said last on standard error. For logs and operators, never for a peer."""

    @property
    def is_unread(self) -> bool:
        """Whether that process has ended, and had not read all that was sent to it."""

    async def attend(self) -> None:
        """Look after all its requests together, until it ends. Without this each has to look after itself."""

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        """Send a request and wait for its answer; what else comes on its way is given to *hear*. None if its time has
        passed.

        Raises `ConnectionLost`, `BadAnswer`, and what a transport has of its own to say.
        """

    async def tell(self, frame: bytes, headers: bytes = b"") -> None:
        """Send a notification, or an answer to what the server asked; *headers* are lines for HTTP, which repeat some
        of it. Raises `ConnectionLost`."""

    async def listen(self, hear: Hear) -> None:
        """Give *hear* all that comes on no request's way, until the link ends. Returns at once if nothing can."""

    async def wait_listening(self) -> None:
        """Wait until `listen` hears what comes, or never will. Bounded in time: some servers only answer with news."""

    async def wait_dropped(self) -> bool:
        """Hold an idle connection until the server lets go of it. False, at once, if there is none to hold."""

    def agree(self, revision: Revision) -> None:
        """The handshake of a legacy session is done."""

    async def aclose(self) -> None:
        """Say good-bye where that is the custom, and let go of everything. Bounded in time."""
