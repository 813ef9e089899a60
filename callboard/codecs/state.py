"""Sealing `requestState`: what an input round leaves with the client and must get back unchanged.

The specification calls it attacker-controlled. So it is sealed, and bound to the principal, the server,
which method with which arguments, and for how long. Every failure has one text, and none says why.

The digest of the arguments is carried inside: to work it out takes long for long arguments, and a state that is forged
is refused before that.
"""

import hashlib
import hmac
import os
import struct
from typing import Final

import attrs
from msgspec import UNSET, UnsetType

from callboard.codecs.canonical import canonical
from callboard.codecs.members import Members
from callboard.codecs.seal import KeyRing, Nonce, Seal, joined
from callboard.errors import InvalidState

STATE_TTL: Final = 600.0
"""How long a client may take for one round, in seconds: as long as a parked request waits for it."""

PURPOSE: Final = "requestState"
_HEAD: Final = struct.Struct(">IB")  # the round, and how long the digest is
_SALIENT: Final = ("name", "uri", "arguments")  # never _meta, inputResponses, requestState: a retry's differ


@attrs.frozen
class Binding:
    """Members that a retry must have in common with the request that got `input_required`."""

    principal: str
    audience: str
    method: str
    digest: bytes = b""

    def context(self) -> tuple[bytes, ...]:
        """The parts as the seal authenticates them; they are not carried in it. The digest is, and compared."""
        return tuple(map(_encoded, (self.principal, self.audience, self.method)))


@attrs.frozen
class SealedState:
    """An opened `requestState`. `serial` is unique to its sealing: where once-only matters, it is spent."""

    round: int
    payload: bytes = attrs.field(repr=False)
    expires: float
    serial: bytes
    digest: bytes = attrs.field(repr=False)

    def fits(self, digest: bytes) -> bool:
        """Whether it belongs to a request of this digest."""
        return hmac.compare_digest(self.digest, digest)


def seal(
    ring: KeyRing,
    binding: Binding,
    payload: bytes,
    *,
    round_number: int,
    now: float,
    ttl: float = STATE_TTL,
    nonce: Nonce = os.urandom,
) -> str:
    """Return the `requestState` of one round. The payload is confidential; *now* is seconds of any clock that never
    goes back.

    Raises FrameTooLarge for a payload that could not come back.
    """
    plain = _HEAD.pack(round_number, len(binding.digest)) + binding.digest + payload
    return Seal(ring, PURPOSE).close(plain, binding.context(), expires=now + ttl, nonce=nonce)


def open_(ring: KeyRing, text: str, binding: Binding, *, now: float) -> SealedState:
    """Return the state that was sealed for exactly this binding. Raises InvalidState for everything else."""
    state = open_unmatched(ring, text, binding, now=now)
    if not state.fits(binding.digest):
        raise InvalidState
    return state


def open_unmatched(ring: KeyRing, text: str, binding: Binding, *, now: float) -> SealedState:
    """As `open_`, but the digest is still to be compared: the caller works that out now. Raises InvalidState."""
    opened = Seal(ring, PURPOSE).open(text, binding.context(), now=now)
    if opened is None:
        raise InvalidState
    number, size = _HEAD.unpack_from(opened.payload)
    digest, payload = opened.payload[_HEAD.size : _HEAD.size + size], opened.payload[_HEAD.size + size :]
    return SealedState(number, payload, opened.expires, opened.serial, digest)


def salient_size(params: Members | UnsetType = UNSET) -> int:
    """How many bytes `salient_digest` goes through."""
    return 0 if isinstance(params, UnsetType) else sum(len(bytes(params[key])) for key in _SALIENT if key in params)


def salient_digest(method: str, params: Members | UnsetType = UNSET) -> bytes:
    """Digest what makes two requests the same one: the method, `name` or `uri`, and `arguments`, by value.

    Raises ParseError if one of them is ambiguous: not JSON, or a key stands twice in an object.
    """
    members = {} if isinstance(params, UnsetType) else params
    salient = {key: canonical(members[key]) for key in _SALIENT if key in members}
    parts = (_encoded(method), *(part for key, value in salient.items() for part in (key.encode(), value)))
    return hashlib.sha256(joined(parts)).digest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # what is no valid text must still bind, not crash
