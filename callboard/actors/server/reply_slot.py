"""The slot for the one answer to a front request, and for the notifications before it."""

from collections.abc import Coroutine, Hashable
from time import perf_counter
from typing import Any, Protocol

import attrs
from msgspec import Raw

from callboard.actors.frames import (
    LARGE,
    About,
    Outcome,
    answer_frame,
    error_frame,
    error_type,
    hold_unread,
    notification_frame,
    text_frame,
)
from callboard.actors.lifecycle import RequestEvent
from callboard.actors.outlet import FrameKind, Outbound, Outlet
from callboard.actors.server.observer import CANCELLED, TOOL_ERROR, Observer, RequestSource
from callboard.actors.server.spans import FrontSpan
from callboard.actors.shares import LOCAL, Shares
from callboard.actors.terms import Terms
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.envelope import RequestId
from callboard.codecs.revisions import Model
from callboard.codecs.revisions.calls import Structured


class InFlight(Protocol):
    """A request that goes on: the `Exchange`."""

    @property
    def slot(self) -> "ReplySlot": ...

    @property
    def terms(self) -> Terms: ...

    def cancel(self, event: RequestEvent, reason: str = "") -> bool:
        """The request is no longer wanted, for this *reason*. True if that ended it: then nothing more is sent."""

    async def give_up(self) -> None:
        """After that: tell its way that there will be no answer."""


class Admission(RequestSource, Protocol):
    """Counts the requests in flight of one connection, or of one endpoint. One that never waits is never in flight."""

    def check(self, slot: "ReplySlot") -> None:
        """Raises `Overloaded` if the request may not begin."""

    def admit(self, slot: "ReplySlot") -> None:
        """The request is in flight from now on, until its slot is released. It was checked."""

    def follow(self, exchange: InFlight) -> None:
        """*exchange* goes on with the request of its slot: it is cancelled when the client does no longer want it."""

    def closed(self, slot: "ReplySlot") -> None:
        """It is answered, or will not be: its id is free."""

    def release(self, slot: "ReplySlot") -> None:
        """Its answer is written, or will not be."""


@attrs.define(eq=False)
class ReplySlot:
    """The reply slot of one front request: its id, its terms, and the way to its client."""

    request_id: RequestId
    method: str
    terms: Terms
    outlet: Outlet
    server_info: Raw | None = None
    admission: Admission | None = None
    account: str = LOCAL  # what fairness is counted by
    unread: Shares | None = None  # where the bytes of an answer count until it is written
    is_shared: bool = attrs.field(default=False, init=False)  # its end is not the end of a stream: others use the way
    is_open: bool = attrs.field(default=True, init=False)
    is_admitted: bool = attrs.field(default=False, init=False)
    _is_sending: bool = attrs.field(default=False, init=False)
    reason: str = attrs.field(default="", init=False)  # why the client cancelled the request, in its own words
    observer: Observer | None = attrs.field(default=None, init=False)
    trace: FrontSpan | None = attrs.field(default=None, init=False)  # only if it is observed and traced
    # These three only if it is observed: since when, what it is about, and how long a backend took for it.
    began: float = attrs.field(init=False)
    target: str | None = attrs.field(init=False)
    behind: float = attrs.field(init=False)

    def watch(self, observer: Observer, target: str | None) -> None:
        """Tell *observer* how the request ends, which begins now."""
        self.observer, self.target, self.behind = observer, target, 0.0
        self.began = perf_counter()

    def admit(self) -> None:
        """The request waits, so it is in flight. It was checked before it began."""
        if self.admission is not None and not self.is_admitted and (self.is_open or self._is_sending):
            self.is_admitted = True
            self.admission.admit(self)

    def follow(self, exchange: InFlight) -> None:
        """*exchange* goes on, and can be cancelled."""
        if self.admission is not None:
            self.admission.follow(exchange)

    async def answer(self, result: Outcome, about: About | None = None) -> None:
        """Send the result and close. One that the revision cannot say is a fault of ours, answered as such, and logged
        with what it is *about*."""
        if (rest := self.begin_answer(result, about)) is not None:
            await rest

    def begin_answer(self, result: Outcome, about: About | None = None) -> Coroutine[Any, Any, None] | None:
        """As `answer`; if that needs waiting, what is returned must be awaited. Mostly it does not."""
        if isinstance(result, (str, Structured)):
            frame, error = text_frame(self.request_id, self.terms.revision, result, self.server_info, about)
        else:
            terms = self.terms
            frame, error = answer_frame(self.request_id, terms.revision, self.method, result, self.server_info, about)
        if error is None and len(frame) < LARGE and self.is_open and self.outlet.try_answer(frame):
            if (observer := self.observer) is not None:
                if self.trace is None and isinstance(result, str):  # as `_tell` has it: most are
                    self.observer = None
                    observer.over(self)
                else:
                    self._tell(result)
            self.close()
            return None
        return self._send(frame, error, result)

    def _tell(self, outcome: Outcome | Exception) -> None:
        """Tell the observer how it ended."""
        observer, self.observer = self.observer, None
        if observer is None:
            return
        if self.trace is not None:
            self.trace.answered(outcome)
        if isinstance(outcome, (str, Structured)):  # most are
            observer.over(self)
        elif isinstance(outcome, Exception):
            observer.over(self, error_type(outcome))
        else:
            observer.over(self, TOOL_ERROR if has_failed(outcome) else "")

    async def report(self, frame: bytes) -> None:
        """Send a progress notification."""
        if self.is_open:
            await self.outlet.send(Outbound(frame, FrameKind.REPORT, (self.request_id, None)))

    async def fail(self, error: Exception) -> None:
        """Send an error and close."""
        await self._send(error_frame(self.request_id, self.terms.revision, error), error, error)

    async def notify(
        self, method: str, params: Model, kind: FrameKind = FrameKind.REPORT, key: Hashable = None
    ) -> None:
        """Send a notification that belongs to this request; none after the answer."""
        if self.is_open:
            frame = notification_frame(self.terms.revision, method, params)
            await self.outlet.send(Outbound(frame, kind, (self.request_id, key)))

    def try_report(self, frame: bytes) -> bool:
        """Send a progress notification, if that needs no waiting; False if it does."""
        return not self.is_open or self.outlet.try_send(Outbound(frame, FrameKind.REPORT, (self.request_id, None)))

    def close(self) -> None:
        """Close the slot: the request is cancelled, and no more messages go out."""
        if self.is_open:
            self._close()
            if self.is_admitted:
                self._release()
            if self.observer is not None:
                self.observer.over(self, CANCELLED)
                self.observer = None

    def _close(self) -> None:
        self.is_open = False
        if self.is_admitted and self.admission is not None:
            self.admission.closed(self)

    def _release(self) -> None:
        if self.is_admitted and self.admission is not None:
            self.is_admitted = False
            self.admission.release(self)

    async def _send(self, frame: bytes, error: Exception | None, outcome: Outcome | Exception) -> None:
        if not self.is_open:
            return
        if self.observer is not None:
            self._tell(outcome if error is None else error)
        self._close()
        hold: object = None
        if len(frame) >= LARGE:
            account, revision = self.account, self.terms.revision
            frame, error, hold = hold_unread(self.unread, account, self.request_id, revision, frame, error)
        self._is_sending = True
        try:
            await self.outlet.answer(frame, error, hold)
        finally:  # not before: a client that does not read its answers has them in flight
            self._is_sending = False
            self._release()


def has_failed(result: Outcome) -> bool:
    """Whether the result of a call says that its tool has failed."""
    if isinstance(result, Forwarded):
        return bytes(result.members.get("isError", b"")) == b"true"
    return getattr(result, "is_error", False) is True
