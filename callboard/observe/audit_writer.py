"""The actor that writes the audit log: it has a thread append what waits, and tries again when that fails."""

from collections.abc import Callable, Sequence
from typing import Final, Never

import attrs
import trio

from callboard.observe.audit import Audit, AuditLine
from callboard.observe.audit_file import AuditFile
from callboard.supervisor import Actor, Fact, get_logger
from callboard.transports.signals import heed_hangups

log = get_logger("callboard.audit")

GATHER: Final = 0.05
"""Seconds for which lines are gathered before they are written together: a thread has its price."""

AGAIN: Final = 1.0
"""Seconds after which lines that could not be written are tried again."""

FAREWELL: Final = 2.0
"""Seconds in which what waits is written at the end."""


@attrs.define(eq=False)
class AuditWriter(Actor[Never]):
    """Writes what waits in *audit* to *file*. Both outlive it: what it leaves behind, `finish` writes."""

    mailbox = None

    audit: Audit
    file: AuditFile
    _failure: str = attrs.field(default="", init=False)
    _dropped: int = attrs.field(default=0, init=False)

    async def run(self) -> None:
        async with self.cancel_on_stop() as nursery:
            nursery.start_soon(self._open_anew)
            while True:
                await self.audit.arrived.wait()
                await trio.sleep(GATHER)
                await write_waiting(self.audit, self.file, self._tell)
                if self.audit.is_failing:
                    await trio.sleep(AGAIN)
                elif self.audit.dropped > self._dropped:
                    self._dropped = self.audit.dropped
                    log.error("audit_lines_dropped", file=self.file.name, dropped=self._dropped)

    async def _open_anew(self) -> None:
        """At each SIGHUP, also if there is nothing to write: what has moved the file away may wait for the new one."""
        with heed_hangups() as hangups:
            async for _ in hangups:
                try:
                    await trio.to_thread.run_sync(self.file.open, abandon_on_cancel=True)
                except OSError as error:
                    self._tell(error)
                else:
                    log.info("audit_log_opened_anew", file=self.file.name)

    def _tell(self, error: OSError | None) -> None:
        """Once for each failure, and once when it is over."""
        reason = "" if error is None else str(error.strerror or error)
        if reason != self._failure:
            self._failure = reason
            about: dict[str, object] = {"file": self.file.name, "dropped": self.audit.dropped}
            if reason:
                log.error("audit_log_not_written", reason=reason, when_full=self.audit.when_full, **about)
            else:
                log.warning("audit_log_written_again", **about)

    def facts(self) -> dict[str, Fact]:
        audit = self.audit
        return {"written": audit.written, "dropped": audit.dropped, "waiting": len(audit.waiting)}


async def write_waiting(audit: Audit, file: AuditFile, tell: Callable[[OSError | None], None]) -> None:
    """Write all lines that wait, or as many as can be written."""
    while batch := audit.batch():
        try:
            count = await trio.to_thread.run_sync(_write, audit, file, batch, audit.written, abandon_on_cancel=True)
        except OSError as error:
            audit.settle(0, is_failing=True)
            tell(error)
            return
        is_failing = count < len(batch)
        audit.settle(count, is_failing=is_failing)
        if is_failing:  # the next attempt says why
            return
        tell(None)


def _write(audit: Audit, file: AuditFile, batch: Sequence[tuple[AuditLine, bytes | None]], before: int) -> int:
    """How many lines are in the file after this that were not among those *before*. A thread that was not waited for
    may have written some of them since."""
    with file.lock:
        file.write(audit.encode(batch)[file.lines - before :])
        return file.lines - before


async def finish(audit: Audit, file: AuditFile) -> None:
    """Write what is left when the tree has ended, and close the file. Also if this is cancelled, but not for long."""
    with trio.move_on_after(FAREWELL, shield=True):
        await write_waiting(audit, file, _tell_last)
    if file.lock.acquire(blocking=False):  # else a thread is still in it, and another file could get its number
        file.close()
        file.lock.release()
    if audit.waiting:
        log.error("audit_lines_lost", file=file.name, lines=len(audit.waiting))


def _tell_last(error: OSError | None) -> None:
    if error is not None:
        log.error("audit_log_not_written", reason=str(error.strerror or error))
