"""Owners of `ui://` URIs, the pages of MCP Apps: the server of a URI, and how it is shown where several have it.

A host looks for the scheme, so an address keeps it: `ui://SERVER/` and the rest of the URI at that server.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final
from urllib.parse import unquote

import attrs

from callboard.actors.broker.owners import Knows, address_of, ambiguous, ui_address
from callboard.codecs.bridge.apps import SCHEME, ShownUri
from callboard.codecs.bridge.guard import Definition

NO_CLAIMS: Final[Mapping[str, tuple[str, ...]]] = {}


@attrs.frozen
class UiOwners:
    """The servers that list a `ui://` resource, or have a tool that names it. A tool names pages of its own server
    only: one that names another's page is shown with a page of its own server, which there may not be."""

    claims: Mapping[str, tuple[str, ...]] = NO_CLAIMS
    backends: frozenset[str] = frozenset()
    """All servers, by whose names addresses begin."""

    @classmethod
    def of(cls, listed: Iterable[tuple[str, Definition]], backends: Iterable[str]) -> "UiOwners":
        """Made of the tools and resources of all backends."""
        claims: dict[str, tuple[str, ...]] = {}
        for backend, one in listed:
            for uri in one.ui:
                known = claims.get(uri, ())
                if backend not in known:
                    claims[uri] = (*known, backend)
        return cls(claims, frozenset(backends)) if claims else NO_UI

    def shown_by(self, backend: str) -> ShownUri | None:
        """How clients know the URIs of *backend*; None if each is shown as it is, since no other server has any."""
        return None if self._only_one in (backend, "") else partial(self.shown, backend)

    @cached_property
    def _only_one(self) -> str | None:
        """The only server that has any; none if there are none at all, and None if there are several, or one that has
        pages in the name of another."""
        owners = {owner for those in self.claims.values() for owner in those}
        is_plain = len(owners) <= 1 and all(self._claimants(uri) for uri in self.claims)
        return next(iter(owners), "") if is_plain else None

    def only_owner(self, uri: str, knows: Knows | None) -> str | None:
        """The server of a URI that none has named, if only one has any."""
        owner = self._only_one
        return owner if owner and (knows is None or knows(owner, uri)) else None

    def shown(self, backend: str, uri: str) -> str:
        """How clients know a URI of *backend*."""
        if self._claimants(uri) == (backend,):
            return uri
        address = ui_address(backend, uri)
        return address_of(backend, uri) if address in self.claims else address

    def find(self, uri: str, knows: Knows | None = None) -> tuple[str, str] | None:
        """The server of a URI that clients are shown, and the URI there; None if that is not known here.

        Raises `InvalidParams` if it could be several servers': the message says how each is meant.
        """
        owners: Sequence[str] = [one for one in self._claimants(uri) if knows is None or knows(one, uri)]
        if len(owners) > 1:
            raise ambiguous(uri, owners)
        if owners:
            return owners[0], uri
        named, parted, rest = uri.removeprefix(SCHEME).partition("/")
        backend, there = unquote(named), SCHEME + rest
        is_address = bool(parted and rest) and backend in self.backends
        return (backend, there) if is_address and (knows is None or knows(backend, there)) else None

    def _claimants(self, uri: str) -> tuple[str, ...]:
        """The servers that have a URI, but for those that have it in the name of another server."""
        found = self.claims.get(uri, ())
        named = unquote(uri.removeprefix(SCHEME).partition("/")[0])
        return tuple(one for one in found if one == named) if named in self.backends else found


NO_UI: Final = UiOwners()
