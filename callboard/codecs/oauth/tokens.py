"""Tokens: how they are asked for, what is believed of the answer, and what is kept of it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import attrs
import msgspec

from callboard.codecs.oauth.metadata import plain, read
from callboard.codecs.oauth.scopes import Scopes, split
from callboard.errors import FetchFailed, NotAuthorized

EARLY: Final = 30.0
"""Seconds before its end at which a token is renewed, or a tenth of its life if that is less."""

MAX_LIFE: Final = 366 * 24 * 3600.0
"""Longest life of a token that is believed, in seconds."""

CODE: Final = "authorization_code"
REFRESH: Final = "refresh_token"
CLIENT_CREDENTIALS: Final = "client_credentials"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105  # a name
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  # a name
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105  # a name
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

SECRETS: Final = frozenset(
    (
        *("code", "code_verifier", "client_secret", "refresh_token"),
        *("assertion", "client_assertion", "subject_token"),
    )
)
"""Parameters that only the token endpoint may see."""

SCHEMES: Final[Mapping[str, str]] = {"bearer": "Bearer", "dpop": "DPoP"}
"""How each type of token is shown."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")
_DESCRIPTION: Final = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,200}")


@attrs.frozen(kw_only=True)
class Tokens:
    """An access token, with its issuer, client and scopes."""

    access_token: str = attrs.field(repr=False)
    scheme: str = "Bearer"
    issuer: str
    client_id: str
    resource: str
    asked: Scopes = ()
    granted: Scopes = ()
    expires_at: float | None = None
    """Seconds since 1970; None if unknown."""
    renew_at: float | None = None
    """A little earlier: it must not end on its way."""
    refresh_token: str | None = attrs.field(default=None, repr=False)
    proof_key: str | None = attrs.field(default=None, repr=False)
    """The key that it is bound to, as PEM."""
    given_at: float = 0.0

    def is_fresh(self, now: float) -> bool:
        return self.renew_at is None or now < self.renew_at

    def replaces(self, other: "Tokens") -> bool:
        """Whether this is another token than *other*, and no older one."""
        return self.access_token != other.access_token and self.given_at >= other.given_at

    def is_over(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class TokenAnswer(msgspec.Struct, frozen=True):
    """A response of a token endpoint. Only `read_tokens` reads its fields."""

    access_token: str
    token_type: str
    expires_in: Any = None
    """A number, or a text that is one, or anything else that servers write there."""
    refresh_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None

    def __repr__(self) -> str:
        return "TokenAnswer(...)"


class TokenRefused(NotAuthorized):
    """The token endpoint said no: *error* is its word for why."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(text)
        self.error = error


class _Refusal(msgspec.Struct, frozen=True):
    error: str
    error_description: str | None = None


def write_form(parameters: Mapping[str, str]) -> bytes:
    return urlencode(parameters).encode("ascii")


def read_answer(status: int, body: bytes, sent: Iterable[str]) -> TokenAnswer:
    """Read the response to the request *sent*, which no error may repeat.

    Raises `TokenRefused`, `FetchFailed`.
    """
    if status != 200:
        raise _refusal(status, body, [value for value in sent if value])
    try:
        answer = read(TokenAnswer, body)
    except FetchFailed:
        raise FetchFailed("the response of the token endpoint has no token") from None
    for token in (answer.access_token, answer.refresh_token):
        if token is not None and _TOKEN.fullmatch(token) is None:
            raise FetchFailed("the response of the token endpoint has an invalid token")
    return answer


def scheme_of(answer: TokenAnswer) -> str:
    """How the token is shown. Raises `FetchFailed`."""
    scheme = SCHEMES.get(answer.token_type.lower())
    if scheme is None:
        raise FetchFailed(f"unsupported token type {plain(answer.token_type)!r}")
    return scheme


def read_tokens(
    answer: TokenAnswer,
    *,
    now: float,
    issuer: str,
    client_id: str,
    resource: str,
    asked: Scopes,
    proof_key: str | None,
    before: Tokens | None = None,
) -> Tokens:
    """The tokens to store. Members that a refresh of *before* omits are kept. Raises FetchFailed."""
    life = _life(answer.expires_in)
    scheme = scheme_of(answer)
    known = asked if before is None else before.granted
    return Tokens(
        access_token=answer.access_token,
        scheme=scheme,
        issuer=issuer,
        client_id=client_id,
        resource=resource,
        asked=asked,
        granted=known if answer.scope is None else split(answer.scope),
        expires_at=now + life if life > 0 else None,
        renew_at=now + life - min(EARLY, life / 10) if life > 0 else None,
        refresh_token=answer.refresh_token or (None if before is None else before.refresh_token),
        proof_key=proof_key,
        given_at=now,
    )


def _life(said: object) -> float:
    """Seconds, and 0 if unknown: it is no reason to throw away a token, which may be given only once."""
    try:
        life = float(said) if isinstance(said, int | float | str) and not isinstance(said, bool) else 0.0
    except (ValueError, OverflowError):
        life = 0.0
    return min(life, MAX_LIFE) if life > 0 else 0.0  # no server gives a token that is over


def _refusal(status: int, body: bytes, sent: Iterable[str]) -> NotAuthorized:
    """The answer's own words, unless they could give away what was sent."""
    try:
        said = read(_Refusal, body)
    except FetchFailed:
        return FetchFailed(f"the token endpoint returned HTTP {status}")
    text = said.error_description or ""
    is_safe = _DESCRIPTION.fullmatch(text) is not None and not any(value in text for value in sent)
    error = plain("" if any(value in said.error for value in sent) else said.error)
    return TokenRefused(error, f"the token endpoint returned an error: {error}" + (f" ({text})" if is_safe else ""))
