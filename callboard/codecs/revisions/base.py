"""Shared parts of models: icons, names, annotations, the three kinds of `_meta`, bases of params and results."""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from callboard.codecs.revisions import meta
from callboard.codecs.revisions.capabilities import ClientCapabilities
from callboard.codecs.revisions.checks import Priority
from callboard.codecs.revisions.model import UNSET, Model, UnsetType, member, model, since, stated_since
from callboard.codecs.revisions.revision import MODERN, R3, R4, R5, Revisions, span

RequestId: TypeAlias = str | int
ProgressToken: TypeAlias = str | int
Cursor: TypeAlias = str
Role: TypeAlias = Literal["assistant", "user"]
CacheScope: TypeAlias = Literal["private", "public"]
LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


@model(kw_only=True)
class Icon(Model):
    """A picture for a user interface. Passed through, never fetched here."""

    known: ClassVar[Revisions] = span(R4)

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: Sequence[str] | UnsetType = UNSET
    theme: Literal["dark", "light"] | UnsetType = UNSET


@model(kw_only=True)
class BaseMetadata(Model):
    """A name for programs and, from 2025-06-18 on, a title for people."""

    name: str
    title: str | UnsetType = since(R3)


@model(kw_only=True)
class NamedWithIcons(BaseMetadata):
    icons: Sequence[Icon] | UnsetType = since(R4)


@model(kw_only=True)
class Implementation(NamedWithIcons):
    """A peer's name as it says itself. Hearsay: for display and logs, never for behaviour."""

    version: str
    description: str | UnsetType = since(R4)
    website_url: str | UnsetType = since(R4)


@model(kw_only=True)
class Annotations(Model):
    """Hints about the audience of content and how much it matters."""

    audience: Sequence[Role] | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    last_modified: str | UnsetType = since(R3)


@model(kw_only=True)
class RequestMetaObject(Model):
    """`_meta` of a request. A modern one carries what a legacy session agreed on in `initialize`."""

    progress_token: ProgressToken | UnsetType = UNSET
    protocol_version: str | UnsetType = since(R5, required=True, wire=meta.PROTOCOL_VERSION)
    client_capabilities: ClientCapabilities | UnsetType = since(R5, required=True, wire=meta.CLIENT_CAPABILITIES)
    client_info: Implementation | UnsetType = since(R5, wire=meta.CLIENT_INFO)
    log_level: LoggingLevel | UnsetType = since(R5, wire=meta.LOG_LEVEL)


@model(kw_only=True)
class NotificationMetaObject(Model):
    """`_meta` of a notification; a modern one on a listen stream names its subscription."""

    subscription_id: RequestId | UnsetType = since(R5, wire=meta.SUBSCRIPTION_ID)


@model(kw_only=True)
class ResultMetaObject(Model):
    """`_meta` of a result; a modern one should name the server."""

    server_info: Implementation | UnsetType = since(R5, wire=meta.SERVER_INFO)


@model(kw_only=True)
class RequestParams(Model):
    """Params of every request that a client may send; those of `ping` and `server/discover` are nothing more."""

    meta: RequestMetaObject | UnsetType = member(required=MODERN)


@model(kw_only=True)
class PaginatedRequestParams(RequestParams):
    """Params of the list requests. An empty cursor is a cursor."""

    cursor: Cursor | UnsetType = UNSET


@model(kw_only=True)
class NotificationParams(Model):
    """Params of every notification; those of the `list_changed` ones are nothing more."""

    meta: NotificationMetaObject | UnsetType = UNSET


@model(kw_only=True)
class Result(Model):
    """Base of the results; the empty result itself. An absent `resultType` is read as `complete`."""

    meta: ResultMetaObject | UnsetType = UNSET
    result_type: str = stated_since(R5, "complete")


@model(kw_only=True)
class CacheableResult(Result):
    """A result with a life time: stale at once and private unless it says otherwise.

    An absent member stays absent (an official example of `resources/read` lacks both), and means the same.
    """

    ttl_ms: int | UnsetType = stated_since(R5, 0, stays_absent=True)
    cache_scope: CacheScope | UnsetType = stated_since(R5, "private", stays_absent=True)


@model(kw_only=True)
class PaginatedResult(Result):
    """One page. No `nextCursor` is the end."""

    next_cursor: Cursor | UnsetType = UNSET


@model(kw_only=True)
class CacheablePage(CacheableResult):
    """One page of the lists that may be cached."""

    next_cursor: Cursor | UnsetType = UNSET
