"""The `_meta` of requests to one backend: what is forwarded of it, and what is said of the client."""

from collections.abc import Hashable, Mapping
from functools import cached_property, lru_cache
from typing import Final

import attrs
from msgspec import Raw

from callboard.actors.client.negotiate import Agreed
from callboard.actors.terms import Terms
from callboard.codecs.bridge.askable import Signature, declared_by
from callboard.codecs.bridge.params import carried_meta
from callboard.codecs.bridge.transparent import Transparent
from callboard.codecs.members import Members, raw
from callboard.codecs.revisions import LATEST, Implementation, Revision, declares, meta, write
from callboard.codecs.routing import MAX_REMEMBERED, Route

MAX_CLIENTS: Final = 256
"""How many clients are remembered by what they say of themselves; then it begins anew."""

_TOKEN: Final = frozenset({meta.PROGRESS_TOKEN})


@attrs.define(eq=False)
class ClientMeta:
    """Writes it for each request. *info* stands for clients that do not say who they are."""

    agreed: Agreed
    info: Implementation
    transparent: Transparent = attrs.field(factory=Transparent)
    _known: dict[Hashable, Raw] = attrs.field(factory=dict, init=False)
    _known_of: int = attrs.field(default=0, init=False)  # what crossed when they were written

    def of(self, terms: Terms, route: Route) -> Mapping[str, Raw] | Raw:
        """For a request of a client. To a legacy backend, nothing is said of clients: it knows them by the
        connection."""
        if not self.agreed.revision.dialect.terms_per_request:
            return carried_meta(route.meta)
        key: Hashable
        if terms.revision.dialect.terms_per_request:
            key = route.said  # a modern client says the same with every request, and all of it there
            is_usual = len(route.said) <= MAX_REMEMBERED
        else:
            key = self.transparent.signature_of(terms.capabilities), bytes(terms.written_info or b""), terms.log_level
            is_usual = route.meta.keys() <= _TOKEN
        if self._known_of != self.transparent.version:
            self._known.clear()
            self._known_of = self.transparent.version
        known = self._known.get(key) if is_usual else None
        if known is None:
            known = raw(self._written(terms, route.meta))
            if len(self._known) >= MAX_CLIENTS:
                self._known.clear()
            if is_usual:
                self._known[key] = known
        return known

    def _written(self, terms: Terms, front: Members) -> dict[str, Raw]:
        revision = self.agreed.revision
        spoken = {
            **carried_meta(front),
            meta.PROTOCOL_VERSION: _version(revision),
            meta.CLIENT_CAPABILITIES: written_capabilities(revision, self.transparent.signature_of(terms.capabilities)),
            meta.CLIENT_INFO: front.get(meta.CLIENT_INFO) or terms.written_info or self._written_info,
        }
        if terms.log_level is not None and declares(self.agreed.capabilities, "logging"):
            spoken[meta.LOG_LEVEL] = raw(terms.log_level)
        return spoken

    @cached_property
    def _written_info(self) -> Raw:
        return raw(write(LATEST, self.info))


@lru_cache(maxsize=16)
def _version(revision: Revision) -> Raw:
    return raw(revision.value)


@lru_cache(maxsize=256)
def written_capabilities(revision: Revision, signature: Signature) -> Raw:
    """The capabilities of clients of *signature*, as *revision* has them."""
    return raw(write(revision, declared_by(signature)))
