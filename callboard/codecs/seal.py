"""Sealing: bytes that travel through a peer's hands and come back unread and unchanged.

AES-256-GCM under a ring of keys. What both ends know anyway (whose it is, what it is for) is *context*: it is
authenticated and not carried, so a seal opened in any other context fails exactly as a forged one does.
"""

import base64
import binascii
import hashlib
import os
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import attrs

from callboard.errors import FrameTooLarge

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAX_SEALED: Final = 64 * 1024
"""Longest sealed text, in characters. A client sends it back as it is; more is refused before any work."""

Nonce: TypeAlias = Callable[[int], bytes]
"""Source of nonces: `os.urandom`, unless a test needs the same text twice."""

_FORMAT: Final = b"\x01"
_KEY_SIZE: Final = 32
_ID_SIZE: Final = 4
_NONCE_SIZE: Final = 12
_HEAD_SIZE: Final = len(_FORMAT) + _ID_SIZE + _NONCE_SIZE
_EXPIRY: Final = struct.Struct(">d")


@attrs.frozen(repr=False, eq=False)
class SealKey:
    """One AES-256 key. Its id is derived from it, so nodes that share the secret agree on the id.

    Nonces are random: replace a key well before it has sealed 2**32 values (NIST SP 800-38D, 8.3).
    """

    id: bytes
    aead: "AESGCM"

    @classmethod
    def from_bytes(cls, secret: bytes) -> Self:
        """Raises ValueError unless *secret* is 32 bytes."""
        if len(secret) != _KEY_SIZE:
            raise ValueError(f"a sealing key must be {_KEY_SIZE} bytes")
        from cryptography.hazmat.primitives.ciphers.aead import (
            AESGCM,  # 7 MiB, which the parent of workers does without
        )

        return cls(hashlib.blake2s(secret, digest_size=_ID_SIZE, person=b"cb-keyid").digest(), AESGCM(secret))

    def __repr__(self) -> str:
        return f"<Key {self.id.hex()}>"


@attrs.frozen(eq=False)
class KeyRing:
    """The keys in use, newest first: the first seals, all of them open."""

    keys: tuple[SealKey, ...]

    @classmethod
    def from_bytes(cls, *secrets: bytes) -> Self:
        """Raises ValueError for no secret, one of the wrong size, or the same one twice."""
        keys = tuple(SealKey.from_bytes(secret) for secret in secrets)
        if not keys or len({key.id for key in keys}) != len(keys):
            raise ValueError("a key ring needs at least one key, and each only once")
        return cls(keys)

    @classmethod
    def generate(cls) -> Self:
        """A ring of one fresh key, for a broker that shares its seals with no other."""
        return cls.from_bytes(new_secret())

    def rotated(self, secret: bytes | None = None, *, keep: int = 2) -> "KeyRing":
        """Return a ring that seals with a new key and still opens what the last *keep* older ones sealed."""
        fresh = SealKey.from_bytes(os.urandom(_KEY_SIZE) if secret is None else secret)
        older = [key for key in self.keys if key.id != fresh.id]
        return KeyRing((fresh, *older[:keep]))

    def find(self, key_id: bytes) -> SealKey | None:
        """Return the key of that id."""
        return next((key for key in self.keys if key.id == key_id), None)


def new_secret() -> bytes:
    """A fresh key."""
    return os.urandom(_KEY_SIZE)


@attrs.frozen
class Opened:
    """Contents of a seal. `serial` is unique to the sealing: a second use is recognized by it."""

    payload: bytes = attrs.field(repr=False)
    expires: float
    serial: bytes


@attrs.frozen
class Seal:
    """One purpose of a key ring: what is sealed for one never opens for another."""

    ring: KeyRing
    purpose: str

    def close(self, payload: bytes, context: Iterable[bytes], *, expires: float, nonce: Nonce = os.urandom) -> str:
        """Return *payload* as text for this context. Raises FrameTooLarge if it would not be opened again."""
        key = self.ring.keys[0]
        head = _FORMAT + key.id + nonce(_NONCE_SIZE)
        bound = self._bound(head, context)
        sealed = head + key.aead.encrypt(head[-_NONCE_SIZE:], _EXPIRY.pack(expires) + payload, bound)
        text = base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()
        if len(text) > MAX_SEALED:
            raise FrameTooLarge("sealed text", limit=MAX_SEALED)
        return text

    def open(self, text: str, context: Iterable[bytes], *, now: float) -> Opened | None:
        """Return what *text* holds, or None if it is forged, torn, expired, or not of this context and ring."""
        sealed = _from_text(text)
        head, body = sealed[:_HEAD_SIZE], sealed[_HEAD_SIZE:]
        key = self.ring.find(head[1 : 1 + _ID_SIZE])
        if key is None or len(head) < _HEAD_SIZE or not head.startswith(_FORMAT):
            return None
        try:
            plain = key.aead.decrypt(head[-_NONCE_SIZE:], body, self._bound(head, context))
        except _invalid_tag():
            return None
        (expires,) = _EXPIRY.unpack_from(plain)
        return Opened(plain[_EXPIRY.size :], expires, head[-_NONCE_SIZE:]) if now < expires else None

    def _bound(self, head: bytes, context: Iterable[bytes]) -> bytes:
        return joined((self.purpose.encode(), head, *context))


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag


def joined(parts: Iterable[bytes]) -> bytes:
    """Join *parts* so that no two lists of them share a spelling."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _from_text(text: str) -> bytes:
    """Decode base64url without padding, one spelling per value; b"" for anything else."""
    if len(text) > MAX_SEALED:
        return b""
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
    # Spare bits of the last character would give one value several texts, and a used-set several chances.
    return sealed if base64.urlsafe_b64encode(sealed).rstrip(b"=").decode() == text else b""
