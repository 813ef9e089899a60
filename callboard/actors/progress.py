"""One progress token: what a handler reports, made fit for the wire."""

from typing import Final

import attrs
import trio
from msgspec import UNSET

from callboard.actors.slot import Slot
from callboard.codecs.envelope import RequestId
from callboard.codecs.revisions import ProgressNotificationParams
from callboard.supervisor import Actor, MailboxSpec, Overflow

INTERVAL: Final = 0.01
"""Seconds between two notifications of one token. A person sees no difference, a peer's queue does."""


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
