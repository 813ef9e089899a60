"""The extension of tasks: tools whose calls may go on after their request was answered with a handle."""

from collections.abc import Iterator
from functools import partial
from typing import Final, Literal, TypeAlias

import attrs

from callboard.actors.frames import Outcome
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod, added_row, check_declared_extension, has_declared
from callboard.actors.server.task_inquiries import TaskInquiries, begun_legacy, created
from callboard.actors.server.task_store import MAX_TASK_TTL, Guarded, TaskStore
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.revisions import (
    Revision,
    ServerCapabilities,
    ServerTaskRequests,
    ServerTasksCapability,
    ToolTaskRequests,
)
from callboard.codecs.revisions.revision import R4, R5
from callboard.errors import MethodNotFound
from callboard.server.extension import Extension, ExtensionRun
from callboard.server.registry import TaskPolicy

TASK_TTL: Final = 3600.0
"""Seconds that a task is kept from its creation, unless the server says otherwise: it ends then, if it still runs."""

TASK_POLL: Final = 1.0
"""Seconds after which a client should ask again, unless the server says otherwise."""

TASK_AFTER: Final = 0.05
"""Seconds that a call may take before it goes on as a task, unless its tool says otherwise: what is quicker needs no
handle, and a client that polls would only be slower."""

TaskUse: TypeAlias = Literal["never", "optional", "required"]
"""Whether calls of a tool become tasks."""


def task_policy(use: TaskUse, after: float | None) -> TaskPolicy | None:
    """Raises ValueError for what is none."""
    if use not in ("never", "optional", "required") or (after is not None and not after >= 0):
        raise ValueError(
            f"invalid task={use!r}, task_after={after!r}: expected never, optional or required, and seconds"
        )
    if use == "never":
        return None
    default = TASK_AFTER if use == "optional" else 0.0
    return TaskPolicy(is_required=use == "required", after=default if after is None else after)


class Tasks(Extension):
    """Lets tools run as tasks: `@server.tool(task="optional")`, which adds this extension by itself.

    A modern client declares `io.modelcontextprotocol/tasks`; one of 2025-11-25 says `task` with its call. A task is
    kept for *ttl* seconds, and clients are told to ask for it every *poll_interval*.
    """

    def __init__(self, *, ttl: float = TASK_TTL, poll_interval: float = TASK_POLL) -> None:
        if not 0 < ttl <= MAX_TASK_TTL or not poll_interval > 0:
            raise ValueError(f"ttl must be positive and at most {MAX_TASK_TTL:g} seconds, and poll_interval positive")
        super().__init__(EXTENSION, needs_client=True, revisions=frozenset({R5}))
        self.ttl: Final = ttl
        self.poll_interval: Final = poll_interval

    def declared(self, revision: Revision, capabilities: ServerCapabilities) -> ServerCapabilities:
        if revision.dialect.has_tasks:
            requests = ServerTaskRequests(tools=ToolTaskRequests(call={}))
            return attrs.evolve(capabilities, tasks=ServerTasksCapability(cancel={}, requests=requests))
        return super().declared(revision, capabilities)

    def added(self, run: ExtensionRun) -> Iterator[tuple[str, AddedMethod]]:
        inquiries = TaskInquiries(self._store(run))
        both, modern, legacy = frozenset({R4, R5}), frozenset({R5}), frozenset({R4})
        rows: tuple[tuple[str, frozenset[Revision], Handler], ...] = (
            ("tasks/get", both, inquiries.get),
            ("tasks/cancel", both, inquiries.cancel),
            ("tasks/update", modern, inquiries.update),
            ("tasks/result", legacy, inquiries.result),
        )
        for name, revisions, handler in rows:
            yield name, AddedMethod(row=added_row(name, extension=EXTENSION, revisions=revisions), handler=handler)

    def around(self, run: ExtensionRun, method: str, handler: Handler) -> Handler:
        return partial(_call, self._store(run), run, handler) if method == "tools/call" else handler

    def _store(self, run: ExtensionRun) -> TaskStore:
        if EXTENSION not in run.kept:
            run.kept[EXTENSION] = TaskStore(self.ttl, self.poll_interval)
        found: TaskStore = run.kept[EXTENSION]
        return found


async def _call(store: TaskStore, run: ExtensionRun, handler: Handler, exchange: Exchange) -> Outcome:
    """Call a tool: as a task, if it is to be one."""
    name = exchange.route.name or ""
    entry, guarded = run.server.registry.tools.entries.get(name), (run.server.info.name, name)
    policy, dialect = None if entry is None else entry.task, exchange.terms.revision.dialect
    if dialect.has_tasks and entry is not None and "task" in exchange.request.members:
        run.guard(exchange)
        if policy is None:
            raise MethodNotFound("this tool does not run as a task")
        return begun_legacy(store, exchange, handler, guarded)
    if policy is None:
        return await handler(exchange)
    if policy.is_required:
        run.guard(exchange)
        return await _call_required(store, handler, guarded, policy, exchange)
    if not has_declared(exchange.terms.capabilities, EXTENSION) or not dialect.has_extensions:
        return await handler(exchange)
    return created(await store.run(exchange, handler, guarded, policy.after))


async def _call_required(
    store: TaskStore, handler: Handler, guarded: Guarded, policy: TaskPolicy, exchange: Exchange
) -> Outcome:
    if not exchange.terms.revision.dialect.has_extensions:
        raise MethodNotFound("this tool runs only as a task")
    check_declared_extension(exchange.terms, EXTENSION)
    if policy.after:
        return created(await store.run(exchange, handler, guarded, policy.after))
    return created(store.begin(exchange, handler, guarded))
