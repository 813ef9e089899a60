"""The experimental tasks of 2025-11-25. The tasks extension of 2026-07-28 is another thing, and not here."""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from callboard.codecs.revisions.base import (
    NotificationMetaObject,
    PaginatedResult,
    RequestParams,
    Result,
    ResultMetaObject,
)
from callboard.codecs.revisions.model import UNSET, Model, UnsetType, model
from callboard.codecs.revisions.revision import R4, Revisions

TaskStatus: TypeAlias = Literal["cancelled", "completed", "failed", "input_required", "working"]


@model(kw_only=True)
class TaskMetadata(Model):
    """A wish that a request be run as a task, and for how long it shall be kept, in milliseconds."""

    known: ClassVar[Revisions] = frozenset({R4})

    ttl: int | UnsetType = UNSET


@model(kw_only=True)
class RelatedTaskMetadata(Model):
    """Value of the `related-task` key of `_meta`."""

    known: ClassVar[Revisions] = frozenset({R4})

    task_id: str


@model(kw_only=True)
class Task(Model):
    """A task and where it stands. A `ttl` of null means without limit."""

    known: ClassVar[Revisions] = frozenset({R4})

    task_id: str
    status: TaskStatus
    status_message: str | UnsetType = UNSET
    created_at: str
    last_updated_at: str
    ttl: int | None
    poll_interval: int | UnsetType = UNSET


@model(kw_only=True)
class TaskResult(Task):
    """The task as the answer to `tasks/get` and `tasks/cancel`."""

    meta: ResultMetaObject | UnsetType = UNSET


@model(kw_only=True)
class TaskStatusNotificationParams(Task):
    meta: NotificationMetaObject | UnsetType = UNSET


@model(kw_only=True)
class TaskRequestParams(RequestParams):
    """Params of `tasks/get`, `tasks/result` and `tasks/cancel`."""

    known: ClassVar[Revisions] = frozenset({R4})

    task_id: str


@model(kw_only=True)
class CreateTaskResult(Result):
    """The answer to a request that became a task."""

    known: ClassVar[Revisions] = frozenset({R4})
    marks: ClassVar[tuple[str, ...]] = ("task",)

    task: Task


@model(kw_only=True)
class ListTasksResult(PaginatedResult):
    known: ClassVar[Revisions] = frozenset({R4})

    tasks: Sequence[Task]
