"""Who calls: what a token, a certificate or an `authenticate` function says of the client that presents it.

A caller is many things, of which two matter most. Its `key` is what sessions, parked calls, tasks, connections, topics,
caches and rates are bound to: it stays the same when a token is renewed. Its scopes and claims are those of one token,
and rules go by them: they belong to one request, and are never kept under the key.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import attrs
import msgspec

ANYBODY: Final = "anonymous"
"""The principal of a peer that was not authenticated."""

MAX_CALLER: Final = 40 * 1024
"""Bytes of a caller as one worker tells it to another: a token may have 16 KiB, which is what its claims come from, and
it may be told as well."""


def _set(scopes: Iterable[str]) -> frozenset[str]:
    return frozenset(scopes)


_NO_CLAIMS: Final[Mapping[str, Any]] = MappingProxyType({})
_PARTS: Final = 4


@attrs.frozen(kw_only=True, eq=False)
class Caller:
    """A client that was authenticated, or `ANONYMOUS`."""

    principal: str = ANYBODY
    """Its name, unique for its tenant, issuer and client."""
    tenant: str = ""
    """The organisation that it belongs to, where several share a server."""
    issuer: str = ""
    """The authorization server that vouches for it. Empty for static tokens."""
    client_id: str = ""
    """The program that acts for it."""
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=_set)
    claims: Mapping[str, Any] = attrs.field(default=_NO_CLAIMS, repr=False)
    """All that its token says."""
    expires: float | None = None
    """When its token ends: seconds since 1970. None: never."""
    token: str | None = attrs.field(default=None, repr=False)
    """The token itself, only where some backend gets another in exchange for it. It goes to no backend."""
    key: str = attrs.field(init=False)
    """What all that is this caller's is bound to. Two callers never share one; a renewed token does not change it."""

    @key.default
    def _key(self) -> str:
        parts = (self.principal, self.tenant, self.issuer, self.client_id)
        if not any(parts[1:]) and "|" not in self.principal:
            return self.principal  # as it was before there were tenants: what operators read most
        return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in parts)

    @property
    def is_anonymous(self) -> bool:
        """Whether the client was not authenticated."""
        return self.key == ANYBODY


ANONYMOUS: Final = Caller()

TRUSTED: Final = Caller()
"""The peer that started this process, or runs in it: at standard input, or a client in Python. It has no token to show,
and could do all by itself: no rule is for it. Told from `ANONYMOUS` by identity alone."""


@lru_cache(maxsize=4096)
def caller_named(principal: str) -> Caller:
    """A caller of which nothing else is known."""
    return Caller(principal=principal)


def as_caller(given: Caller | str) -> Caller:
    """What an `authenticate` function returns, or a test names."""
    return caller_named(given) if isinstance(given, str) else given


@lru_cache(maxsize=4096)
def caller_of_key(key: str) -> Caller:
    """The caller with this key, and without scopes or claims: those come with its next token."""
    parts = key.split("|")
    if len(parts) != _PARTS:
        return Caller(principal=key)
    principal, tenant, issuer, client_id = (part.replace("%7C", "|").replace("%25", "%") for part in parts)
    return Caller(principal=principal, tenant=tenant, issuer=issuer, client_id=client_id)


class _Told(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    principal: str
    tenant: str = ""
    issuer: str = ""
    client_id: str = ""
    scopes: list[str] = []
    claims: dict[str, Any] = {}
    expires: float | None = None
    token: str | None = None


@lru_cache(maxsize=1024)
def write_caller(caller: Caller) -> bytes:
    """A caller as the value of a header between workers, which trust each other."""
    told = _Told(
        *(caller.principal, caller.tenant, caller.issuer, caller.client_id),
        sorted(caller.scopes),
        dict(caller.claims),
        caller.expires,
        caller.token,
    )
    return urlsafe_b64encode(msgspec.json.encode(told))


@lru_cache(maxsize=256)
def read_caller(written: bytes) -> Caller:
    """Raises ValueError for what is none."""
    if len(written) > MAX_CALLER * 4 // 3 + 4:
        raise ValueError("larger than a caller may be")
    try:
        told = msgspec.json.decode(urlsafe_b64decode(written), type=_Told)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a caller: {error}") from None
    return Caller(
        principal=told.principal,
        tenant=told.tenant,
        issuer=told.issuer,
        client_id=told.client_id,
        scopes=told.scopes,
        claims=told.claims,
        expires=told.expires,
        token=told.token,
    )
