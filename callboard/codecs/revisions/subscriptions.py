"""Subscriptions and notifications: the modern listen request, and the notifications of both eras."""

from collections.abc import Sequence
from typing import ClassVar

import attrs

from callboard.codecs.revisions import meta as keys
from callboard.codecs.revisions.base import (
    LoggingLevel,
    NotificationParams,
    ProgressToken,
    RequestId,
    RequestParams,
    Result,
    ResultMetaObject,
)
from callboard.codecs.revisions.checks import Uri
from callboard.codecs.revisions.model import UNSET, JSONValue, Model, UnsetType, member, model, since, varying
from callboard.codecs.revisions.revision import ALL, LEGACY, MODERN, R2, R4, Revisions


@model(kw_only=True)
class SubscriptionFilter(Model):
    """The filter of a listen request, and of its acknowledgement."""

    known: ClassVar[Revisions] = MODERN

    tools_list_changed: bool | UnsetType = UNSET
    prompts_list_changed: bool | UnsetType = UNSET
    resources_list_changed: bool | UnsetType = UNSET
    resource_subscriptions: Sequence[Uri] | UnsetType = UNSET


@model(kw_only=True)
class SubscriptionsListenRequestParams(RequestParams):
    known: ClassVar[Revisions] = MODERN

    notifications: SubscriptionFilter


@model(kw_only=True)
class SubscriptionsAcknowledgedNotificationParams(NotificationParams):
    known: ClassVar[Revisions] = MODERN

    notifications: SubscriptionFilter


@model(kw_only=True)
class SubscriptionsListenResultMetaObject(ResultMetaObject):
    known: ClassVar[Revisions] = MODERN

    subscription_id: RequestId = attrs.field(metadata=varying(wire=keys.SUBSCRIPTION_ID))


@model(kw_only=True)
class SubscriptionsListenResult(Result):
    """Closes a subscription, by the server's will."""

    known: ClassVar[Revisions] = MODERN

    meta: SubscriptionsListenResultMetaObject


@model(kw_only=True)
class ResourceUpdatedNotificationParams(NotificationParams):
    """A resource changed: the one that was subscribed to, or one below it."""

    uri: str


@model(kw_only=True)
class CancelledNotificationParams(NotificationParams):
    """A request is no longer wanted. In 2025-11-25 a task may be meant, and then no request is named."""

    request_id: RequestId | UnsetType = member(required=ALL - {R4})
    reason: str | UnsetType = UNSET


@model(kw_only=True)
class ProgressNotificationParams(NotificationParams):
    progress_token: ProgressToken
    progress: float
    total: float | UnsetType = UNSET
    message: str | UnsetType = since(R2)


@model(kw_only=True)
class SetLevelRequestParams(RequestParams):
    """The level of log messages for the whole session. A modern request sets its own in `_meta`."""

    known: ClassVar[Revisions] = LEGACY

    level: LoggingLevel


@model(kw_only=True)
class LoggingMessageNotificationParams(NotificationParams):
    level: LoggingLevel
    data: JSONValue
    logger: str | UnsetType = UNSET
