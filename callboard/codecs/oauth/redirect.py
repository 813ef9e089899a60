"""The authorization code flow: the authorization URL, and the query of the redirect."""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import attrs

from callboard.codecs.oauth.addresses import Reach, locate
from callboard.codecs.oauth.metadata import S256, ServerMetadata, plain
from callboard.codecs.oauth.scopes import Scopes
from callboard.errors import NotAuthorized, UnsafeUrl

MAX_QUERY: Final = 16 * 1024
"""Longest query that comes back with a user, in characters."""

MAX_PARAMETERS: Final = 32
"""Most parameters that come back with a user."""


class IssuerCheck(Enum):
    """Verdict on the `iss` of a redirect."""

    COMPARE = "compare"
    REFUSE = "refuse"
    GO_ON = "go on"


ISSUER_CHECKS: Final[Mapping[tuple[bool, bool], IssuerCheck]] = {
    (True, True): IssuerCheck.COMPARE,
    (True, False): IssuerCheck.REFUSE,
    (False, True): IssuerCheck.COMPARE,
    (False, False): IssuerCheck.GO_ON,
}
"""By whether the server announces it, and whether it is there (RFC 9207)."""


@attrs.frozen(kw_only=True)
class PendingAuthorization:
    """State of an authorization request until the redirect: used once, and short-lived."""

    issuer: str
    announces_iss: bool
    state: str = attrs.field(repr=False)
    verifier: str = attrs.field(repr=False)
    redirect_uri: str

    @classmethod
    def of(cls, server: ServerMetadata, redirect_uri: str, *, state: str, verifier: str) -> "PendingAuthorization":
        return cls(
            issuer=server.issuer,
            announces_iss=server.authorization_response_iss_parameter_supported is True,
            state=state,
            verifier=verifier,
            redirect_uri=redirect_uri,
        )


def pkce_challenge(verifier: str) -> str:
    """The S256 challenge that only *verifier* answers."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def authorization_url(
    server: ServerMetadata,
    pending: PendingAuthorization,
    client_id: str,
    *,
    resource: str,
    scopes: Scopes,
    reach: Reach,
) -> str:
    """The authorization URL. Raises `NotAuthorized`, and `UnsafeUrl` for a URL that no browser should open."""
    if server.authorization_endpoint is None:
        raise NotAuthorized(f"the authorization server {server.issuer[:200]!r} has no authorization endpoint")
    try:
        locate(server.authorization_endpoint, reach)
    except UnsafeUrl as error:
        raise UnsafeUrl(f"invalid authorization endpoint: {error}") from None
    parameters = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": pending.redirect_uri,
        "code_challenge": pkce_challenge(pending.verifier),
        "code_challenge_method": S256,
        "state": pending.state,
        "resource": resource,
    }
    if scopes:
        parameters["scope"] = " ".join(scopes)
    if "offline_access" in scopes:
        parameters["prompt"] = "consent"  # OpenID Connect gives it only to a user that was asked
    parts = urlsplit(server.authorization_endpoint)
    query = "&".join(part for part in (parts.query, urlencode(parameters)) if part)
    return urlunsplit(parts._replace(query=query))


def read_redirect(query: str, pending: PendingAuthorization) -> str:
    """The code that came back. Nothing else that came is looked at before its sender is certain.

    Raises `NotAuthorized`.
    """
    given = _parameters(query)
    if not hmac.compare_digest(given.get("state", "").encode(), pending.state.encode()):
        raise NotAuthorized("the redirect does not match the authorization request (state)")
    match ISSUER_CHECKS[pending.announces_iss, "iss" in given]:
        case IssuerCheck.REFUSE:
            raise NotAuthorized("the redirect does not name its authorization server (iss)")
        case IssuerCheck.COMPARE if given["iss"] != pending.issuer:
            raise NotAuthorized("the redirect is from another authorization server (iss)")
        case _:
            pass
    if "error" in given:
        raise NotAuthorized(f"the authorization server refused: {plain(given['error'])}")
    code = given.get("code", "")
    if not code:
        raise NotAuthorized("the redirect has no authorization code")
    return code


def query_of(text: str) -> str:
    """The query of a redirect, given as such or as the whole URL."""
    before, mark, query = text.partition("?")
    return (query if mark and (not before or "://" in before) else text).partition("#")[0]


def _parameters(query: str) -> dict[str, str]:
    if len(query) > MAX_QUERY:
        raise NotAuthorized("the redirect is too long")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise NotAuthorized("the redirect cannot be read") from None
    given = dict(pairs)
    if len(given) != len(pairs):
        raise NotAuthorized("the redirect has a duplicate parameter")
    return given
