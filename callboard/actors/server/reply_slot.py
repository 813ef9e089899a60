"""The slot for the one answer to a front request, and for the notifications before it."""

from collections.abc import Callable, Hashable

import attrs
from msgspec import Raw

from callboard.actors.frames import answer_frame, error_frame, hold_unread, notification_frame, text_frame
from callboard.actors.outlet import FrameKind, Outbound, Outlet
from callboard.actors.shares import LOCAL, Shares
from callboard.actors.terms import Terms
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.envelope import RequestId
from callboard.codecs.revisions import Model


@attrs.define(eq=False)
class ReplySlot:
    """The reply slot of one front request: its id, its terms, and the way to its client."""

    request_id: RequestId
    method: str
    terms: Terms
    outlet: Outlet
    server_info: Raw | None = None
    on_close: Callable[[], None] = attrs.field(default=lambda: None)
    is_shared: bool = False  # others are answered on the same way, so its end is not the end of a stream
    account: str = LOCAL  # what fairness is counted by
    unread: Shares | None = None  # where the bytes of an answer count until it is written
    is_open: bool = attrs.field(default=True, init=False)
    reason: str = attrs.field(default="", init=False)  # why the client cancelled the request, in its own words

    async def answer(self, result: Model | Forwarded | str) -> None:
        """Send the result and close. One that the revision cannot say is a fault of ours, and answered as such.

        A text alone is the result of a tool that says nothing else.
        """
        if isinstance(result, str):
            await self._close(*text_frame(self.request_id, result, self.server_info))
            return
        await self._close(*answer_frame(self.request_id, self.terms.revision, self.method, result, self.server_info))

    async def fail(self, error: Exception) -> None:
        """Send an error and close."""
        await self._close(error_frame(self.request_id, self.terms.revision, error), error)

    async def notify(
        self, method: str, params: Model, kind: FrameKind = FrameKind.REPORT, key: Hashable = None
    ) -> None:
        """Send a notification that belongs to this request; none after the answer."""
        if self.is_open:
            frame = notification_frame(self.terms.revision, method, params)
            await self.outlet.send(Outbound(frame, kind, (self.request_id, key)))

    def close(self) -> None:
        """Close the slot: the request is answered or cancelled, and no more messages go out."""
        if self.is_open:
            self.is_open = False
            self.on_close()

    async def _close(self, frame: bytes, error: Exception | None) -> None:
        if self.is_open:
            self.close()
            frame, error, hold = hold_unread(
                self.unread, self.account, self.request_id, self.terms.revision, frame, error
            )
            await self.outlet.send(Outbound(frame, ends=True, error=error, hold=hold))
