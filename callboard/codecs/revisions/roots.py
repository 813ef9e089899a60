"""Roots: the folders a client is willing to name."""

from collections.abc import Sequence
from typing import ClassVar

from callboard.codecs.revisions.base import RequestMetaObject
from callboard.codecs.revisions.model import UNSET, JSONObject, Model, UnsetType, member, model, since, until
from callboard.codecs.revisions.revision import LEGACY, R3, R4, R5


@model(kw_only=True)
class Root(Model):
    """A folder, by `file://` URI."""

    uri: str
    name: str | UnsetType = UNSET
    meta: JSONObject | UnsetType = since(R3)


@model(kw_only=True)
class ListRootsRequestParams(Model):
    """A request at first, so with the `_meta` of one; an input request with free `_meta` from 2026-07-28 on."""

    meta: RequestMetaObject | JSONObject | UnsetType = member(
        types=dict.fromkeys(LEGACY, RequestMetaObject) | {R5: JSONObject}
    )


@model(kw_only=True)
class ListRootsResult(Model):
    """A bare object in every revision: no `resultType`."""

    marks: ClassVar[tuple[str, ...]] = ("roots",)

    roots: Sequence[Root]
    meta: JSONObject | UnsetType = until(R4)
