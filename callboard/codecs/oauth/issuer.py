"""What makes a token of an authorization server good, as the operator says it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from callboard.codecs.oauth.client import BASIC
from callboard.codecs.oauth.jwt import ALGORITHMS

ASYMMETRIC: Final = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
"""Signatures that are accepted where nothing else is said. `Ed25519` is the new name of `EdDSA` with that curve."""

SYMMETRIC: Final = ("HS256", "HS384", "HS512")
"""Signatures by a secret that is shared with the issuer: only with such a secret."""

KNOWN_ALGORITHMS: Final = (*ALGORITHMS, *SYMMETRIC)

LEEWAY: Final = 60.0
"""Seconds by which the clocks of an issuer and of this machine may differ."""

MIN_SECRET: Final = 32
"""Shortest shared secret, in bytes: that of the digest of HS256 (RFC 7518, 3.2)."""

ACCESS_TYPE: Final = "at+jwt"
"""The `typ` of an access token (RFC 9068)."""


@attrs.frozen(kw_only=True)
class IntrospectionSettings:
    """How an issuer is asked about its tokens (RFC 7662), and the client that asks."""

    client_id: str
    client_secret: str | None = attrs.field(default=None, repr=False)
    private_key: str | None = attrs.field(default=None, repr=False)
    """In PEM form, in place of a secret."""
    algorithm: str = "ES256"
    method: str = BASIC
    """`client_secret_basic` or `client_secret_post`; with a private key it is `private_key_jwt`."""
    endpoint: str | None = None
    """None: as the metadata of the issuer says."""


@attrs.frozen(kw_only=True)
class IssuerSettings:
    """An authorization server, and which of its tokens are accepted."""

    issuer: str
    """Compared letter by letter with `iss`."""
    audiences: tuple[str, ...] | None = None
    """One of these must be in `aud`. None: the URL of the server itself. Empty: `client_ids` decide."""
    client_ids: tuple[str, ...] = ()
    """Tokens of these clients are accepted; empty: of all. For issuers that write no `aud`."""
    jwks: str | Path | Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    """Its keys: a URL, a file, or the keys themselves. None: as its metadata says."""
    secret: str | None = attrs.field(default=None, repr=False)
    """Shared with the issuer, for HS256 and its kin. Then there are no other keys."""
    algorithms: tuple[str, ...] = ()
    """Empty: `ASYMMETRIC`, or HS256 where there is a secret."""
    leeway: float = LEEWAY
    required_claims: tuple[str, ...] = ()
    """Beside those that every token must have: `iss`, `exp`, `aud`, and `sub` or the client."""
    typ: str | None = None
    """The only `typ` that is taken. None: any but those of ID tokens and the like."""
    principal: tuple[str, ...] = ()
    """Claims that make up the name of the caller. Empty: `sub`, else the client."""
    tenant: str = ""
    """`claim:NAME`, `issuer`, or the name of one tenant."""
    trust: tuple[str, ...] = ()
    """Hosts that may be fetched from although their addresses are private."""
    introspection: IntrospectionSettings | None = None

    def __attrs_post_init__(self) -> None:
        """Raises ValueError for what would let in too much, or nothing."""
        wrong = self._wrong()
        if wrong:
            raise ValueError(wrong)

    def _wrong(self) -> str | None:
        symmetric = [name for name in self.algorithms if name in SYMMETRIC]
        unknown = [name for name in self.algorithms if name not in KNOWN_ALGORITHMS]
        if not self.issuer:
            return "the issuer is empty"
        if unknown:
            return f"unsupported algorithm {unknown[0][:20]!r}"
        if self.secret is None and symmetric:
            return f"{symmetric[0]} needs a `secret`"
        if self.secret is not None and len(symmetric) < len(self.algorithms):
            return "a `secret` is for HS256, HS384 and HS512 alone"
        if self.secret is not None and len(self.secret.encode()) < MIN_SECRET:
            return f"the secret is shorter than {MIN_SECRET} bytes"
        if self.audiences == () and not self.client_ids:
            return "without `audiences` it needs `client_ids`"
        return None

    @property
    def accepted(self) -> tuple[str, ...]:
        """The algorithms that are accepted."""
        return self.algorithms or (ASYMMETRIC if self.secret is None else SYMMETRIC[:1])
