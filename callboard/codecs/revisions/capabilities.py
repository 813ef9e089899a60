"""Capabilities of either side. Open sets in every revision: what is not known here waits in `extra`.

The schemas have `extensions` from 2026-07-28 on; clients and servers name them in `initialize` of older revisions too.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeAlias

from callboard.codecs.revisions._read import SettingsMark
from callboard.codecs.revisions.model import (
    UNSET,
    JSONObject,
    Model,
    UnsetType,
    model,
    only,
    since,
    until,
)
from callboard.codecs.revisions.revision import R2, R3, R4, Revisions

SettingsByName: TypeAlias = Annotated[Mapping[str, JSONObject], SettingsMark()]
"""Extensions or experimental capabilities, and the settings of each."""


@model(kw_only=True)
class RootsCapability(Model):
    """The client has roots. From 2026-07-28 on it cannot signal that they changed."""

    list_changed: bool | UnsetType = until(R4)


@model(kw_only=True)
class SamplingCapability(Model):
    """The client can ask a model."""

    context: JSONObject | UnsetType = since(R4)
    tools: JSONObject | UnsetType = since(R4)


@model(kw_only=True)
class ElicitationCapability(Model):
    """The client can ask its user. Empty means forms, in every revision."""

    form: JSONObject | UnsetType = since(R4)
    url: JSONObject | UnsetType = since(R4)


@model(kw_only=True)
class ListChangedCapability(Model):
    """A list that exists, and whether its changes are announced."""

    list_changed: bool | UnsetType = UNSET


@model(kw_only=True)
class ResourcesCapability(ListChangedCapability):
    """The server has resources. `subscribe` names the filter of a listen request from 2026-07-28 on."""

    subscribe: bool | UnsetType = UNSET


@model(kw_only=True)
class SamplingTaskRequests(Model):
    known: ClassVar[Revisions] = frozenset({R4})

    create_message: JSONObject | UnsetType = UNSET


@model(kw_only=True)
class ElicitationTaskRequests(Model):
    known: ClassVar[Revisions] = frozenset({R4})

    create: JSONObject | UnsetType = UNSET


@model(kw_only=True)
class ToolTaskRequests(Model):
    known: ClassVar[Revisions] = frozenset({R4})

    call: JSONObject | UnsetType = UNSET


@model(kw_only=True)
class ClientTaskRequests(Model):
    """Requests to the client that may run as tasks."""

    known: ClassVar[Revisions] = frozenset({R4})

    sampling: SamplingTaskRequests | UnsetType = UNSET
    elicitation: ElicitationTaskRequests | UnsetType = UNSET


@model(kw_only=True)
class ServerTaskRequests(Model):
    """Requests to the server that may run as tasks."""

    known: ClassVar[Revisions] = frozenset({R4})

    tools: ToolTaskRequests | UnsetType = UNSET


@model(kw_only=True)
class TasksCapability(Model):
    """Capabilities of both sides for the experimental tasks of 2025-11-25."""

    known: ClassVar[Revisions] = frozenset({R4})

    cancel: JSONObject | UnsetType = UNSET
    list: JSONObject | UnsetType = UNSET


@model(kw_only=True)
class ClientTasksCapability(TasksCapability):
    requests: ClientTaskRequests | UnsetType = UNSET


@model(kw_only=True)
class ServerTasksCapability(TasksCapability):
    requests: ServerTaskRequests | UnsetType = UNSET


@model(kw_only=True)
class ClientCapabilities(Model):
    """Capabilities of a client: sent once in `initialize`, or with every modern request."""

    experimental: SettingsByName | UnsetType = UNSET
    roots: RootsCapability | UnsetType = UNSET
    sampling: SamplingCapability | UnsetType = UNSET
    elicitation: ElicitationCapability | UnsetType = since(R3)
    tasks: ClientTasksCapability | UnsetType = only(R4)
    extensions: SettingsByName | UnsetType = UNSET


@model(kw_only=True)
class ServerCapabilities(Model):
    """Capabilities of a server: in the result of `initialize` or `server/discover`."""

    experimental: SettingsByName | UnsetType = UNSET
    logging: JSONObject | UnsetType = UNSET
    completions: JSONObject | UnsetType = since(R2)
    prompts: ListChangedCapability | UnsetType = UNSET
    resources: ResourcesCapability | UnsetType = UNSET
    tools: ListChangedCapability | UnsetType = UNSET
    tasks: ServerTasksCapability | UnsetType = only(R4)
    extensions: SettingsByName | UnsetType = UNSET


def declares(capabilities: Model, path: str) -> bool:
    """Whether *path* (`resources.subscribe`) is declared: an object that is there counts, a flag must be true.

    `elicitation.form` is declared by an elicitation that names no mode, too.
    """
    if path == "elicitation.form" and not declares(capabilities, "elicitation.url"):
        path = "elicitation"
    found: object = capabilities
    for step in path.split("."):
        found = getattr(found, step, UNSET)
        if found is UNSET or found is False:
            return False
    return True
