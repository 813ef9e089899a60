"""Signed statements: the identity of a client (RFC 7523), and that it holds the key of a token (RFC 9449)."""

import hashlib
from base64 import urlsafe_b64encode
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import attrs
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from callboard.errors import NotAuthorized

ASSERTION_LIFE: Final = 60.0
"""Seconds that a client assertion can be used."""

PROOF_ALGORITHM: Final = "ES256"

Key: TypeAlias = ECKey | RSAKey | OKPKey
_KINDS: Final[tuple[type[Key], ...]] = (ECKey, RSAKey, OKPKey)

ALGORITHMS: Final = (
    "ES256",
    "ES384",
    "ES512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "Ed25519",
    "EdDSA",
)
"""How a client may sign. All by a key of its own: a shared secret proves nothing to a third."""


def read_key(pem: str) -> Key:
    """A private key in PEM form. Raises `NotAuthorized`, without a word of what was given."""
    for kind in _KINDS:
        try:
            key = kind.import_key(pem)
        except (JoseError, ValueError, TypeError):
            continue  # of another kind, or no key at all
        if key.is_private:
            return key
    raise NotAuthorized("invalid private key")


def client_assertion(key: Key, algorithm: str, client_id: str, audience: str, *, now: float, jti: str) -> str:
    """A short-lived assertion that the client is *client_id*, for *audience* only. Raises `NotAuthorized`."""
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": jti,
        "iat": int(now),
        "exp": int(now + ASSERTION_LIFE),
    }
    return _signed({"typ": "JWT"}, claims, key, algorithm)


@attrs.frozen
class ProofKey:
    """A key that tokens are bound to: a token without the key is worth nothing."""

    _key: ECKey = attrs.field(repr=False)

    @classmethod
    def make(cls) -> "ProofKey":
        return cls(ECKey.generate_key("P-256"))

    @classmethod
    def read(cls, kept: str) -> "ProofKey":
        """Raises `NotAuthorized`."""
        key = read_key(kept)
        if not isinstance(key, ECKey):
            raise NotAuthorized("unsupported type of key")
        return cls(key)

    def written(self) -> str:
        """The key itself, to be kept with the tokens, and nowhere else."""
        return self._key.as_pem(private=True).decode()

    def prove(
        self, method: str, url: str, *, now: float, jti: str, token: str | None = None, nonce: str | None = None
    ) -> str:
        """Proof that the sender of this request holds the key. For one request only."""
        claims: dict[str, Any] = {"jti": jti, "htm": method, "htu": _bare(url), "iat": int(now)}
        if token is not None:
            claims["ath"] = urlsafe_b64encode(hashlib.sha256(token.encode("ascii")).digest()).rstrip(b"=").decode()
        if nonce is not None:
            claims["nonce"] = nonce
        header = {"typ": "dpop+jwt", "jwk": self._key.as_dict(private=False)}
        return _signed(header, claims, self._key, PROOF_ALGORITHM)


def _signed(header: dict[str, Any], claims: dict[str, Any], key: Key, algorithm: str) -> str:
    if algorithm not in ALGORITHMS:
        raise NotAuthorized(f"unsupported signature algorithm {algorithm[:20]!r}")
    try:
        return jwt.encode({"alg": algorithm, **header}, claims, key, algorithms=[algorithm])
    except (JoseError, ValueError):
        raise NotAuthorized(f"the key does not support {algorithm}") from None


def _bare(url: str) -> str:
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))
