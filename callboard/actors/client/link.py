"""The way to a server: what every transport of a client can do."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from callboard.actors.deadlines import Deadline
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


@attrs.define(kw_only=True, eq=False)  # never changed; a frozen one costs three times as much to make
class OutgoingRequest:
    """One request on its way to a server."""

    id: RequestId
    method: str
    revision: Revision
    frame: bytes
    limit: Deadline
    """Until when it may take. Moved by its caller; kept by the link if that `keeps_time`, else by its caller."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    """The members that HTTP repeats in headers (2026-07-28)."""
    hold: Hold = nullcontext
    why: Callable[[], str] | None = None
    """Why the request is no longer wanted, if it is not and there is a reason."""

    @property
    def reason(self) -> str:
        """The reason that the server gets when the request is cancelled."""
        return (self.why() if self.why is not None else "") or "no longer needed"


class Link(Protocol):
    """A way to one server. A transport makes one.

    A task that is cancelled in `ask` need do nothing more: the link lets the server know, as its transport has it.
    """

    keeps_time: bool
    """Whether `ask` ends when the request's limit has passed."""
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

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        """Send a request and wait for its answer; what else comes on its way is given to *hear*. None if its time has
        passed, where the link keeps that.

        Raises `ConnectionLost`, `BadAnswer`, and what a transport has of its own to say.
        """

    async def tell(self, frame: bytes) -> None:
        """Send a notification, or an answer to what the server asked. Raises `ConnectionLost`."""

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
