"""How the audit log begins and ends with a server."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import attrs

from callboard import tree
from callboard.actors.server.host import Host
from callboard.codecs.revisions import Implementation
from callboard.errors import CannotServe, Overloaded
from callboard.observe.audit import Audit
from callboard.observe.audit_file import AuditFile, read_audit_key
from callboard.observe.audit_observer import AuditObserver
from callboard.observe.audit_writer import AuditWriter, finish
from callboard.serve.options import ServePlan, ServerName
from callboard.supervisor import Supervisor
from callboard.supervisor.audit import ON_STANDARD_ERROR, note, taking_notes

RETRY_AFTER: Final = 5.0
"""Seconds after which a client may try again that was refused because the audit log cannot be written."""


@attrs.frozen(eq=False)
class AuditLog:
    """The audit log of one server in this process."""

    audit: Audit
    file: AuditFile

    async def join(self, host: Host) -> None:
        """Write what *host* does from now on. Other observers are told of it as before."""
        observer = AuditObserver(self.audit, host.offer.owner_of, host.observer)
        host.observer = host.auditor = observer
        self.audit.on_full = lambda is_full: host.bar(_refused if is_full else None)
        await self.begin(host.root)

    async def begin(self, root: Supervisor) -> None:
        """Write what waits, now and from now on."""
        await root.add(tree.audit(lambda: AuditWriter(self.audit, self.file)))


def open_audit_log(plan: ServePlan, server: Implementation | ServerName, stack: AsyncExitStack) -> AuditLog | None:
    """The log that *plan* wants, until *stack* unwinds: before the tree is entered, so that it outlives all that has
    something to say. Raises `CannotServe`."""
    if plan.audit is None:
        return None
    name = plan.audit if plan.audit == ON_STANDARD_ERROR else str(Path(plan.audit).expanduser())
    file = AuditFile(name)
    try:
        file.open()
    except OSError as error:
        raise CannotServe(f"{name}: {error.strerror or error}") from None
    audit = Audit(plan.audit_when_full)
    stack.push_async_callback(finish, audit, file)
    if plan.audit_arguments == "digest":
        audit.key = read_audit_key(name)
    stack.enter_context(taking_notes(audit.take))
    about = {"server": server.name, "version": server.version, "pid": os.getpid()}
    note("server_started", **about)
    stack.callback(note, "server_ended", **about)
    return AuditLog(audit, file)


def _refused() -> Overloaded:
    return Overloaded("the audit log cannot be written", for_all=True, retry_after=RETRY_AFTER)
