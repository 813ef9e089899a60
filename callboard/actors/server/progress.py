"""One progress token: what a handler reports, made fit for the wire."""

import math
from typing import Final, Never, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.frames import notification_frame, progress_frame
from callboard.actors.server.reply_slot import ReplySlot
from callboard.codecs.envelope import RequestId
from callboard.codecs.revisions import LoggingMessageNotificationParams, ProgressNotificationParams
from callboard.supervisor import Actor, Fact, MailboxSpec, Overflow, Snapshot

INTERVAL: Final = 0.01
"""Seconds between two notifications of one token. A person sees no difference, a peer's queue does."""

RELAYED: Final = 256
"""Log messages and notifications of extensions that wait to be said; older ones make room for newer."""

RELAYED_BYTES: Final = 1024 * 1024
"""Bytes of the notifications of extensions among them. A larger one is dropped."""

MAX_LOG: Final = 16_384
"""Longest log message of a backend that is passed on whole, in bytes. Of a longer one the client gets the beginning."""

MAX_LOGGER: Final = 256
"""Longest name of a logger that is passed on, in characters."""

MAX_LOG_META: Final = 1024
"""Largest `_meta` of a log message that is passed on, in bytes."""

MAX_REPORT_TEXT: Final = 4096
"""Longest message in a progress report of a backend that is passed on, in characters."""


MAX_TOKEN: Final = 64
"""Characters of a progress token that the tree shows."""


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


Relayed: TypeAlias = LoggingMessageNotificationParams | bytes
"""A log message, or the frame of a notification of an extension."""


@attrs.frozen
class ProgressReport:
    """How far the work has come."""

    progress: float
    total: float | None = None
    message: str | None = None


class ProgressTimer(Actor[Never]):
    """Sends the reports of all tokens that came too soon after the one before."""

    __slots__ = ("_due", "_wanted")

    mailbox = None

    def __init__(self) -> None:
        self._due: dict[Progress, None] = {}
        self._wanted = trio.Event()

    def add(self, token: "Progress") -> None:
        """*token* has a report that waits."""
        self._due[token] = None
        self._wanted.set()

    def discard(self, token: "Progress") -> None:
        self._due.pop(token, None)

    async def run(self) -> None:
        while True:
            if not self._due:
                self._wanted = trio.Event()
                await self._wanted.wait()
            await trio.sleep(INTERVAL)
            due, self._due = self._due, {}
            for token in due:
                if not token.flush():
                    self._due.setdefault(token)

    def facts(self) -> dict[str, Fact]:
        return {"waiting": len(self._due)}


class Progress:
    """One progress token: the first report is sent at once, then the latest of every interval, and the last one always.

    It has no task: the timer that all tokens share sends what came too soon, and the request's own task the last.
    """

    __slots__ = ("_sent_at", "_slot", "_timer", "_token", "_waiting", "count", "latest", "started_at")

    def __init__(self, slot: ReplySlot, token: RequestId, timer: ProgressTimer) -> None:
        self._slot = slot
        self._token = token
        self._timer = timer
        self._waiting = False
        self._sent_at = -math.inf
        self.latest: ProgressReport | None = None
        self.count = 0
        self.started_at = trio.current_time()

    def report(self, report: ProgressReport) -> None:
        """Send *report*, now or soon. A value that does not rise is dropped."""
        if self.latest is not None and report.progress <= self.latest.progress:
            return
        self.latest = report
        self.count += 1
        if self._waiting:
            return
        if trio.current_time() - self._sent_at >= INTERVAL and self._try():
            return
        self._waiting = True
        self._timer.add(self)

    def flush(self) -> bool:
        """Send what waits, unless the client does not read: False."""
        self._waiting = not self._try()
        return not self._waiting

    async def finish(self) -> None:
        """Send the last report, if that waits; the answer comes next."""
        if self._waiting and self.latest is not None:
            self.forget()
            await self._slot.report(self._frame(self.latest))

    def forget(self) -> None:
        """Send nothing more."""
        self._waiting = False
        self._timer.discard(self)

    def _try(self) -> bool:
        if self.latest is None or not self._slot.try_report(self._frame(self.latest)):
            return False
        self._sent_at = trio.current_time()
        return True

    def _frame(self, report: ProgressReport) -> bytes:
        if report.message is None:
            return progress_frame(self._token, report.progress, report.total)
        params = ProgressNotificationParams(
            progress_token=self._token,
            progress=report.progress,
            total=UNSET if report.total is None else report.total,
            message=report.message,
        )
        return notification_frame(self._slot.terms.revision, "notifications/progress", params)

    def snapshot(self, path: str, now: float) -> Snapshot:
        """The token, as the tree shows it below its request at *path*."""
        latest = self.latest or ProgressReport(0.0)
        facts: dict[str, Fact] = {"token": str(self._token)[:MAX_TOKEN], "progress": latest.progress}
        if latest.total is not None:
            facts["total"] = latest.total
        return Snapshot(
            name="progress",
            path=f"{path}/progress",
            kind="Progress",
            state="running",
            age=now - self.started_at,
            handled=self.count,
            facts=facts,
        )


@attrs.define(eq=False)
class ProgressRelay(Actor[Relayed]):
    """Sends what a backend says on the way in its own task: the backend's other requests must not wait for a client
    that reads slowly."""

    mailbox = MailboxSpec[Relayed](
        size=RELAYED,
        overflow=Overflow.DROP_OLDEST,
        most_weight=RELAYED_BYTES,
        weigh=lambda said: len(said) if isinstance(said, bytes) else 0,  # a log message is bounded by itself
    )

    slot: ReplySlot

    async def run(self) -> None:
        async for said in self.inbox:
            if isinstance(said, bytes):
                await self.slot.report(said)
            else:
                await self.slot.notify("notifications/message", said)
