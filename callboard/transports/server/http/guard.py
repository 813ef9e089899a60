"""The guard of an endpoint: looks at the token of a request before anything else of it is read."""

import time
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, Protocol, TypeAlias, runtime_checkable

import attrs

from callboard.codecs.caller import Caller, as_caller
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import RETRY_AFTER
from callboard.codecs.oauth.presented import PresentedToken
from callboard.codecs.oauth.resource import WELL_KNOWN, ProtectedResource, write_challenge
from callboard.errors import BadToken, InsufficientScope, IssuerUnavailable
from callboard.supervisor import get_logger

log = get_logger("callboard.transports")

Authenticate: TypeAlias = Callable[[str], Awaitable[Caller | str | None]]
"""Checks a bearer token: gives its caller or principal, or None if the token is invalid."""

MAX_TOKEN: Final = 16 * 1024
"""Longest token that is looked at, in bytes."""

BELIEVED: Final = 1.0
"""Seconds for which the token in a head that is sent again is not looked at again."""

_BEARER: Final = b"bearer "
_ENDPOINT: Final = b"/mcp"
_SCHEMES: Final = frozenset((b"bearer", b"dpop"))
_EXPIRED: Final = "the token has expired"


@runtime_checkable
class Authenticator(Protocol):
    """What tells good tokens from others."""

    def known(self, token: str) -> Caller | None:
        """The caller of a bearer token that was seen before, and is good. Never waits."""

    async def verify(self, presented: PresentedToken) -> Caller:
        """The caller of a token. Raises `BadToken`, `IssuerUnavailable`."""


class Unauthorized(HttpRefusal):
    """There is no valid token. The *reason* is for the operator's log: None if there is no token at all."""

    def __init__(self, challenge: bytes, *, reason: str | None, nonce: str | None = None) -> None:
        headers: tuple[tuple[bytes, bytes], ...] = ((b"www-authenticate", challenge),)
        if nonce is not None:
            headers += ((b"dpop-nonce", nonce.encode("ascii")),)
        super().__init__(401, "a bearer token is required", headers=headers, closes=True)
        self.reason = reason


@attrs.frozen
class ByFunction:
    """An `Authenticator` that asks a function, each time."""

    authenticate: Authenticate

    def known(self, token: str) -> Caller | None:
        return None

    async def verify(self, presented: PresentedToken) -> Caller:
        found = await self.authenticate(presented.token) if presented.scheme == "bearer" else None
        if found is None:
            raise BadToken
        caller = as_caller(found)
        if caller.expires is not None and caller.expires <= time.time():
            raise BadToken(_EXPIRED, reason="expired")
        return caller


@attrs.define(eq=False)
class Guard:
    """Lets callers in, and says to others what they lack."""

    authenticator: Authenticator
    resource: ProtectedResource | None = None
    """What is told of the authorization servers; None: a token comes from the operator, and nothing is told."""
    _has_warned: bool = attrs.field(default=False, init=False)
    _word: object = attrs.field(factory=object, init=False)

    def known(self, head: Head) -> Caller | None:
        """The caller of a request whose token was seen before: most are. Never waits.

        A client that goes on sends the same head again and again, which is remembered: then its token is not looked at
        more than once a second.
        """
        admitted, now = head.admitted, monotonic()
        if admitted is not None and admitted[0] is self._word and now < admitted[1]:
            return admitted[2]
        given = head.get(b"authorization")
        if given is None or given[: len(_BEARER)].lower() != _BEARER:
            return None
        caller = self.authenticator.known(given[len(_BEARER) :].decode("latin-1"))
        if caller is not None:
            head.admitted = self._word, now + BELIEVED, caller
        return caller

    def has_changed(self, head: Head) -> bool:
        """Whether what is good may have changed since the caller of *head* was let in."""
        return head.admitted is None or head.admitted[0] is not self._word

    def forget(self) -> None:
        """Look at every token again: what is good may have changed."""
        self._word = object()

    async def admit(self, head: Head, token: str | None = None) -> Caller:
        """The caller of a request; *token* is one that is not in a header.

        Raises `HttpRefusal`: 401 without a valid token, 400 for what is malformed, 503 if that cannot be told now.
        """
        self._warn(head)
        presented = self._presented(head, token)
        if presented is None:
            raise self._unauthorized(None)
        word = self._word
        try:
            caller = await self.authenticator.verify(presented)
        except BadToken as error:
            raise self._unauthorized(error) from None
        except IssuerUnavailable:
            text = "the authorization server cannot be reached"
            raise HttpRefusal(503, text, headers=RETRY_AFTER, closes=True) from None
        head.admitted = word, 0.0, caller  # believed for this request alone
        return caller

    def _presented(self, head: Head, token: str | None) -> PresentedToken | None:
        """Raises `HttpRefusal` (400)."""
        given = head.get(b"authorization")
        if given is None and token is None:
            return None
        kind = b"bearer"
        if given is not None and (token is None or given[: len(_BEARER)].lower() != _BEARER):
            kind, _, said = given.partition(b" ")
            kind, said = kind.lower(), said.strip(b" ")
            if kind not in _SCHEMES:
                return None  # RFC 6750: as if there were none
            if not said or b" " in said or b"," in said:
                raise HttpRefusal(400, "malformed Authorization header", closes=True)
            token = said.decode("latin-1")
        if token is None or len(token) > MAX_TOKEN:
            raise HttpRefusal(400, f"a token has at most {MAX_TOKEN} bytes", closes=True)
        proof = head.get(b"dpop")
        return PresentedToken(
            token=token,
            scheme=kind.decode(),
            proof=None if proof is None else proof.decode("latin-1"),
            method=head.method,
            url=self._url_of(head),
        )

    def _url_of(self, head: Head) -> str:
        """The address that a client means, as it knows it."""
        resource = self.resource
        if resource is None:
            return ""
        return resource.url if head.path == _ENDPOINT else resource.origin + head.path.decode("latin-1")

    def _warn(self, head: Head) -> None:
        if not self._has_warned and b"access_token=" in head.target:
            self._has_warned = True
            log.warning("token_in_query_ignored", fix="send it in the Authorization header")

    # What is told.

    def is_metadata(self, path: bytes) -> bool:
        """Whether the metadata is at *path*."""
        if self.resource is None or not path.startswith(WELL_KNOWN.encode()):
            return False
        below = path[len(WELL_KNOWN) :].decode("latin-1").rstrip("/")
        is_named = below.startswith("/mcp/")  # of one path: all are one resource
        return is_named or below in ("", "/mcp", self.resource.metadata_url.partition(WELL_KNOWN)[2])

    def metadata(self) -> bytes:
        """Raises `HttpRefusal` (404) if there is none."""
        if self.resource is None:
            raise HttpRefusal(404, "not found")
        return self.resource.metadata()

    def scope_headers(self, error: InsufficientScope) -> tuple[tuple[bytes, bytes], ...]:
        """The headers of a 403: all scopes of the operation, in one challenge."""
        parameters = (
            ("error", "insufficient_scope"),
            ("scope", " ".join(error.scopes)),
            ("resource_metadata", self._metadata_url()),
            ("error_description", "the token lacks scopes"),
        )
        return ((b"www-authenticate", write_challenge("Bearer", parameters)),)

    def _metadata_url(self) -> str | None:
        return None if self.resource is None else self.resource.metadata_url

    def _unauthorized(self, error: BadToken | None) -> Unauthorized:
        resource = self.resource
        needs_dpop = resource is not None and resource.requires_dpop
        kind = "DPoP" if needs_dpop or (error is not None and error.scheme == "DPoP") else "Bearer"
        parameters: list[tuple[str, str | None]] = [
            ("resource_metadata", self._metadata_url()),
            ("scope", None if resource is None else " ".join(resource.scopes)),
        ]
        if error is not None:  # without a token there is no error to name: RFC 6750, section 3.1
            parameters += [("error", error.error), ("error_description", error.description)]
        if kind == "DPoP" and resource is not None:
            parameters.append(("algs", " ".join(resource.dpop_algorithms)))
        return Unauthorized(
            write_challenge(kind, parameters),
            reason=None if error is None else error.reason or "unknown token",
            nonce=None if error is None else error.nonce,
        )


def guard_of(given: "Guard | Authenticator | Authenticate | None") -> Guard | None:
    """The guard that was given, or one that asks what was given."""
    if given is None or isinstance(given, Guard):
        return given
    return Guard(given if isinstance(given, Authenticator) else ByFunction(given))
