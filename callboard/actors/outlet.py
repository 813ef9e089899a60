"""Outlets: the interface by which actors write messages to a peer."""

from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import attrs
import trio

from callboard.actors.terms import Terms
from callboard.errors import PeerError
from callboard.supervisor import Lifetime, Overflow


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


@runtime_checkable
class PostingSink(Protocol):
    """A sink that mostly takes a frame at once, and together with what else is said in the same turn of the loop."""

    def post(self, frame: bytes) -> bool:
        """Send *frame*, without waiting. False if it must be sent otherwise."""


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


class Carried(Protocol):
    """A request that waits, as the task that carries it needs it."""

    left: float
    """Seconds until it is cancelled, when it begins to wait."""

    def own(self, lifetime: Lifetime) -> None:
        """From now on *lifetime* is the request's alone: another task reads on."""


class Carrier(Protocol):
    """The task that reads a connection, and runs the requests that it reads.

    A request that never waits is over before anything else could happen. When one waits, its task stays with it, since
    a coroutine cannot change its task, and another task reads on: a connection can.
    """

    terms: Terms | None
    """Of the latest request that stood alone, if they are observed: who its client is."""

    def carry(self, request: Carried) -> None:
        """*request* waits in this task. It gets the lifetime of its task when another one reads on: now, or later if
        the connection can wait. Never raises."""

    def free(self) -> Lifetime:
        """Have another task read on now. Returns the lifetime of the one that stays."""

    def drop(self, request: Carried) -> None:
        """*request* is over. Harmless for one that is not carried here."""


class Outlet(Protocol):
    """The way to the peer: a session's, or that of one HTTP response. Frames arrive in the order they were sent."""

    async def answer(self, frame: bytes, error: Exception | None = None, hold: object = None) -> None:
        """Hand over the answer to a request, which ends it. *error* if it is one; *hold* as in `Outbound`."""

    def try_answer(self, frame: bytes) -> bool:
        """As `answer`, for a result, if that needs no waiting; False if it does: then nothing was sent."""

    async def send(self, message: Outbound) -> None:
        """Hand over one frame. Waits while there is no room for it; if the way is closed, the frame is dropped."""

    def send_nowait(self, message: Outbound) -> None:
        """As `send`, but drop the frame where that would wait: for what is only a courtesy."""

    def try_send(self, message: Outbound) -> bool:
        """As `send`, if that needs no waiting. False if it does: then nothing was sent."""

    async def give_up(self) -> None:
        """A request on this way was cancelled: there will be no answer to it."""

    async def close_stream(self, retry: float) -> None:
        """End the stream of a legacy request; its client comes back for the rest after *retry* seconds (2025-11-25).

        Where the way is not a stream of its own, there is nothing to end.
        """
