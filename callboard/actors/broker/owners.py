"""Owners of resources: the backend for a URI, and the URIs that several backends have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias
from urllib.parse import quote, unquote

import attrs

from callboard.codecs.bridge.apps import SCHEME as UI_SCHEME
from callboard.codecs.bridge.guard import Definition
from callboard.codecs.bridge.skills import SKILL_SCHEME, skill_address
from callboard.codecs.uri_template.match import normal
from callboard.codecs.uri_template.template import UriTemplate
from callboard.errors import InvalidParams

ADDRESS: Final = "callboard://"
"""How a resource is named together with its backend: `callboard://BACKEND/` and the URI, percent-encoded."""

MAX_MATCHED: Final = 64
"""Templates of one backend that URIs are matched with: each costs microseconds at every read. The others are listed."""

GENERIC: Final = frozenset({"file", "http", "https"})
"""Schemes that no backend owns: that a backend lists something of one says nothing about the rest of it."""


Knows: TypeAlias = Callable[[str, str], bool]
"""Whether a caller may know that this backend has this URI."""


class Claim(Protocol):
    """A resource or a template that a backend lists."""

    @property
    def backend(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def source(self) -> Definition: ...


@attrs.frozen(eq=False)
class Owners:
    """The backend for each URI. Made from the lists of all backends, and never changed."""

    listed: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """The backends that list a resource, by its URI."""
    _schemes: dict[str, dict[str, None]] = attrs.field(factory=dict)
    _origins: dict[str, dict[str, None]] = attrs.field(factory=dict)
    _templates: dict[str, dict[str, list[UriTemplate]]] = attrs.field(factory=dict)
    """By the scheme that they begin with, and by backend. Those that begin with a variable have no scheme."""
    _claimed: dict[str, tuple[str, ...]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, resources: Iterable[Claim], templates: Iterable[Claim]) -> "Owners":
        listed: dict[str, tuple[str, ...]] = {}
        alone: dict[str, tuple[str, ...]] = {}
        schemes: dict[str, dict[str, None]] = {}
        origins: dict[str, dict[str, None]] = {}
        by_scheme: dict[str, dict[str, list[UriTemplate]]] = {}
        for one in resources:
            backend = one.backend
            mine = alone.setdefault(backend, (backend,))  # one object for ten thousand entries
            others = listed.setdefault(one.name, mine)
            if others is not mine and backend not in others:
                listed[one.name] = (*others, backend)
            schemes.setdefault(one.name.partition(":")[0], {})[backend] = None
            origins.setdefault(_origin(one.name), {})[backend] = None
        counts: dict[str, int] = {}
        for one in templates:
            scheme = one.name.partition(":")[0]
            schemes.setdefault(scheme, {})[one.backend] = None
            if not one.source.is_matchable or counts.get(one.backend, 0) >= MAX_MATCHED:
                continue
            counts[one.backend] = counts.get(one.backend, 0) + 1
            template = one.source.template
            head = template.head.partition(":")
            by_scheme.setdefault(head[0] if head[1] else "", {}).setdefault(one.backend, []).append(template)
        return cls(listed, schemes, origins, by_scheme)

    def find(self, uri: str, knows: Knows | None = None) -> str | None:
        """The backend that a URI is read from; None if there is none. In this order: it lists the URI, has a template
        for it, lists others of its scheme, has a template for anything, or is the only one with resources.

        A caller that does not *know* of a backend's URI is answered as if the backend had none such.

        Raises `InvalidParams` if it could be several backends': the message says how each is meant.
        """
        listed = self.listed.get(uri)
        if listed is not None and (claimants := _known(self.claimants(uri), uri, knows)):
            return _only(uri, claimants)
        scheme = uri.partition(":")[0]
        fitting, same = self._fitting(uri, scheme), self._schemes.get(scheme, {})
        if fitting and scheme not in GENERIC:
            # A template is no title to what another backend lists of its own: of its scheme, or of its authority if the
            # template names one. Two instances of one server have the same scheme, and an authority each.
            fitting |= self._origins.get(_origin(uri), {}) if all(fitting.values()) else same
        for candidates in (fitting, same, self._fitting(uri, ""), self._only_one()):
            if known := _known(tuple(candidates), uri, knows):
                return _only(uri, known)
        return None

    def claimants(self, uri: str) -> tuple[str, ...]:
        """The backends that list a URI, and those with a template that it fits: listing what another backend serves
        by a template does not take it over. Worked out when it is asked for: most never are."""
        found = self._claimed.get(uri)
        if found is None:
            fitting = self._fitting(uri, uri.partition(":")[0])
            found = self._claimed[uri] = tuple(dict.fromkeys([*self.listed.get(uri, ()), *fitting]))
        return found

    def _fitting(self, uri: str, scheme: str) -> dict[str, bool | None]:
        """The backends with a template that fits, and whether each such template names the authority."""
        by_backend = self._templates.get(scheme)
        text = None if by_backend is None else normal(uri)
        if by_backend is None or text is None:
            return {}
        found: dict[str, bool | None] = {}
        for backend, those in by_backend.items():
            fitting = [one for one in those if one.fits(text)]
            if fitting:
                found[backend] = all(len(one.head) > len(_origin(one.head)) for one in fitting)
        return found

    def _only_one(self) -> dict[str, None]:
        having = {backend: None for backends in self._schemes.values() for backend in backends}
        return having if len(having) == 1 else {}


def _known(candidates: tuple[str, ...], uri: str, knows: Knows | None) -> tuple[str, ...]:
    return candidates if knows is None else tuple(one for one in candidates if knows(one, uri))


def _origin(uri: str) -> str:
    """The scheme and the authority of a URI; of one without an authority, the scheme."""
    scheme, parted, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if parted else uri.partition(":")[0]


def address_of(backend: str, uri: str) -> str:
    """How a client names a resource together with its backend."""
    return f"{ADDRESS}{quote(backend, safe='')}/{quote(uri, safe='')}"


def ui_address(backend: str, uri: str) -> str:
    """The same for a page of an app: hosts look for its scheme."""
    return f"{UI_SCHEME}{quote(backend, safe='')}/{uri.removeprefix(UI_SCHEME)}"


_ADDRESSES: Final = {UI_SCHEME: ui_address, SKILL_SCHEME: skill_address}
"""How URIs of these schemes name their backend: hosts look for them."""


def addressed(uri: str) -> tuple[str, str]:
    """The backend and the URI there that an address names."""
    named, _, rest = uri.removeprefix(ADDRESS).partition("/")
    return unquote(named), unquote(rest)


def ambiguous(uri: str, backends: Sequence[str]) -> InvalidParams:
    """The error for a resource of several *backends*: it names each by its address."""
    scheme, parted, _ = uri.partition("://")
    address = _ADDRESSES.get(scheme + parted, address_of)
    error = InvalidParams("several servers have this resource: use one of the candidates")
    error.data = {"origin": "broker", "candidates": [address(backend, uri) for backend in backends]}
    return error


def _only(uri: str, candidates: Sequence[str]) -> str:
    if len(candidates) > 1:
        raise ambiguous(uri, candidates)
    return candidates[0]
