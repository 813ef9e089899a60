"""Tokens that were found good, so that each costs one signature check and not one for each request.

They are kept by a keyed digest: the tokens themselves are not in memory, and collisions cannot be searched for.
"""

import hashlib
from typing import Final

import attrs

from callboard.codecs.caller import Caller
from callboard.codecs.oauth.access_token import UNBOUND, TokenBinding

MAX_KNOWN: Final = 10_000
"""Good tokens that are remembered. With more, the oldest costs another check: only good ones get in."""

MAX_KNOWN_BYTES: Final = 16 * 1024 * 1024
"""The same, as the sum of their lengths: their claims take some four times as much."""

KNOWN_FOR: Final = 300.0
"""Seconds that a token is believed without another look, unless it ends before."""


@attrs.frozen
class KnownToken:
    """A good token: its caller, and until when that is believed."""

    caller: Caller = attrs.field(repr=False)
    until: float
    size: int
    binding: TokenBinding = UNBOUND
    generation: int = 0
    """That of the issuer's keys when it was checked."""


@attrs.define(eq=False)
class TokenCache:
    """Bounded in number and size. *now* is in seconds since 1970."""

    secret: bytes = attrs.field(repr=False)
    most: int = MAX_KNOWN
    most_bytes: int = MAX_KNOWN_BYTES
    _tokens: dict[bytes, KnownToken] = attrs.field(factory=dict, init=False, repr=False)
    _bytes: int = attrs.field(default=0, init=False)

    def digest(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self.secret, digest_size=16).digest()

    def get(self, digest: bytes, now: float) -> KnownToken | None:
        known = self._tokens.get(digest)
        if known is not None and now >= known.until:
            self.drop(digest)
            return None
        return known

    def keep(self, digest: bytes, known: KnownToken) -> None:
        self.drop(digest)
        while self._tokens and (len(self._tokens) >= self.most or self._bytes + known.size > self.most_bytes):
            self.drop(next(iter(self._tokens)))
        self._tokens[digest] = known
        self._bytes += known.size

    def drop(self, digest: bytes) -> None:
        known = self._tokens.pop(digest, None)
        if known is not None:
            self._bytes -= known.size

    def forget(self, *, key: str | None = None, issuer: str | None = None) -> int:
        """Drop those of a caller, or of an issuer, or all; how many."""
        gone = [
            digest
            for digest, known in self._tokens.items()
            if key in (None, known.caller.key) and issuer in (None, known.caller.issuer)
        ]
        for digest in gone:
            self.drop(digest)
        return len(gone)

    def __len__(self) -> int:
        return len(self._tokens)
