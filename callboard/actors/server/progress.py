"""One progress token: what a handler reports, made fit for the wire."""

from typing import Final

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.server.reply_slot import ReplySlot
from callboard.codecs.envelope import RequestId
from callboard.codecs.revisions import LoggingMessageNotificationParams, ProgressNotificationParams
from callboard.supervisor import Actor, MailboxSpec, Overflow

INTERVAL: Final = 0.01
"""Seconds between two notifications of one token. A person sees no difference, a peer's queue does."""

RELAYED: Final = 256
"""Log messages that wait to be said; older ones make room for newer."""

MAX_LOG: Final = 16_384
"""Longest log message of a backend that is passed on whole, in bytes. Of a longer one the client gets the beginning."""

MAX_LOGGER: Final = 256
"""Longest name of a logger that is passed on, in characters."""

MAX_LOG_META: Final = 1024
"""Largest `_meta` of a log message that is passed on, in bytes."""

MAX_REPORT_TEXT: Final = 4096
"""Longest message in a progress report of a backend that is passed on, in characters."""


def as_kept(params: LoggingMessageNotificationParams) -> LoggingMessageNotificationParams:
    """A log message of a backend as it waits for its client: bounded, and as bytes, for many small objects take twenty
    times as much."""
    if isinstance(params.data, Raw):
        return params  # it was kept for a parked request, and is said now
    data = msgspec.json.encode(params.data)
    if len(data) > MAX_LOG:
        text = data[:MAX_LOG].decode(errors="ignore")
        data = msgspec.json.encode(f"{text} (cut: {len(data)} bytes)")
    logger = params.logger if params.logger is UNSET else params.logger[:MAX_LOGGER]
    meta = params.meta if params.meta is UNSET or len(msgspec.json.encode(params.meta)) <= MAX_LOG_META else UNSET
    return LoggingMessageNotificationParams(level=params.level, data=Raw(data), logger=logger, meta=meta)


@attrs.frozen
class ProgressReport:
    """How far the work has come."""

    progress: float
    total: float | None = None
    message: str | None = None


@attrs.define(eq=False)
class Progress(Actor[ProgressReport]):
    """Sends reports on: the first at once, then the latest of every interval, and the last one always.

    Its mailbox holds one report, the newest. Stopping it lets it send what is there, so that a request which stops it
    before answering keeps the order: reports, then the answer.
    """

    mailbox = MailboxSpec[ProgressReport](size=1, overflow=Overflow.COALESCE)

    slot: ReplySlot
    token: RequestId
    first: ProgressReport  # not by mailbox: a second one would take its place there

    async def run(self) -> None:
        await self._send(self.first)
        async for report in self.inbox:
            await self._send(report)

    async def _send(self, report: ProgressReport) -> None:
        await self.slot.notify("notifications/progress", self._params(report))
        with trio.move_on_after(INTERVAL):
            await self.wait_stopping()

    def _params(self, report: ProgressReport) -> ProgressNotificationParams:
        return ProgressNotificationParams(
            progress_token=self.token,
            progress=report.progress,
            total=UNSET if report.total is None else report.total,
            message=UNSET if report.message is None else report.message,
        )


@attrs.define(eq=False)
class ProgressRelay(Actor[LoggingMessageNotificationParams]):
    """Sends log messages of a backend in its own task: the backend's other requests must not wait for a client that
    reads slowly."""

    mailbox = MailboxSpec[LoggingMessageNotificationParams](size=RELAYED, overflow=Overflow.DROP_OLDEST)

    slot: ReplySlot

    async def run(self) -> None:
        async for params in self.inbox:
            await self.slot.notify("notifications/message", params)
