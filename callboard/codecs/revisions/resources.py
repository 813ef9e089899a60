"""Resources: what can be listed, read, linked and embedded."""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from callboard.codecs.revisions.base import (
    Annotations,
    CacheablePage,
    NamedWithIcons,
)
from callboard.codecs.revisions.model import UNSET, JSONObject, Model, UnsetType, model, since
from callboard.codecs.revisions.revision import R3, Revisions, span


@model(kw_only=True)
class Resource(NamedWithIcons):
    """Content of a server with a URI."""

    uri: str
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class ResourceLink(Resource):
    """A content block that points at a resource instead of carrying it."""

    known: ClassVar[Revisions] = span(R3)

    type: Literal["resource_link"] = "resource_link"


@model(kw_only=True)
class ResourceTemplate(NamedWithIcons):
    """A family of resources, by URI template."""

    uri_template: str
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class ResourceContents(Model):
    """Members of both forms of contents."""

    uri: str
    mime_type: str | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class TextResourceContents(ResourceContents):
    """Text."""

    marks: ClassVar[tuple[str, ...]] = ("text",)

    text: str


@model(kw_only=True)
class BlobResourceContents(ResourceContents):
    """Bytes, in Base64."""

    marks: ClassVar[tuple[str, ...]] = ("blob",)

    blob: str


AnyResourceContents: TypeAlias = TextResourceContents | BlobResourceContents


@model(kw_only=True)
class ListResourcesResult(CacheablePage):
    resources: Sequence[Resource]


@model(kw_only=True)
class ListResourceTemplatesResult(CacheablePage):
    resource_templates: Sequence[ResourceTemplate]
