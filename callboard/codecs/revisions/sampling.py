"""Sampling: a server asks the client's model. In 2026-07-28 only inside an `input_required` result."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import attrs

from callboard.codecs.revisions.base import RequestMetaObject, Role
from callboard.codecs.revisions.checks import Priority
from callboard.codecs.revisions.content import SamplingContent
from callboard.codecs.revisions.model import (
    UNSET,
    JSONObject,
    Model,
    UnsetType,
    model,
    only,
    since,
    until,
    varying,
)
from callboard.codecs.revisions.revision import R3, R4, span
from callboard.codecs.revisions.tasks import TaskMetadata
from callboard.codecs.revisions.tools import Tool, ToolChoice

# One block at first; from 2025-11-25 on a block or an array of blocks.
ONE_BLOCK_AT_FIRST = dict.fromkeys(span(last=R3), SamplingContent)


@model(kw_only=True)
class ModelHint(Model):
    name: str | UnsetType = UNSET


@model(kw_only=True)
class ModelPreferences(Model):
    """Preferences of the server for the model. Advice."""

    hints: Sequence[ModelHint] | UnsetType = UNSET
    cost_priority: Priority | UnsetType = UNSET
    speed_priority: Priority | UnsetType = UNSET
    intelligence_priority: Priority | UnsetType = UNSET


@model(kw_only=True)
class SamplingMessage(Model):
    role: Role
    content: SamplingContent | Sequence[SamplingContent] = attrs.field(metadata=varying(types=ONE_BLOCK_AT_FIRST))
    meta: JSONObject | UnsetType = since(R4)


@model(kw_only=True)
class CreateMessageRequestParams(Model):
    messages: Sequence[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    include_context: Literal["allServers", "none", "thisServer"] | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    stop_sequences: Sequence[str] | UnsetType = UNSET
    metadata: JSONObject | UnsetType = UNSET
    tools: Sequence[Tool] | UnsetType = since(R4)
    tool_choice: ToolChoice | UnsetType = since(R4)
    task: TaskMetadata | UnsetType = only(R4)
    meta: RequestMetaObject | UnsetType = until(R4)


@model(kw_only=True)
class CreateMessageResult(Model):
    """The model's answer. A bare object in every revision: no `resultType`."""

    marks: ClassVar[tuple[str, ...]] = ("model",)

    role: Role
    content: SamplingContent | Sequence[SamplingContent] = attrs.field(metadata=varying(types=ONE_BLOCK_AT_FIRST))
    model: str
    stop_reason: str | UnsetType = UNSET
    meta: JSONObject | UnsetType = UNSET
