"""Signed statements of peers (RFC 7515, 7519): each is read once, strictly, and has one spelling.

What is looked at before the signature, and what is believed after it, is the same object: there is no second reading
that could find something else. JSON with a member twice, base64 with other bits than it needs, and numbers that are
none are refused.
"""

import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

import attrs
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

MAX_TOKEN: Final = 16 * 1024
"""Longest token, in bytes: what a whole HTTP header may have."""

MAX_NESTING: Final = 16
"""Deepest nesting of a header or of claims. Rules look two levels deep."""

MAX_SIGNATURE: Final = 1024
"""Largest signature, in bytes: that of RSA with 8192 bits."""

KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("EdDSA", "Ed25519"), "OKP"),
    **dict.fromkeys(("HS256", "HS384", "HS512"), "oct"),
}
"""The kind of key that each algorithm needs. There is no other, and not `none`."""

CURVES: Final[Mapping[str, str]] = {
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
    "Ed25519": "Ed25519",
}

PublicKey: TypeAlias = RSAKey | ECKey | OKPKey | OctKey


_END_OF_TIME: Final = 1e12
"""Some 30,000 years on: a larger number is not one of seconds."""


class NotSigned(Exception):
    """The text is no signed statement. Its message says why, and has nothing of the text in it."""


@attrs.frozen
class SignedStatement:
    """A statement, before its signature was checked: nothing in it is to be believed."""

    header: Mapping[str, Any] = attrs.field(repr=False)
    claims: Mapping[str, Any] = attrs.field(repr=False)
    signed: bytes = attrs.field(repr=False)
    signature: bytes = attrs.field(repr=False)

    @property
    def algorithm(self) -> str:
        return str(self.header["alg"])

    @property
    def key_id(self) -> str | None:
        kid = self.header.get("kid")
        return kid if isinstance(kid, str) else None

    def is_by(self, key: PublicKey) -> bool:
        """Whether *key* made the signature. A key of another kind than the algorithm needs never did."""
        if not fits(key, self.algorithm):
            return False
        try:
            # Not by `get_alg`: that warns of names that are about to be replaced, at each signature.
            return JWSRegistry.algorithms[self.algorithm].verify(self.signed, self.signature, key)
        except (JoseError, ValueError, TypeError):  # such as a signature of the wrong length
            return False


def fits(key: PublicKey, algorithm: str) -> bool:
    """Whether *key* is of the kind and on the curve that *algorithm* needs."""
    if KINDS.get(algorithm) != key.key_type:
        return False
    return not isinstance(key, ECKey | OKPKey) or key.curve_name == CURVES[algorithm]


def read_signed(text: str) -> SignedStatement:
    """Raises `NotSigned`."""
    if len(text) > MAX_TOKEN:
        raise NotSigned("too long")
    parts = text.split(".", 3)
    if len(parts) != 3:
        raise NotSigned("not three parts")
    header, claims = read_object(_bytes(parts[0])), read_object(_bytes(parts[1]))
    signature = _bytes(parts[2])
    if not signature or len(signature) > MAX_SIGNATURE:
        raise NotSigned("no signature, or too long a one")
    if not isinstance(header.get("alg"), str) or header["alg"] not in KINDS:
        raise NotSigned("unsupported algorithm")
    if "crit" in header or "b64" in header:
        raise NotSigned("a header that must be understood")
    if not isinstance(header.get("kid", ""), str) or not isinstance(header.get("typ", ""), str):
        raise NotSigned("a header that is no string")
    return SignedStatement(header, claims, text[: -len(parts[2]) - 1].encode("ascii"), signature)


def thumbprint(data: bytes) -> str:
    """As it stands in claims: base64 for URLs, without its end."""
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def moment(claims: Mapping[str, Any], name: str) -> float | None:
    """A time, in seconds since 1970; None if there is none. Raises `NotSigned`."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _END_OF_TIME:
        raise NotSigned(f"{name} is no time")
    return float(value)


def _bytes(part: str) -> bytes:
    try:
        raw = part.encode("ascii")
        data = urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
    except ValueError:
        raise NotSigned("not base64") from None
    if urlsafe_b64encode(data).rstrip(b"=") != raw:  # characters that decoders skip, or unused bits
        raise NotSigned("not base64")
    return data


def read_object(data: bytes) -> dict[str, Any]:
    """A JSON object with nothing odd in it. Raises `NotSigned`."""
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_members, parse_constant=_refuse, parse_float=_finite
        )
        is_flat = _is_flat(value, MAX_NESTING)
        if b"\\u" in data and is_flat:  # an escaped half of a surrogate pair cannot be encoded again
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise NotSigned("not JSON, or a member twice") from None
    if not isinstance(value, dict) or not is_flat:
        raise NotSigned("not an object, or nested too deeply")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member twice")
    return members


def _refuse(_: str) -> NoReturn:
    raise ValueError("not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("too large a number")
    return value


def _is_flat(value: object, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_flat(each, depth - 1) for each in inner if isinstance(each, dict | list))
