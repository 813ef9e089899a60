"""Whether an access token is good, and its caller: by its claims, the issuer's keys, and the settings.

The cheap checks come first: a token with a wrong issuer or audience costs no signature check. All causes look the same
from outside, but for a token that has ended, which is worth renewing.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from callboard.codecs.caller import Caller
from callboard.codecs.oauth.issuer import IssuerSettings
from callboard.codecs.oauth.jwks import IssuerKeys
from callboard.codecs.oauth.signed import NotSigned, SignedStatement, moment, thumbprint
from callboard.errors import BadToken

EXPIRED: Final = "the token has expired"

MAX_NAME: Final = 512
"""Longest name of a principal, tenant or client, in characters."""

CLIENT_CLAIMS: Final = ("client_id", "azp", "appid", "cid")
"""Where issuers name the client: RFC 9068, OpenID Connect, Entra (v1), Okta."""

OTHER_TYPES: Final = frozenset(
    (
        *("id_token", "id+jwt", "dpop+jwt", "logout+jwt", "secevent+jwt", "client-authentication+jwt"),
        *("token-introspection+jwt", "oauth-authz-req+jwt", "entity-statement+jwt", "kb+jwt", "refresh+jwt"),
    )
)
"""Values of `typ` that say that this is no access token. `JWT` says nothing."""

OTHER_USES: Final[Mapping[str, frozenset[str]]] = {
    "typ": frozenset(("ID", "Refresh", "Offline", "Logout")),  # Keycloak
    "token_use": frozenset(("id",)),  # Cognito
}
"""Claims by which issuers say the same."""

ID_TOKEN_CLAIMS: Final = ("at_hash", "c_hash", "s_hash")
"""Claims that only ID tokens have."""

_NAME: Final = re.compile(rf"[^\x00-\x1f\x7f\ud800-\udfff]{{1,{MAX_NAME}}}")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")


@attrs.frozen
class TokenBinding:
    """What a token is bound to, by its claim `cnf`: only the holder of that may use it."""

    key: str | None = None
    """The thumbprint of a key, for which DPoP is proof (RFC 9449)."""
    certificate: str | None = None
    """The thumbprint of a certificate, which TLS is proof of (RFC 8705)."""

    @property
    def is_bound(self) -> bool:
        return self.key is not None or self.certificate is not None

    def check_certificate(self, presented: bytes | None) -> None:
        """Raises `BadToken`."""
        if self.certificate is None:
            return
        shown = thumbprint(hashlib.sha256(presented or b"").digest())
        if presented is None or not hmac.compare_digest(shown, self.certificate):
            raise BadToken(reason="another client certificate than the token's")


UNBOUND: Final = TokenBinding()


def check_claims(
    claims: Mapping[str, Any], issuer: IssuerSettings, resource: str, *, now: float, is_told: bool = False
) -> None:
    """Look at what *claims* say. If *is_told*, the issuer itself says them, and may leave out what it has checked.

    Raises `BadToken`.
    """
    if "iss" in claims or not is_told:
        _need(claims.get("iss") == issuer.issuer, "another issuer")
    try:
        expires, starts = moment(claims, "exp"), moment(claims, "nbf")
        issued = moment(claims, "iat")
    except NotSigned as error:
        raise BadToken(reason=str(error)) from None
    _need(expires is not None or is_told, "no exp")
    if expires is not None and now >= expires + issuer.leeway:
        raise BadToken(EXPIRED, reason="expired")
    _need(starts is None or now >= starts - issuer.leeway, "not valid yet")
    _need(issued is None or now >= issued - issuer.leeway, "issued in the future")
    _check_audience(claims.get("aud"), (resource,) if issuer.audiences is None else issuer.audiences)
    if issuer.client_ids:
        _need(_client(claims) in issuer.client_ids, "another client")
    for name, others in OTHER_USES.items():
        _need(claims.get(name) not in others if isinstance(claims.get(name), str) else True, "not an access token")
    _need(not any(name in claims for name in ID_TOKEN_CLAIMS), "an ID token")
    missing = [name for name in issuer.required_claims if claims.get(name) in (None, "", [], {})]
    _need(not missing, "a required claim is missing")


def check_header(token: SignedStatement, issuer: IssuerSettings) -> None:
    """Raises `BadToken`."""
    _need(token.algorithm in issuer.accepted, "an algorithm that is not accepted")
    kind = str(token.header.get("typ", "")).lower().removeprefix("application/")
    if issuer.typ is None:
        _need(kind not in OTHER_TYPES, "not an access token")
    else:
        _need(kind == issuer.typ.lower().removeprefix("application/"), "another typ")


def check_signature(token: SignedStatement, keys: IssuerKeys) -> bool:
    """Whether one of *keys* made the signature. Raises `BadToken` if the key that the token names did not: no other
    key is tried. False: its key is unknown."""
    named = keys.named(token)
    if any(token.is_by(each.key) for each in named):
        return True
    if named and token.key_id is not None:
        raise BadToken(reason="the signature is wrong")
    return False


def binding_of(claims: Mapping[str, Any]) -> TokenBinding:
    """Raises `BadToken` for one that is not understood: such a token must not be taken for an unbound one."""
    confirmation = claims.get("cnf")
    if confirmation is None:
        return UNBOUND
    _need(isinstance(confirmation, dict) and set(confirmation) <= {"jkt", "x5t#S256"} and confirmation, "unknown cnf")
    _need(all(isinstance(value, str) and value for value in confirmation.values()), "unknown cnf")
    return TokenBinding(confirmation.get("jkt"), confirmation.get("x5t#S256"))


def caller_of(claims: Mapping[str, Any], issuer: IssuerSettings) -> Caller:
    """The caller, by claims that were checked. Raises `BadToken` if they do not say."""
    client = _client(claims)
    if issuer.principal:
        parts = [_name(claims.get(name)) for name in issuer.principal]
        principal = parts[0] if len(parts) == 1 else "/".join(_escaped(part) for part in parts)
    else:
        principal = _name(claims.get("sub") or client)
    return Caller(
        principal=principal,
        tenant=_tenant(claims, issuer),
        issuer=issuer.issuer,
        client_id=client,
        scopes=scopes_of(claims),
        claims=MappingProxyType(dict(claims)),
        expires=moment(claims, "exp"),
    )


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """The scopes of a token: in `scope`, or in `scp`, as a text or a list."""
    found: set[str] = set()
    for said in (claims.get("scope"), claims.get("scp")):
        several: Iterable[Any] = said.split(" ") if isinstance(said, str) else said if isinstance(said, list) else ()
        found.update(each for each in several if isinstance(each, str) and _SCOPE.fullmatch(each))
    return frozenset(found)


def _check_audience(said: object, audiences: tuple[str, ...]) -> None:
    if not audiences:
        return
    several = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    _need(any(isinstance(each, str) and each in audiences for each in several), "another audience")


def _client(claims: Mapping[str, Any]) -> str:
    said = next((claims[name] for name in CLIENT_CLAIMS if claims.get(name)), "")
    return "" if said == "" else _name(said)


def _tenant(claims: Mapping[str, Any], issuer: IssuerSettings) -> str:
    kind, _, name = issuer.tenant.partition(":")
    if kind == "claim" and name:
        return _name(claims.get(name))
    return issuer.issuer if issuer.tenant == "issuer" else issuer.tenant


def _name(said: object) -> str:
    _need(isinstance(said, str) and _NAME.fullmatch(said) is not None, "a claim that the caller's name needs")
    return str(said)


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")


def _need(fact: object, reason: str) -> None:
    if not fact:
        raise BadToken(reason=reason)
