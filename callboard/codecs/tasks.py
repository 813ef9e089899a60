"""A task as a server tells of it, in either protocol: that of 2025-11-25, and the extension of 2026-07-28."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from callboard.codecs.members import Members, write_members
from callboard.codecs.revisions import Revision
from callboard.errors import BadAnswer

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

FINAL: Final[frozenset[TaskStatus]] = frozenset({"completed", "failed", "cancelled"})
"""States that a task stays in."""

POLL: Final = 1.0
"""Default polling interval of a task in seconds, if its server gives none."""

SHORTEST_POLL, LONGEST_POLL = 0.1, 30.0
"""Bounds of that, in seconds; a server's wish is clipped to them."""

MAX_TASK_ID: Final = 1024
"""Longest id of a task that another server gives, in characters: it is kept as long as the task."""

TaskId: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TASK_ID)]

_BEGUN: Final = b'"task"'


class TaskView(msgspec.Struct, frozen=True, rename="camel"):
    """A task, as its server told of it last."""

    task_id: TaskId
    status: TaskStatus
    status_message: str = ""
    created_at: str = ""
    last_updated_at: str = ""
    ttl: float | None = None
    ttl_ms: float | None = None
    poll_interval: float | None = None
    poll_interval_ms: float | None = None
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    input_requests: dict[str, Raw] | None = None

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def seconds(self) -> float | None:
        """How long it is kept from its creation; None without a limit."""
        said = self.ttl if self.ttl_ms is None else self.ttl_ms
        return None if said is None else max(said / 1000, 0.0)

    @property
    def pause(self) -> float:
        """Seconds until it should be asked for again."""
        said = self.poll_interval if self.poll_interval_ms is None else self.poll_interval_ms
        return min(max(POLL if said is None else said / 1000, SHORTEST_POLL), LONGEST_POLL)


_READ: Final = msgspec.json.Decoder(TaskView)


def read_task(task: Members | Raw) -> TaskView:
    """Raises `BadAnswer` for what is not a task."""
    try:
        return _READ.decode(task if isinstance(task, Raw) else write_members(task))
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"not a task: {error}") from None


def created_task(revision: Revision, result: Members) -> TaskView | None:
    """The task that a call became; None for a result of any other kind. Raises `BadAnswer`."""
    if revision.dialect.has_extensions:
        return read_task(result) if bytes(result.get("resultType", b"")) == _BEGUN else None
    return read_task(result["task"]) if revision.dialect.has_tasks and "task" in result else None
