"""Tasks of 2025-11-25 between two connections, each with ids of its own for them (BRIDGING.md, section 14)."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import attrs
import msgspec
from msgspec import UNSET, Raw

from callboard.codecs.bridge.shapes import UnfitResult
from callboard.codecs.envelope import ErrorResponse, Request, ResultResponse
from callboard.codecs.members import Members, raw, read_members, write_members
from callboard.codecs.revisions import Model, Revision, ServerCapabilities, declares, meta
from callboard.codecs.tasks import TaskId
from callboard.errors import MISSING_CLIENT_CAPABILITY, PeerError

TASK_METHODS: Final = ("tasks/get", "tasks/result", "tasks/cancel")
"""Methods for a task. `tasks/list` is not offered: it would need a request to every backend."""

EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The tasks of 2026-07-28: another protocol, which is not offered here."""

ABOUT_TASKS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Methods of it that name a task: they go where the task is."""

OF_THE_EXTENSION: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen"})
"""Methods that belong to it, the last one if it names tasks."""


def needs_extension(method: str, params: Members) -> bool:
    """Whether a modern request belongs to the tasks extension."""
    if method != "subscriptions/listen":
        return method in OF_THE_EXTENSION
    if "notifications" not in params:
        return False
    try:
        return "taskIds" in read_members(params["notifications"])
    except PeerError:
        return False


MAX_RENAMED: Final = 8
"""Times that the message of an error is made to name a task by our id: a longer one than a backend's may be."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


class _Chosen(msgspec.Struct):
    task_ids: list[str] = msgspec.field(name="taskIds", default_factory=list)


class _Naming(msgspec.Struct):
    """The members of params that name tasks: those of a request about one, or of a subscription."""

    task_id: str | None = msgspec.field(name="taskId", default=None)
    notifications: _Chosen = msgspec.field(default_factory=_Chosen)


_READ_NAMING: Final = msgspec.json.Decoder(_Naming)


def tasks_in(request: Request) -> list[str]:
    """The tasks that a request names; none if that cannot be read."""
    found = {name: request.members[name] for name in ("taskId", "notifications") if name in request.members}
    try:
        said = _READ_NAMING.decode(write_members(found))
    except msgspec.MsgspecError:
        return []
    return said.notifications.task_ids if said.task_id is None else [said.task_id]


class TaskStanding(msgspec.Struct, frozen=True, rename="camel"):
    """State of a task, as far as the broker needs it. Times are in milliseconds; no *ttl* means no limit."""

    task_id: TaskId
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    ttl: float | None = None
    poll_interval: float | None = None


_READ: Final = msgspec.json.Decoder(TaskStanding)


class _Related(msgspec.Struct):
    task_id: str = msgspec.field(name="taskId")


_READ_RELATED: Final = msgspec.json.Decoder(_Related)


def runs_tasks(revision: Revision, capabilities: ServerCapabilities) -> bool:
    """Whether a server takes tool calls that are to run as tasks."""
    return revision.dialect.has_tasks and declares(capabilities, "tasks.requests.tools.call")


def has_task_extension(revision: Revision, capabilities: ServerCapabilities) -> bool:
    """Whether a modern server may answer calls by tasks."""
    extensions = capabilities.extensions
    return revision.dialect.has_extensions and extensions is not UNSET and EXTENSION in extensions


class _Required(msgspec.Struct):
    extensions: dict[str, Any] = {}


class _Missing(msgspec.Struct):
    required: _Required = msgspec.field(name="requiredCapabilities", default_factory=_Required)


_READ_MISSING: Final = msgspec.json.Decoder(_Missing)


def is_task_missing(code: int, data: object) -> bool:
    """Whether an error says that a call is taken only as a task of the extension."""
    if code != MISSING_CLIENT_CAPABILITY or not isinstance(data, Raw):
        return False
    try:
        return EXTENSION in _READ_MISSING.decode(data).required.extensions
    except msgspec.MsgspecError:
        return False


def wants_tasks(error: ErrorResponse) -> bool:
    """Whether a server refuses a call because its client does not declare tasks."""
    return is_task_missing(error.code, error.data)


def must_defer(definition: Members) -> bool:
    """Whether a tool can only be called as a task."""
    if "execution" not in definition:
        return False
    try:
        said = msgspec.json.decode(definition["execution"])
    except msgspec.DecodeError:
        return False
    return isinstance(said, dict) and said.get("taskSupport") == "required"


def standing_of(task: Members | Raw) -> TaskStanding:
    """Raises `UnfitResult` for what is not a task."""
    try:
        return _READ.decode(task if isinstance(task, Raw) else write_members(task))
    except msgspec.MsgspecError as error:
        raise UnfitResult(f"not a task: {error}") from None


def front_task(task: Members, ours: str, ttl: int) -> dict[str, Raw]:
    """The task as its client knows it: by our id, kept as long as we keep it."""
    members = {**task, "taskId": raw(ours), "ttl": raw(ttl)}
    return _related(members, ours) if _names_task(members) else members


def front_created(result: Members, ours: str, ttl: int) -> dict[str, Raw]:
    """As `front_task`, for the answer to a call that became one. Raises `UnfitResult`."""
    try:
        task = read_members(result["task"])
    except PeerError as error:
        raise UnfitResult(f"not a task: {error}") from None
    members = {**result, "task": raw(front_task(task, ours, ttl))}
    return _related(members, ours) if _names_task(members) else members


def related(result: Members, ours: str) -> dict[str, Raw]:
    """The outcome of a task, which says of which."""
    return _related(result, ours)


def unrelated(answer: ResultResponse | ErrorResponse) -> ResultResponse | ErrorResponse:
    """The outcome of a task, for a client that knows of none."""
    if not isinstance(answer, ResultResponse) or not _names_task(answer.result):
        return answer
    said = {key: value for key, value in _meta(answer.result).items() if key != meta.RELATED_TASK}
    return msgspec.structs.replace(answer, result={**answer.result, "_meta": raw(said)})


def task_named(params: Members) -> str | None:
    """The task that a question or notification says it belongs to."""
    if not _names_task(params):
        return None
    try:
        return _READ_RELATED.decode(_meta(params)[meta.RELATED_TASK]).task_id
    except (KeyError, msgspec.MsgspecError):
        return None


def about_task(answer: Model, task: str | None) -> Model:
    """The client's answer to a question, naming the *task* that the backend asked for; no other crosses."""
    changed: Any = answer
    said: Mapping[str, object] = {} if changed.meta is UNSET else changed.meta
    meant = {key: value for key, value in said.items() if key != meta.RELATED_TASK}
    if task is not None:
        meant[meta.RELATED_TASK] = {"taskId": task}
    return answer if meant == said else cast("Model", attrs.evolve(changed, meta=meant or UNSET))


def front_refusal(error: ErrorResponse, there: str, ours: str) -> ErrorResponse:
    """The error of a backend about a task, with the broker's id of the task instead of the backend's: where that is a
    word of the message, or all of a string in the data. An id may be as short as a digit, or a comma."""
    data: Any = error.data
    if isinstance(data, Raw) and (theirs := msgspec.json.encode(there)) in bytes(data):
        known = msgspec.json.encode(ours)
        data = Raw(_STRING.sub(lambda found: known if found[0] == theirs else found[0], bytes(data)))
    word = rf"(?<!\w){re.escape(there)}(?!\w)"
    message = re.sub(word, lambda _: ours, error.message, count=MAX_RENAMED) if there else error.message
    return msgspec.structs.replace(error, message=message, data=data)


def _related(members: Members, ours: str) -> dict[str, Raw]:
    return {**members, "_meta": raw({**_meta(members), meta.RELATED_TASK: {"taskId": ours}})}


def _names_task(members: Members) -> bool:
    return meta.RELATED_TASK.encode() in bytes(members.get("_meta", b""))


def _meta(members: Members) -> Mapping[str, Raw]:
    try:
        return read_members(members["_meta"]) if "_meta" in members else {}
    except PeerError:
        return {}
