"""Proofs that a client holds the key that its token is bound to (RFC 9449), from the side that checks them."""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from callboard.codecs.oauth.jwks import public_key
from callboard.codecs.oauth.signed import NotSigned, PublicKey, moment, read_signed, thumbprint
from callboard.errors import BadToken

PROOF_ALGORITHMS: Final = ("ES256", "EdDSA", "Ed25519", "RS256", "PS256")
"""How a proof may be signed: by a key pair."""

PROOF_WINDOW: Final = 300.0
"""Seconds that a proof is good for, before and after its `iat`."""

MAX_PROOF: Final = 8 * 1024
"""Longest proof, in bytes: a large RSA key and its signature."""

MAX_JTI: Final = 256
"""Longest name of a proof, in characters."""

MAX_PROOFS: Final = 500_000
"""Proofs that are remembered, so that none is taken twice. When it is full, further ones are refused: none is forgotten
while it could be used again."""

MAX_PROOFS_OF_KEY: Final = 100_000
"""How many of them one key may have: 330 requests a second, without end."""

NONCE_LIFE: Final = 300.0
"""Seconds after which another nonce is asked for. The one before it is taken for as long again."""

INVALID_PROOF: Final = "the DPoP proof is invalid"

_SLOT: Final = 60.0
_PRIVATE: Final = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PORTS: Final = {"https": 443, "http": 80}


@attrs.frozen
class DpopProof:
    """A proof that was checked, but for whether it was used before."""

    key: str
    """The thumbprint of its key."""
    jti: str = attrs.field(repr=False)
    issued: float
    nonce: str | None = attrs.field(default=None, repr=False)


def check_proof(text: str | None, *, token: str, key: str, method: str, url: str, now: float) -> DpopProof:
    """Check the proof for a request with *token*, which is bound to *key*. Its signature is checked last, and only if
    its key is that one: a client without a good token cannot cause the check. Raises `BadToken`."""
    if text is None or len(text) > MAX_PROOF:
        raise bad_proof("no proof, or too long a one")
    try:
        proof = read_signed(text)
        issued = moment(proof.claims, "iat")
    except NotSigned as error:
        raise bad_proof(str(error)) from None
    header, claims = proof.header, proof.claims
    _need(str(header.get("typ", "")).lower() == "dpop+jwt", "typ is not dpop+jwt")
    _need(proof.algorithm in PROOF_ALGORITHMS, "an algorithm that is not accepted")
    jti, nonce = claims.get("jti"), claims.get("nonce")
    _need(isinstance(jti, str) and 0 < len(jti) <= MAX_JTI, "no jti")
    _need(nonce is None or isinstance(nonce, str), "nonce is no string")
    _need(issued is not None and abs(now - issued) <= PROOF_WINDOW, "iat is not now")
    _need(claims.get("htm") == method, "another htm")
    _need(isinstance(claims.get("htu"), str) and plain_url(claims["htu"]) == plain_url(url) is not None, "another htu")
    _need(_same(claims.get("ath"), thumbprint(hashlib.sha256(_octets(token)).digest())), "another ath")
    public = _key(header.get("jwk"))
    _need(_same(public.thumbprint(), key), "another key than the token's")
    _need(proof.is_by(public), "the signature is wrong")
    return DpopProof(key, str(jti), issued or 0.0, nonce)


def plain_url(url: str) -> str | None:
    """The one spelling of a URL, without query and fragment (RFC 9449, 4.3; RFC 3986, 6.2.2); None for what is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in _PORTS or not host or "@" in parts.netloc:
        return None
    host = f"[{host}]" if ":" in host else host
    path = _ESCAPE.sub(_escape, parts.path or "/")
    return f"{scheme}://{host}{path}" if port in (None, _PORTS[scheme]) else f"{scheme}://{host}:{port}{path}"


def bad_proof(reason: str) -> BadToken:
    refusal = BadToken(INVALID_PROOF, reason=f"DPoP: {reason}", scheme="DPoP")
    refusal.error = "invalid_dpop_proof"
    return refusal


@attrs.define(eq=False)
class SeenProofs:
    """Proofs that were used: each is good for one request. Bounded; *now* is in seconds since 1970."""

    secret: bytes = attrs.field(repr=False)
    most: int = MAX_PROOFS
    most_of_key: int = MAX_PROOFS_OF_KEY
    _slots: dict[int, set[bytes]] = attrs.field(factory=dict, init=False, repr=False)
    _keys: dict[int, Counter[str]] = attrs.field(factory=dict, init=False, repr=False)
    _of_key: Counter[str] = attrs.field(factory=Counter, init=False, repr=False)
    count: int = attrs.field(default=0, init=False)

    def take(self, proof: DpopProof, now: float) -> bool:
        """Use *proof*: False if it was used before. Raises OverflowError if there is no room to remember it."""
        self._purge(now)
        slot = int((proof.issued + PROOF_WINDOW) // _SLOT)
        digest = hashlib.blake2b(_octets(f"{proof.key} {proof.jti}"), key=self.secret, digest_size=12).digest()
        seen = self._slots.setdefault(slot, set())
        if digest in seen:
            return False
        if self.count >= self.most or self._of_key[proof.key] >= self.most_of_key:
            raise OverflowError
        seen.add(digest)
        self._keys.setdefault(slot, Counter())[proof.key] += 1
        self._of_key[proof.key] += 1
        self.count += 1
        return True

    def _purge(self, now: float) -> None:
        over = [slot for slot in self._slots if (slot + 1) * _SLOT <= now]
        for slot in over:
            self.count -= len(self._slots.pop(slot))
            for key, many in self._keys.pop(slot, Counter()).items():
                self._of_key[key] -= many
                if self._of_key[key] <= 0:
                    del self._of_key[key]


@attrs.frozen
class Nonces:
    """Nonces that need no memory: each is made of a *secret* and the time. Workers that share the secret take each
    other's."""

    secret: bytes = attrs.field(repr=False)

    def current(self, now: float) -> str:
        return self._of(int(now // NONCE_LIFE))

    def check(self, nonce: str | None, now: float) -> None:
        """Raises `BadToken`, with the nonce to use."""
        slot = int(now // NONCE_LIFE)
        if not any(_same(nonce, self._of(each)) for each in (slot, slot - 1)):
            refusal = BadToken("a DPoP nonce is required", reason="DPoP: nonce", scheme="DPoP")
            refusal.error, refusal.nonce = "use_dpop_nonce", self._of(slot)
            raise refusal

    def _of(self, slot: int) -> str:
        return thumbprint(hashlib.blake2b(str(slot).encode(), key=self.secret, digest_size=18).digest())


def _key(said: Any) -> PublicKey:
    _need(isinstance(said, Mapping), "no jwk")
    _need(not _PRIVATE & set(said), "a private key")
    key = public_key(said)
    if key is None:
        raise bad_proof("unsupported jwk")
    return key


def _same(said: object, meant: str) -> bool:
    return isinstance(said, str) and hmac.compare_digest(_octets(said), _octets(meant))


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _escape(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    return character if character in _PLAIN else found[0].upper()


def _need(fact: object, reason: str) -> None:
    if not fact:
        raise bad_proof(reason)
