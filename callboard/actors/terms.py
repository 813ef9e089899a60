"""Under which terms a request is served: agreed once in `initialize`, or brought along by every modern request."""

from collections.abc import Collection
from functools import cached_property, lru_cache
from typing import Final

import attrs
from msgspec import UNSET, Raw

from callboard.codecs.caller import ANONYMOUS, TRUSTED, Caller
from callboard.codecs.envelope import RequestId
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import raw
from callboard.codecs.revisions import (
    LATEST,
    MODERN,
    ClientCapabilities,
    Implementation,
    LoggingLevel,
    RequestMetaObject,
    Revision,
    meta,
    read,
    write,
)
from callboard.codecs.routing import MAX_REMEMBERED, Route
from callboard.errors import InvalidParams, UnsupportedVersion

MAX_DECLARED: Final = 2048
"""Bytes of what a client says of itself in `initialize`, and of what it can do, that a session keeps: there may be
thousands of sessions, each for half an hour. Real clients say some 300."""

MAX_TITLE: Final = 256
"""Characters of a client's name, version and title that a session keeps if the client says more than it keeps whole."""


@attrs.frozen(kw_only=True)
class Terms:
    """The caller, the revision and the client's capabilities of a request."""

    revision: Revision
    capabilities: ClientCapabilities
    client_info: Implementation | None = None
    caller: Caller = ANONYMOUS
    log_level: LoggingLevel | None = None
    progress_token: RequestId | None = None

    @property
    def principal(self) -> str:
        """The key of the caller: what all that is the caller's is bound to."""
        return self.caller.key

    @cached_property
    def written_info(self) -> Raw | None:
        """The client's name, as it is said to others: written once for all requests of a session."""
        return None if self.client_info is None else raw(write(LATEST, self.client_info))


def kept_info(revision: Revision, info: Implementation) -> Implementation:
    """A client's name, as a session keeps it: whole, or only its name, version and title, and these not too long."""
    if len(raw(write(revision, info))) <= MAX_DECLARED:
        return info
    title = info.title if info.title is UNSET else info.title[:MAX_TITLE]
    return Implementation(name=info.name[:MAX_TITLE], version=info.version[:MAX_TITLE], title=title)


def kept_abilities(revision: Revision, capabilities: ClientCapabilities) -> ClientCapabilities:
    """The client's capabilities as a session keeps them: all, or all but the experimental ones.

    Raises `InvalidParams` if that is still too much.
    """
    if len(raw(write(revision, capabilities))) <= MAX_DECLARED:
        return capabilities
    rest = attrs.evolve(capabilities, experimental=UNSET)
    if len(raw(write(revision, rest))) > MAX_DECLARED:
        raise InvalidParams(f"params.capabilities: more than {MAX_DECLARED} bytes")
    return rest


def is_modern(route: Route) -> bool:
    """Whether a request stands alone: it names its own protocol version."""
    return meta.PROTOCOL_VERSION in route.meta


def is_meant_modern(route: Route) -> bool:
    """Whether a request that names no version says something else that only a modern one has to say."""
    return not route.meta.keys().isdisjoint((meta.CLIENT_CAPABILITIES, meta.CLIENT_INFO, meta.LOG_LEVEL))


def modern_terms(route: Route, spoken: Collection[Revision], caller: Caller) -> Terms:
    """Read the terms that a modern request brings along.

    Raises `UnsupportedVersion` with all that is spoken here, legacy revisions included: a client that then chooses one
    of those must `initialize`. Raises `InvalidParams` for a required member that is missing or wrong.
    """
    find = _remembered if len(route.said) <= MAX_REMEMBERED else _terms
    terms = find(route.said, route.protocol_version or "", frozenset(spoken), caller)
    return terms if route.progress_token is None else _changed(terms, terms.caller, route.progress_token)


def _changed(terms: Terms, caller: Caller, progress_token: RequestId | None = None) -> Terms:
    return Terms(
        revision=terms.revision,
        capabilities=terms.capabilities,
        client_info=terms.client_info,
        caller=caller,
        log_level=terms.log_level,
        progress_token=progress_token,
    )


def _terms(said: bytes, requested: str, spoken: frozenset[Revision], caller: Caller) -> Terms:
    revision = next((known for known in MODERN & spoken if known == requested), None)
    if revision is None:
        raise UnsupportedVersion(requested, sorted(spoken))
    check_modelled({"_meta": said})
    brought = read(revision, RequestMetaObject, said, at="params._meta")
    if brought.client_capabilities is UNSET:
        raise InvalidParams(f"params._meta: {meta.CLIENT_CAPABILITIES} is required")
    return Terms(
        revision=revision,
        capabilities=brought.client_capabilities,
        client_info=None if brought.client_info is UNSET else brought.client_info,
        caller=caller,
        log_level=None if brought.log_level is UNSET else brought.log_level,
    )


_of_anybody: Final = lru_cache(maxsize=256)(_terms)


@lru_cache(maxsize=1024)
def _remembered(said: bytes, requested: str, spoken: frozenset[Revision], caller: Caller) -> Terms:
    """Callers are told apart by identity, and each token has one of its own: none gets another token's scopes."""
    terms = _of_anybody(said, requested, spoken, TRUSTED if caller is TRUSTED else ANONYMOUS)
    return terms if terms.caller is caller else _changed(terms, caller)
