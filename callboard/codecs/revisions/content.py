"""Content blocks: tagged by `type`. Which blocks a revision has is their `known`; a union keeps those alone."""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from callboard.codecs.revisions.base import Annotations
from callboard.codecs.revisions.model import UNSET, JSONObject, JSONValue, Model, UnsetType, member, model, since
from callboard.codecs.revisions.resources import AnyResourceContents, ResourceLink
from callboard.codecs.revisions.revision import R2, R3, R4, Revisions, span


@model(kw_only=True)
class TextContent(Model):
    type: Literal["text"] = "text"
    text: str
    annotations: Annotations | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class ImageContent(Model):
    """A picture, in Base64."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class AudioContent(Model):
    """Sound, in Base64."""

    known: ClassVar[Revisions] = span(R2)

    type: Literal["audio"] = "audio"
    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class EmbeddedResource(Model):
    """The contents of a resource, carried along."""

    type: Literal["resource"] = "resource"
    resource: AnyResourceContents
    annotations: Annotations | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource

# Structured output: an object at first, any JSON from 2026-07-28 on. There null is a value like any other.
OBJECT_AT_FIRST = {R3: JSONObject, R4: JSONObject}


@model(kw_only=True)
class ToolUseContent(Model):
    """The model wants a tool to be called. In sampling only."""

    known: ClassVar[Revisions] = span(R4)

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: JSONObject
    meta: JSONObject | UnsetType = UNSET


@model(kw_only=True)
class ToolResultContent(Model):
    """Output of the called tool. In sampling only."""

    known: ClassVar[Revisions] = span(R4)

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: Sequence[ContentBlock]
    structured_content: JSONValue | UnsetType = member(types=OBJECT_AT_FIRST)
    is_error: bool | UnsetType = UNSET
    meta: JSONObject | UnsetType = UNSET


SamplingContent: TypeAlias = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
