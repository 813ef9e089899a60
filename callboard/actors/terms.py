"""Under which terms a request is served: agreed once in `initialize`, or brought along by every modern request."""

from collections.abc import Collection
from functools import lru_cache
from typing import Final

import attrs
from msgspec import UNSET

from callboard.codecs.envelope import RequestId
from callboard.codecs.members import write_members
from callboard.codecs.revisions import (
    MODERN,
    ClientCapabilities,
    Implementation,
    LoggingLevel,
    RequestMetaObject,
    Revision,
    meta,
    read,
)
from callboard.codecs.routing import Route
from callboard.errors import InvalidParams, UnsupportedVersion

ANYBODY: Final = "anonymous"
"""The principal of a peer that was not authenticated."""

MAX_REMEMBERED: Final = 2048
"""Longest `_meta` that is remembered, in bytes: a client says the same with every request."""


@attrs.frozen(kw_only=True)
class Terms:
    """Whose request it is, in which revision, and what the client can do."""

    revision: Revision
    capabilities: ClientCapabilities
    client_info: Implementation | None = None
    principal: str = ANYBODY
    log_level: LoggingLevel | None = None
    progress_token: RequestId | None = None


def is_modern(route: Route) -> bool:
    """Whether a request stands alone: it names its own protocol version."""
    return meta.PROTOCOL_VERSION in route.meta


def is_meant_modern(route: Route) -> bool:
    """Whether a request that names no version says something else that only a modern one has to say."""
    return not route.meta.keys().isdisjoint((meta.CLIENT_CAPABILITIES, meta.CLIENT_INFO, meta.LOG_LEVEL))


def _read_meta(revision: Revision, said: bytes) -> RequestMetaObject:
    return read(revision, RequestMetaObject, said, at="params._meta")


_remembered: Final = lru_cache(maxsize=256)(_read_meta)


def modern_terms(route: Route, spoken: Collection[Revision], principal: str) -> Terms:
    """Read the terms that a modern request brings along.

    Raises `UnsupportedVersion` with all that is spoken here, legacy revisions included: a client that then chooses one
    of those must `initialize`. Raises `InvalidParams` for a required member that is missing or wrong.
    """
    requested = route.protocol_version or ""
    revision = next((known for known in MODERN & set(spoken) if known == requested), None)
    if revision is None:
        raise UnsupportedVersion(requested, sorted(spoken))
    said = write_members({key: value for key, value in route.meta.items() if key != meta.PROGRESS_TOKEN})
    brought = (_remembered if len(said) <= MAX_REMEMBERED else _read_meta)(revision, said)
    if brought.client_capabilities is UNSET:
        raise InvalidParams(f"params._meta: {meta.CLIENT_CAPABILITIES} is required")
    return Terms(
        revision=revision,
        capabilities=brought.client_capabilities,
        client_info=None if brought.client_info is UNSET else brought.client_info,
        principal=principal,
        log_level=None if brought.log_level is UNSET else brought.log_level,
        progress_token=route.progress_token,
    )
