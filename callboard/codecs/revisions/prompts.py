"""Prompts as they are listed, and the messages they give."""

from collections.abc import Sequence

from callboard.codecs.revisions.base import BaseMetadata, CacheablePage, NamedWithIcons, Role
from callboard.codecs.revisions.content import ContentBlock
from callboard.codecs.revisions.model import UNSET, JSONObject, Model, UnsetType, model, since
from callboard.codecs.revisions.revision import R3


@model(kw_only=True)
class PromptArgument(BaseMetadata):
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


@model(kw_only=True)
class Prompt(NamedWithIcons):
    """A template for messages, with the arguments it takes."""

    description: str | UnsetType = UNSET
    arguments: Sequence[PromptArgument] | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class PromptMessage(Model):
    role: Role
    content: ContentBlock


@model(kw_only=True)
class ListPromptsResult(CacheablePage):
    prompts: Sequence[Prompt]
