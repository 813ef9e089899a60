"""Tools as they are listed. How they are called is in `calls`: sampling needs this half alone."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import attrs

from callboard.codecs.revisions.base import CacheablePage, NamedWithIcons
from callboard.codecs.revisions.checks import shaped
from callboard.codecs.revisions.model import (
    UNSET,
    JSONObject,
    JSONValue,
    Model,
    UnsetType,
    member,
    model,
    only,
    since,
    varying,
)
from callboard.codecs.revisions.revision import ALL, LEGACY, R2, R3, R4, R5, Revisions, span


@model(kw_only=True)
class AnySchema(Model):
    """An output schema from 2026-07-28 on: any JSON Schema."""

    dialect: str | UnsetType = since(R4)


@model(kw_only=True)
class ObjectSchema(AnySchema):
    """A schema of a tool: its root describes an object. Tools keep the JSON itself."""

    type: Literal["object"] = "object"
    properties: Mapping[str, JSONObject] | UnsetType = member(types={R5: JSONValue})
    required: Sequence[str] | UnsetType = member(types={R5: JSONValue})


@model(kw_only=True)
class ToolAnnotations(Model):
    """Hints about what a tool does. Untrusted."""

    known: ClassVar[Revisions] = span(R2)

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


@model(kw_only=True)
class ToolExecution(Model):
    """Whether a call may or must run as a task (2025-11-25)."""

    known: ClassVar[Revisions] = frozenset({R4})

    task_support: Literal["forbidden", "optional", "required"] | UnsetType = UNSET


@model(kw_only=True)
class Tool(NamedWithIcons):
    """A function of a server, with the schema of its arguments."""

    input_schema: JSONObject = attrs.field(metadata=varying(types=dict.fromkeys(ALL, shaped(ObjectSchema))))
    description: str | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = since(R2)
    output_schema: JSONObject | UnsetType = member(
        known=span(R3), types=dict.fromkeys(LEGACY, shaped(ObjectSchema)) | {R5: shaped(AnySchema)}
    )
    execution: ToolExecution | UnsetType = only(R4)
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class ListToolsResult(CacheablePage):
    tools: Sequence[Tool]


@model(kw_only=True)
class ToolChoice(Model):
    """How freely the model may use the tools it is given in sampling."""

    known: ClassVar[Revisions] = span(R4)

    mode: Literal["auto", "none", "required"] | UnsetType = UNSET
