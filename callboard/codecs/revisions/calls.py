"""The requests that do something: calling a tool, reading a resource, getting a prompt, completing an argument."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import attrs
import msgspec

from callboard.codecs.revisions.base import CacheableResult, RequestParams, Result
from callboard.codecs.revisions.checks import MAX_COMPLETIONS, AtMost, Uri
from callboard.codecs.revisions.content import OBJECT_AT_FIRST, ContentBlock, TextContent
from callboard.codecs.revisions.inputs import InputResponseRequestParams
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
from callboard.codecs.revisions.prompts import PromptMessage
from callboard.codecs.revisions.resources import AnyResourceContents
from callboard.codecs.revisions.revision import R3, R4, R5, span
from callboard.codecs.revisions.tasks import TaskMetadata

STRUCTURED: Final = span(R3)
"""Revisions whose results of a tool may be data, and not only content."""


@model(kw_only=True)
class CallToolRequestParams(InputResponseRequestParams):
    name: str
    arguments: JSONObject | UnsetType = UNSET
    task: TaskMetadata | UnsetType = only(R4)


@model(kw_only=True)
class CallToolResult(Result):
    """Output of the tool. Its own failures are results too, with `is_error`."""

    content: Sequence[ContentBlock]
    structured_content: JSONValue | UnsetType = member(known=STRUCTURED, types=OBJECT_AT_FIRST)
    is_error: bool | UnsetType = UNSET


class Structured(msgspec.Struct, frozen=True, gc=False):
    """Output of a tool that is an object, and the same as text: a result as most tools have it, without a model."""

    text: str
    data: dict[str, Any]

    def as_model(self) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=self.text)], structured_content=self.data)


@model(kw_only=True)
class ResourceRequestParams(RequestParams):
    """Params of `resources/subscribe` and `resources/unsubscribe`."""

    uri: Uri


@model(kw_only=True)
class ReadResourceRequestParams(InputResponseRequestParams):
    uri: Uri


@model(kw_only=True)
class ReadResourceResult(CacheableResult):
    contents: Sequence[AnyResourceContents]


@model(kw_only=True)
class GetPromptRequestParams(InputResponseRequestParams):
    name: str
    arguments: Mapping[str, str] | UnsetType = UNSET


@model(kw_only=True)
class GetPromptResult(Result):
    messages: Sequence[PromptMessage]
    description: str | UnsetType = UNSET


@model(kw_only=True)
class PromptReference(Model):
    """Completes an argument of a prompt."""

    type: Literal["ref/prompt"] = "ref/prompt"
    name: str
    title: str | UnsetType = since(R3)


@model(kw_only=True)
class ResourceTemplateReference(Model):
    """Completes a variable of a resource template. Called `ResourceReference` before 2025-06-18."""

    type: Literal["ref/resource"] = "ref/resource"
    uri: Uri


CompletionReference: TypeAlias = PromptReference | ResourceTemplateReference


@model(kw_only=True)
class CompletionArgument(Model):
    name: str
    value: str


@model(kw_only=True)
class CompletionContext(Model):
    """Arguments that are settled already."""

    arguments: Mapping[str, str] | UnsetType = UNSET


@model(kw_only=True)
class CompleteRequestParams(RequestParams):
    ref: CompletionReference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = since(R3)


@model(kw_only=True)
class Completion(Model):
    values: Sequence[str] = attrs.field(metadata=varying(types={R5: Annotated[Sequence[str], AtMost(MAX_COMPLETIONS)]}))
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


@model(kw_only=True)
class CompleteResult(Result):
    completion: Completion
