"""One progress token: what a handler reports, made fit for the wire."""

from typing import Final

import attrs
import trio
from msgspec import UNSET

from callboard.actors.slot import Slot
from callboard.codecs.envelope import RequestId
from callboard.codecs.revisions import LoggingMessageNotificationParams, ProgressNotificationParams
from callboard.supervisor import Actor, MailboxSpec, Overflow

INTERVAL: Final = 0.01
"""Seconds between two notifications of one token. A person sees no difference, a peer's queue does."""

RELAYED: Final = 256
"""Log messages that wait to be said; older ones make room for newer."""


@attrs.frozen
class Report:
    """How far the work has come."""

    progress: float
    total: float | None = None
    message: str | None = None


@attrs.define(eq=False)
class Progress(Actor[Report]):
    """Sends reports on: the first at once, then the latest of every interval, and the last one always.

    Its mailbox holds one report, the newest. Stopping it lets it send what is there, so that a request which stops it
    before answering keeps the order: reports, then the answer.
    """

    mailbox = MailboxSpec[Report](size=1, overflow=Overflow.COALESCE)

    slot: Slot
    token: RequestId
    first: Report  # not by mailbox: a second one would take its place there

    async def run(self) -> None:
        await self._send(self.first)
        async for report in self.inbox:
            await self._send(report)

    async def _send(self, report: Report) -> None:
        await self.slot.notify("notifications/progress", self._params(report))
        with trio.move_on_after(INTERVAL):
            await self.wait_stopping()

    def _params(self, report: Report) -> ProgressNotificationParams:
        return ProgressNotificationParams(
            progress_token=self.token,
            progress=report.progress,
            total=UNSET if report.total is None else report.total,
            message=UNSET if report.message is None else report.message,
        )


@attrs.define(eq=False)
class Relay(Actor[LoggingMessageNotificationParams]):
    """Says what others may not wait to say: log messages of a backend, whose other requests must not wait for a client
    that reads slowly."""

    mailbox = MailboxSpec[LoggingMessageNotificationParams](size=RELAYED, overflow=Overflow.DROP_OLDEST)

    slot: Slot

    async def run(self) -> None:
        async for params in self.inbox:
            await self.slot.notify("notifications/message", params)
