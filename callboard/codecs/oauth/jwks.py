"""The public keys of an issuer (RFC 7517), and how long they are kept.

An issuer replaces its keys whenever it wants to. So a token by an unknown key is a reason to ask again. Any
client can make such tokens without end, so `KeyCache` limits how often; the time is an argument.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import attrs
import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from callboard.codecs.oauth.signed import CURVES, PublicKey, SignedStatement, fits
from callboard.errors import FetchFailed

MAX_KEYS: Final = 100
"""Most keys of one issuer; the rest is not looked at."""

MAX_CHECKS: Final = 4
"""Most keys that one token is checked with, if it does not say which key it is by."""

MAX_KEY_BITS: Final = 8192
"""Largest RSA key. Each check with a larger one would take milliseconds."""

MIN_KEY_BITS: Final = 2048
"""Smallest RSA key that is believed (RFC 7518, 3.3)."""

MAX_KEY_ID: Final = 256
"""Longest name of a key, in characters."""

KEPT_LEAST: Final = 300.0
"""Seconds that keys are kept at least, whatever the issuer says."""

KEPT_MOST: Final = 24 * 3600.0
"""Seconds that keys are kept at most before newer ones are asked for, and then as long if those cannot be had."""

KEPT_USUALLY: Final = 3600.0
"""Seconds that keys are kept if the issuer says nothing of it."""

UNKNOWN_EVERY: Final = 30.0
"""Seconds between two fetches that a token by an unknown key causes, whatever the number of such tokens."""

RETRY_AFTER: Final = 5.0
"""Seconds until keys are asked for again that could not be had."""

_MAX_AGE: Final = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,9})\"?(?=$|[\s,])", re.IGNORECASE)
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_LONGEST: Final = MAX_KEY_BITS // 6 + 2
_KINDS: Final[Mapping[str, type[PublicKey]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}


class _Document(msgspec.Struct, frozen=True):
    keys: list[Any]


@attrs.frozen
class IssuerKey:
    """One key of an issuer."""

    key: PublicKey = attrs.field(repr=False)
    key_id: str | None = None
    algorithm: str | None = None
    """The only algorithm that it is for; None: any that it fits."""
    thumbprint: str = ""

    def fits(self, algorithm: str) -> bool:
        return self.algorithm in (None, algorithm) and fits(self.key, algorithm)


@attrs.frozen
class IssuerKeys:
    """All keys of an issuer that are understood."""

    keys: tuple[IssuerKey, ...] = ()

    @classmethod
    def read(cls, body: bytes) -> "IssuerKeys":
        """The keys in a document; those that are not understood are left out. Raises `FetchFailed`."""
        try:
            document = msgspec.json.decode(body, type=_Document)
        except (msgspec.MsgspecError, RecursionError):
            raise FetchFailed("the keys of the issuer are not a JSON Web Key Set") from None
        keys = tuple(_understood(document.keys[:MAX_KEYS]))
        if not keys:  # a slip of the issuer's: it must not take the keys away that there are
            raise FetchFailed("the keys of the issuer have none that is understood")
        return cls(keys)

    @classmethod
    def shared(cls, secret: str) -> "IssuerKeys":
        """One secret, in place of keys."""
        return cls((IssuerKey(OctKey.import_key(secret)),))

    def named(self, token: SignedStatement) -> tuple[IssuerKey, ...]:
        """The keys that *token* may be by, few enough to try them all. None: by a key that is unknown."""
        fitting = [key for key in self.keys if key.fits(token.algorithm)]
        kid = token.key_id
        exact = [key for key in fitting if key.key_id == kid] if kid is not None else fitting
        # An issuer with one key may give it no name there, and a name in its tokens.
        return tuple(exact or [key for key in fitting if key.key_id is None])[:MAX_CHECKS]

    def without(self, others: "IssuerKeys") -> bool:
        """Whether *others* lack one of these keys: tokens by that key are no longer good."""
        left = {key.thumbprint for key in others.keys}
        return any(key.thumbprint not in left for key in self.keys)


def _understood(entries: list[Any]) -> Iterator[IssuerKey]:
    for entry in entries:
        key = _public_key(entry)
        if key is not None:
            kid, algorithm = entry.get("kid"), entry.get("alg")
            yield IssuerKey(key, kid if isinstance(kid, str) else None, algorithm, key.thumbprint())


def _public_key(entry: Any) -> PublicKey | None:
    """The public part of a key for signatures; None for any other."""
    if not isinstance(entry, dict) or not isinstance(entry.get("alg", ""), str):
        return None
    kid, uses = entry.get("kid", ""), entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
        return None
    if isinstance(kid, str) and len(kid) > MAX_KEY_ID:
        return None
    return public_key(entry)


def public_key(entry: Mapping[str, Any]) -> PublicKey | None:
    """The public key that *entry* describes; None for what is none, or of no use. Private parts are not read."""
    kind = str(entry.get("kty"))
    parts = {name: entry.get(name) for name in _PARTS.get(kind, ())}
    if not parts or not all(isinstance(part, str) and 0 < len(part) <= _LONGEST for part in parts.values()):
        return None
    try:
        if not (_is_strong(str(parts["n"])) if kind == "RSA" else parts["crv"] in CURVES.values()):
            return None
        return _KINDS[kind].import_key({"kty": kind, **parts})  # type: ignore[dict-item]  # strings, as seen above
    except (JoseError, ValueError, TypeError, OverflowError):
        return None


def _is_strong(modulus: str) -> bool:
    """Whether an RSA key is neither too small nor too large. Raises ValueError."""
    number = int.from_bytes(urlsafe_b64decode(modulus + "=" * (-len(modulus) % 4)), "big")
    return MIN_KEY_BITS <= number.bit_length() <= MAX_KEY_BITS


def kept_for(cache_control: str) -> float:
    """Seconds that keys are kept, by the issuer's `Cache-Control`, within bounds."""
    if "no-store" in cache_control.lower() or "no-cache" in cache_control.lower():
        return KEPT_LEAST
    found = _MAX_AGE.search(cache_control[:1024])
    return KEPT_USUALLY if found is None else min(max(float(found[1]), KEPT_LEAST), KEPT_MOST)


class Refetch(Enum):
    """Whether the keys are to be fetched before a token is checked."""

    NO = "no"
    WAIT = "wait"
    """The token is checked with the keys that come."""
    MEANWHILE = "meanwhile"
    """The token is checked with the keys that there are."""
    CANNOT = "cannot"
    """There are no keys, and there is no asking again yet."""


@attrs.define(eq=False)
class KeyCache:
    """The keys of one issuer, and when to ask for them again. *now* is the time of a clock that never goes back."""

    keys: IssuerKeys | None = None
    is_fixed: bool = False
    """Whether they never change."""
    generation: int = attrs.field(default=0, init=False)
    """How often a key was taken out: what was believed by it, is no longer."""
    attempts: int = attrs.field(default=0, init=False)
    """How many fetches have ended, well or not."""
    _stale_at: float = attrs.field(default=0.0, init=False)
    _gone_at: float = attrs.field(default=0.0, init=False)
    _failed_at: float | None = attrs.field(default=None, init=False)
    _unknown_at: float | None = attrs.field(default=None, init=False)
    _asked: int = attrs.field(default=-1, init=False)
    """The attempt that was asked for last: it is under way if that is none of those that have ended."""

    def usable(self, now: float) -> IssuerKeys | None:
        return self.keys if self.is_fixed or now < self._gone_at else None

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failed_at is not None

    def before_check(self, now: float) -> Refetch:
        """What to do before a token is looked at."""
        usable = self.usable(now)
        if usable is not None and (self.is_fixed or now < self._stale_at):
            return Refetch.NO
        pause = RETRY_AFTER if usable is None else UNKNOWN_EVERY
        if self._failed_at is not None and now < self._failed_at + pause:
            return Refetch.CANNOT if usable is None else Refetch.NO
        if usable is None or self._failed_at is None:
            return Refetch.WAIT
        return Refetch.NO if self._is_asked else Refetch.MEANWHILE

    def after_unknown(self, now: float) -> Refetch:
        """What to do about a token by an unknown key: ask again, once in a while."""
        if self.is_fixed:
            return Refetch.NO
        if self._is_asked:
            return Refetch.WAIT  # for what another token asked for
        if self._unknown_at is not None and now < self._unknown_at + UNKNOWN_EVERY:
            return Refetch.CANNOT if self.is_failing else Refetch.NO
        self._unknown_at = now
        return Refetch.WAIT

    def ask(self) -> int:
        """Note that keys are asked for. Which attempt that is."""
        self._asked = self.attempts
        return self.attempts

    def lost(self) -> None:
        """A fetch that was under way will not end."""
        self._asked = -1

    def fetched(self, keys: IssuerKeys, now: float, kept: float) -> None:
        if self.keys is not None and self.keys.without(keys):
            self.generation += 1
        self.attempts += 1
        self.keys, self._failed_at = keys, None
        self._stale_at, self._gone_at = now + kept, now + kept + KEPT_MOST

    def failed(self, now: float) -> None:
        """What there was stays, for as long as keys are kept at most."""
        self.attempts += 1
        self._failed_at = now
        if self.keys is not None and now >= self._gone_at:
            self.keys = None
            self.generation += 1

    @property
    def _is_asked(self) -> bool:
        return self._asked == self.attempts
