"""One line of a token file: `principal token [scope ...] [tenant=NAME] [expires=2027-01-01]`.

The token stands there as it is, or as `sha256:HEX`, which tells it to no reader. That digest is a fast one on purpose:
a slow hash (scrypt, Argon2) protects passwords, of which an attacker can try the likely ones. Of a random token of 128
bits and more none is likelier than another, and 2**127 tries are out of reach however fast each of them is. And a slow
hash for each request would let any stranger keep the server busy.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from callboard.codecs.caller import ANYBODY, Caller

MIN_TOKEN: Final = 16
"""Shortest token, in characters: what is shorter can be guessed."""

TOKEN_BYTES: Final = 32
"""Random bytes of a new token: twice what no attacker can try."""

PREFIX: Final = "cb_"
"""Begin of new tokens, by which secret scanners and readers of a log know one."""

HASHED: Final = "sha256:"

_HEX: Final = re.compile("[0-9a-f]{64}")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")  # RFC 6749, 3.3
_OPTION: Final = re.compile("[A-Za-z_-]+=")
_DAYS: Final = {"d": 1.0, "h": 1 / 24, "w": 7.0}
_SPAN: Final = re.compile("([1-9][0-9]{0,4})([dhw])")


@attrs.frozen
class TokenLine:
    """What a line says: the SHA-256 of the token, and the caller that it stands for."""

    digest: bytes = attrs.field(repr=False)
    caller: Caller
    is_hashed: bool = False
    """Whether the token itself is not in the file."""

    def __str__(self) -> str:
        """The line to write, with the digest."""
        caller = self.caller
        words = [caller.principal, HASHED + self.digest.hex(), *sorted(caller.scopes)]
        if caller.tenant:
            words.append(f"tenant={caller.tenant}")
        if caller.expires is not None:
            words.append(f"expires={write_time(caller.expires)}")
        return " ".join(words)


def read_line(line: str) -> TokenLine | None:
    """None for a blank line and a comment. Raises ValueError, which never has the token in it."""
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    if len(words) < 2:
        raise ValueError("expected a principal and a token, separated by a space")
    principal, token, *more = words
    digest = _read_digest(token)
    return TokenLine(digest, _read_caller(principal, more), token.startswith(HASHED))


def _read_digest(token: str) -> bytes:
    if token.startswith(HASHED):
        if not _HEX.fullmatch(written := token.removeprefix(HASHED).lower()):
            raise ValueError(f"expected 64 hexadecimal digits after {HASHED}")
        return bytes.fromhex(written)
    if len(token) < MIN_TOKEN:
        raise ValueError(f"the token is shorter than {MIN_TOKEN} characters")
    return token_digest(token)


def _read_caller(principal: str, words: Sequence[str]) -> Caller:
    if principal == ANYBODY:
        raise ValueError(f"the principal {ANYBODY} is reserved for clients without a token")
    given: dict[str, str] = {}
    scopes: list[str] = []
    for word in words:
        if not _OPTION.match(word):
            scopes.append(_checked_scope(word))
            continue
        name, _, value = word.partition("=")
        # A scope could have the sign, too. But a mistyped `expires=` must not pass for one: the token would never end.
        if name not in ("tenant", "expires"):
            raise ValueError(f"unknown option {name[:32]}=: there are tenant= and expires=")
        if name in given or not value:
            raise ValueError(f"expected {name}= once, with a value")
        given[name] = value
    expires = read_time(given["expires"]) if "expires" in given else None
    return Caller(principal=principal, tenant=given.get("tenant", ""), scopes=scopes, expires=expires)


def _checked_scope(word: str) -> str:
    if not _SCOPE.fullmatch(word):
        raise ValueError("a scope has printable ASCII characters without quotes and backslashes, at most 256")
    return word


def new_line(
    principal: str, scopes: Sequence[str] = (), tenant: str = "", expires: float | None = None
) -> tuple[str, TokenLine]:
    """A new token, and its line. Raises ValueError."""
    if any(word.split() != [word] for word in (principal, *scopes, tenant or "-")) or principal.startswith("#"):
        raise ValueError("principals, tenants and scopes have no spaces, and a principal does not begin with #")
    token = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    caller = Caller(principal=principal, tenant=tenant, scopes=scopes, expires=expires)
    made = read_line(str(TokenLine(token_digest(token), caller)))
    if made is None or made.caller.scopes != caller.scopes:  # which the file would take for an option
        raise ValueError("scopes do not begin with tenant= or expires=")
    return token, made


def token_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_time(written: str) -> float:
    """A day (its begin) or a time, in ISO 8601; without a zone it is UTC. Raises ValueError."""
    try:
        found = datetime.fromisoformat(written)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("expires: expected a day or a time such as 2027-01-01 or 2027-01-01T12:00Z") from None


def time_after(written: str, now: float) -> float:
    """A span (`90d`, `12h`, `4w`) from *now* on, or a time. Raises ValueError."""
    if span := _SPAN.fullmatch(written):
        days = timedelta(days=int(span[1]) * _DAYS[span[2]])
        return float(round(now + days.total_seconds()))
    return read_time(written)


def write_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
