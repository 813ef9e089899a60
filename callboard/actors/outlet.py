"""Outlets: the interface by which actors write messages to a peer."""

from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import attrs
import trio

from callboard.errors import PeerError
from callboard.supervisor import Overflow

T = TypeVar("T")


class FrameKind(Enum):
    """Kind of a message in a queue. The value says what happens when the queue is full."""

    ANSWER = (Overflow.WAIT, "a")
    """Results and errors: never dropped."""
    QUESTION = (Overflow.WAIT, "q")
    """Requests of ours: never dropped either."""
    CHANGE = (Overflow.COALESCE, "c")
    """A change notification: only the latest matters."""
    REPORT = (Overflow.DROP_OLDEST, "r")
    """Progress and log messages: the newest matter."""

    @property
    def overflow(self) -> Overflow:
        return self.value[0]


@attrs.frozen
class Outbound:
    """One frame on its way to the peer. Of two changes with the same *key* the later one counts."""

    frame: bytes
    kind: FrameKind = FrameKind.ANSWER
    key: Hashable = None
    ends: bool = False  # it is the answer, after which its request has nothing more to say
    error: Exception | None = None  # what an answer is about that is an error: HTTP says it in the status, too
    hold: object = None  # of the bytes that wait to be read: as long as this message


class Sink(Protocol):
    """Writer of frames to one peer. A transport makes one."""

    def send(self, frame: bytes) -> Coroutine[Any, Any, None]:
        """Waits while the peer cannot take it. Raises `trio.BrokenResourceError` when the peer is gone for good."""


class _Closed:
    """The sink of a session that is over."""

    async def send(self, _: bytes) -> None:
        raise trio.BrokenResourceError("the session has ended")


CLOSED: Final[Sink] = _Closed()


@runtime_checkable
class BatchSink(Protocol):
    """A sink for which several frames at once are cheaper than one after the other."""

    async def send_together(self, frames: Sequence[bytes]) -> None:
        """As `send`, in order."""


Begin: TypeAlias = Callable[[bytes], Coroutine[Any, Any, None] | None]
BeginTogether: TypeAlias = Callable[[Sequence[bytes]], Coroutine[Any, Any, None] | None]


@runtime_checkable
class ImmediateSink(Protocol):
    """A sink that mostly takes a frame at once: then the sender needs no deadline."""

    def begin(self, frame: bytes) -> Coroutine[Any, Any, None] | None:
        """As `send`; what is left to be done must be awaited, if anything is."""


@runtime_checkable
class ImmediateBatchSink(Protocol):
    """Both: one that mostly takes several frames at once."""

    def begin_together(self, frames: Sequence[bytes]) -> Coroutine[Any, Any, None] | None:
        """As `begin`, in order."""


class Connection(Sink, Protocol):
    """A duplex way to one peer: frames come out of it, frames go into it.

    Where a frame could not be read, what is wrong with it takes its place.
    """

    def __aiter__(self) -> AsyncIterator[bytes | PeerError]: ...


class InlinePolicy(NamedTuple):
    """Policy for an inline call while it waits, in the task that read the request."""

    cap: float
    """Seconds it may take."""
    failed: Callable[[Exception], bytes]
    """The answer to a request that is cut short by its deadline, or by the end of the server."""
    ends_with_client: bool
    """Whether it is cancelled when the client leaves."""
    on_wait: Callable[[Callable[[], None]], None]
    """Called when it waits for the first time, with what cancels it. Until then it cannot be cancelled."""


class Adopt(Protocol):
    """Runs an inline call in the task that read the request."""

    async def __call__(self, errand: Coroutine[Any, Any, T], custody: InlinePolicy) -> T: ...


class Outlet(Protocol):
    """The way to the peer: a session's, or that of one HTTP response. Frames arrive in the order they were sent."""

    @property
    def adopt(self) -> Adopt | None:
        """How the task that brought a request can run it; None if others on this way would have to wait for it."""

    async def send(self, message: Outbound) -> None:
        """Hand over one frame. Waits while there is no room for it; if the way is closed, the frame is dropped."""

    def send_nowait(self, message: Outbound) -> None:
        """As `send`, but drop the frame where that would wait: for what is only a courtesy."""

    async def give_up(self) -> None:
        """A request on this way was cancelled: there will be no answer to it."""

    async def close_stream(self, retry: float) -> None:
        """End the stream of a legacy request; its client comes back for the rest after *retry* seconds (2025-11-25).

        Where the way is not a stream of its own, there is nothing to end.
        """
