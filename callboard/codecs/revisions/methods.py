"""The methods of every revision, by direction: one row each.

There is no class per request or notification: `method` is the row's name, and what remains of it is its params.
"""

import enum
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from callboard.codecs.revisions import (
    base,
    calls,
    elicitation,
    lifecycle,
    prompts,
    resources,
    roots,
    sampling,
    subscriptions,
    tasks,
    tools,
)
from callboard.codecs.revisions.model import Model
from callboard.codecs.revisions.revision import ALL, LEGACY, MODERN, NONE, R2, R3, R4, Revision, Revisions, span
from callboard.errors import MethodNotFound

Side: TypeAlias = Literal["client", "server"]


class Direction(enum.Enum):
    """From which side to which. `INPUT` is a question of the server inside an `input_required` result."""

    CLIENT_TO_SERVER = "c>s"
    SERVER_TO_CLIENT = "s>c"
    INPUT = "input"

    __hash__ = object.__hash__  # the enum's own is Python code


@attrs.frozen
class Capability:
    """Capability that a side must have declared, in dotted field names; *when* limits it to one direction."""

    side: Side
    path: str
    known: Revisions = ALL
    when: Direction | None = None


@attrs.frozen(kw_only=True)
class Method:
    """One method: where it may be said, what it says, what answers it, and what it needs.

    Without a result it is a notification. `may_ask` marks what may be answered by `input_required`, `may_defer`
    what may become a task of 2025-11-25.
    """

    name: str
    params: Any
    result: type[Model] | None = None
    spoken: Mapping[Direction, Revisions]
    needs: tuple[Capability, ...] = ()
    may_ask: Revisions = NONE
    may_defer: Revisions = NONE
    extension: str | None = None
    """The extension that a modern client must declare to use it, if there is one."""

    @property
    def is_request(self) -> bool:
        return self.result is not None

    def known(self, revision: Revision) -> bool:
        """Whether *revision* has the method, in any direction."""
        return any(revision in revisions for revisions in self.spoken.values())

    def needed(self, revision: Revision, direction: Direction) -> Capability | None:
        """The capability without which the method may not be used, if there is one."""
        fitting = (need for need in self.needs if revision in need.known and need.when in (None, direction))
        return next(fitting, None)


_R4: Final = frozenset({R4})


def _spoken(to_server: Revisions, to_client: Revisions, as_input: Revisions = NONE) -> dict[Direction, Revisions]:
    return dict(zip(Direction, (to_server, to_client, as_input), strict=True))


def _ask_server(name: str, params: Any, result: type[Model], known: Revisions, *needs: str) -> Method:
    """A request of the client."""
    wanted = tuple(Capability("server", path) for path in needs)
    return Method(name=name, params=params, result=result, spoken=_spoken(known, NONE), needs=wanted)


def _ask_client(name: str, params: Any, result: type[Model], first: Revision, path: str) -> Method:
    """A request of the server: a message of its own at first, part of a result in the modern era."""
    spoken = _spoken(NONE, span(first, R4), MODERN)
    return Method(name=name, params=params, result=result, spoken=spoken, needs=(Capability("client", path),))


def _ask_task(name: str, params: Any, result: type[Model], path: str) -> Method:
    """A request about a task, to the side that runs it."""
    return Method(name=name, params=params, result=result, spoken=_spoken(_R4, _R4), needs=_of_receiver(path))


def _of_receiver(path: str) -> tuple[Capability, ...]:
    return (
        Capability("server", path, when=Direction.CLIENT_TO_SERVER),
        Capability("client", path, when=Direction.SERVER_TO_CLIENT),
    )


def _tell_client(name: str, params: Any, known: Revisions, *needs: Capability) -> Method:
    return Method(name=name, params=params, spoken=_spoken(NONE, known), needs=needs)


def _tell_server(name: str, params: Any, known: Revisions, *needs: Capability) -> Method:
    return Method(name=name, params=params, spoken=_spoken(known, NONE), needs=needs)


def _requests() -> Iterator[Method]:
    page, empty = base.PaginatedRequestParams, base.Result
    yield _ask_server("initialize", lifecycle.InitializeRequestParams, lifecycle.InitializeResult, LEGACY)
    yield Method(name="ping", params=base.RequestParams, result=empty, spoken=_spoken(LEGACY, LEGACY))
    yield _ask_server("server/discover", base.RequestParams, lifecycle.DiscoverResult, MODERN)
    yield _ask_server("tools/list", page, tools.ListToolsResult, ALL, "tools")
    call = _ask_server("tools/call", calls.CallToolRequestParams, calls.CallToolResult, ALL, "tools")
    yield attrs.evolve(call, may_ask=MODERN, may_defer=_R4)
    yield _ask_server("resources/list", page, resources.ListResourcesResult, ALL, "resources")
    yield _ask_server("resources/templates/list", page, resources.ListResourceTemplatesResult, ALL, "resources")
    reading = _ask_server("resources/read", calls.ReadResourceRequestParams, calls.ReadResourceResult, ALL, "resources")
    yield attrs.evolve(reading, may_ask=MODERN)
    one = calls.ResourceRequestParams
    yield _ask_server("resources/subscribe", one, empty, LEGACY, "resources.subscribe")
    yield _ask_server("resources/unsubscribe", one, empty, LEGACY, "resources.subscribe")
    listen = subscriptions.SubscriptionsListenRequestParams
    yield _ask_server("subscriptions/listen", listen, subscriptions.SubscriptionsListenResult, MODERN)
    yield _ask_server("prompts/list", page, prompts.ListPromptsResult, ALL, "prompts")
    getting = _ask_server("prompts/get", calls.GetPromptRequestParams, calls.GetPromptResult, ALL, "prompts")
    yield attrs.evolve(getting, may_ask=MODERN)
    complete = _ask_server("completion/complete", calls.CompleteRequestParams, calls.CompleteResult, ALL)
    yield attrs.evolve(complete, needs=(Capability("server", "completions", span(R2)),))
    yield _ask_server("logging/setLevel", subscriptions.SetLevelRequestParams, empty, LEGACY, "logging")
    create, created = sampling.CreateMessageRequestParams, sampling.CreateMessageResult
    yield attrs.evolve(_ask_client("sampling/createMessage", create, created, min(ALL), "sampling"), may_defer=_R4)
    yield _ask_client("roots/list", roots.ListRootsRequestParams, roots.ListRootsResult, min(ALL), "roots")
    elicit, elicited = elicitation.ElicitRequestParams, elicitation.ElicitResult
    yield attrs.evolve(_ask_client("elicitation/create", elicit, elicited, R3, "elicitation"), may_defer=_R4)
    yield _ask_task("tasks/get", tasks.TaskRequestParams, tasks.TaskResult, "tasks")
    yield _ask_task("tasks/result", tasks.TaskRequestParams, empty, "tasks")
    yield _ask_task("tasks/list", page, tasks.ListTasksResult, "tasks.list")
    yield _ask_task("tasks/cancel", tasks.TaskRequestParams, tasks.TaskResult, "tasks.cancel")


def _notifications() -> Iterator[Method]:
    bare = base.NotificationParams
    yield _tell_server("notifications/initialized", bare, LEGACY)
    cancelled, progress = subscriptions.CancelledNotificationParams, subscriptions.ProgressNotificationParams
    yield Method(name="notifications/cancelled", params=cancelled, spoken=_spoken(ALL, ALL))
    yield Method(name="notifications/progress", params=progress, spoken=_spoken(LEGACY, ALL))
    message = subscriptions.LoggingMessageNotificationParams
    yield _tell_client("notifications/message", message, ALL, Capability("server", "logging"))
    for kind in ("tools", "prompts", "resources"):
        declared = Capability("server", f"{kind}.list_changed")
        yield _tell_client(f"notifications/{kind}/list_changed", bare, ALL, declared)
    updated = subscriptions.ResourceUpdatedNotificationParams
    subscribed = Capability("server", "resources.subscribe")
    yield _tell_client("notifications/resources/updated", updated, ALL, subscribed)
    acknowledged = subscriptions.SubscriptionsAcknowledgedNotificationParams
    yield _tell_client("notifications/subscriptions/acknowledged", acknowledged, MODERN)
    moved = Capability("client", "roots.list_changed")
    yield _tell_server("notifications/roots/list_changed", bare, LEGACY, moved)
    finished, by_url = elicitation.ElicitationCompleteNotificationParams, Capability("client", "elicitation.url")
    yield _tell_client("notifications/elicitation/complete", finished, _R4, by_url)
    status = tasks.TaskStatusNotificationParams
    holder = (
        Capability("client", "tasks", when=Direction.CLIENT_TO_SERVER),
        Capability("server", "tasks", when=Direction.SERVER_TO_CLIENT),
    )
    yield Method(name="notifications/tasks/status", params=status, spoken=_spoken(_R4, _R4), needs=holder)


METHODS: Final[Mapping[str, Method]] = {row.name: row for row in (*_requests(), *_notifications())}


def method_of(revision: Revision, name: str, direction: Direction | None = None) -> Method:
    """The row of a method that *revision* has, in *direction* if one is given. Raises `MethodNotFound`."""
    row = METHODS.get(name)
    if row is None or not (row.known(revision) if direction is None else revision in row.spoken[direction]):
        raise MethodNotFound(f"no method {name[:128]!r} in {revision}")
    return row
