"""Credentials of a client: the hook that a link has for them."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import attrs

from callboard.codecs.http.response_parser import AnswerHead

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


@attrs.frozen(kw_only=True)
class Proof:
    """The headers that go with one request, and how they came about."""

    headers: Headers = attrs.field(default=(), repr=False)
    generation: int = 0
    """Serial number of the token: a newer one has a higher number."""
    authorizations: int = 0
    """How often leave was asked for in this request's name."""
    refreshes: int = 0
    """How often a token was refreshed, or found to be refreshed, in this request's name."""
    renewals: int = 0
    """How often these headers were made anew for this request, for any reason."""


class Credentials(Protocol):
    """The credentials for one server. Used by all requests to it at the same time."""

    async def prove(self, method: bytes) -> Proof:
        """Credentials to send with a request. Raises `NotAuthorized`."""

    def helps(self, refusal: AnswerHead, used: Proof) -> bool:
        """Whether a new proof could make something else of *refusal*."""

    async def renew(self, method: bytes, refusal: AnswerHead, used: Proof) -> Proof:
        """Another proof after *used* was refused. May ask a person, and so take minutes. Raises `NotAuthorized`."""


class Auth(Protocol):
    """The `auth` option of `connect`."""

    def credentials(self, url: str) -> Credentials:
        """The credentials for the server at *url*. Raises `NotAuthorized` if there can be none."""
