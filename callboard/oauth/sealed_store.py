"""A store of encrypted values: a copy of its files is worth nothing without the key."""

import hashlib
import hmac
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
import trio

from callboard.codecs.seal import KeyRing, Seal
from callboard.errors import FrameTooLarge, NotAuthorized
from callboard.oauth.store import FileStore, MemoryStore, Store, in_thread

MAX_ENTRIES: Final = 10_000
"""Most values of one store: what users make grow has a bound. A value has 64 KiB at most, which is `MAX_SEALED`."""

_PURPOSE: Final = "upstream tokens"
_CHECK: Final = "key check"


def derived(secrets: Iterable[bytes]) -> KeyRing:
    """Keys for tokens, from those that seal what clients hold (HKDF, RFC 5869, with SHA-256): one use, one key."""
    return KeyRing.from_bytes(*(_hkdf(secret, b"callboard upstream tokens") for secret in secrets))


def _hkdf(secret: bytes, info: bytes) -> bytes:
    key = hmac.digest(bytes(hashlib.sha256().digest_size), secret, hashlib.sha256)
    return hmac.digest(key, info + b"\x01", hashlib.sha256)


@attrs.frozen
class SealedStore:
    """Keeps in a folder, a file for each name (see `FileStore`). A value opens under its own name only."""

    files: FileStore
    ring: KeyRing = attrs.field(repr=False)

    async def check(self) -> None:
        """Raises `NotAuthorized` if what is there was written with another key."""
        if await self.load(_CHECK) is None:
            await self.save(_CHECK, b"ok")

    async def load(self, name: str) -> bytes | None:
        kept = await self.files.load(name)
        if kept is None:
            return None
        opened = self._seal.open(kept.decode("ascii", "replace"), (name.encode(),), now=0.0)
        if opened is None:
            raise NotAuthorized(f"{self.files.path(name)}: cannot be decrypted: another key, or damaged")
        return opened.payload

    async def save(self, name: str, value: bytes) -> None:
        try:
            text = self._seal.close(value, (name.encode(),), expires=math.inf)
        except FrameTooLarge:
            raise NotAuthorized("too large to be kept") from None
        if await in_thread(_is_full, self.files.folder, self.files.path(name)):
            raise NotAuthorized(f"{self.files.folder}: full: it has {MAX_ENTRIES} entries")
        await self.files.save(name, text.encode("ascii"))

    async def drop(self, name: str) -> None:
        await self.files.drop(name)

    @property
    def _seal(self) -> Seal:
        return Seal(self.ring, _PURPOSE)


def _is_full(folder: Path, path: Path) -> bool:
    """Whether there is no room for a new file at *path*."""
    if path.exists() or not folder.is_dir():
        return False
    with os.scandir(folder) as found:
        return sum(1 for _ in found) >= MAX_ENTRIES


@attrs.define(repr=False)
class BoundedStore:
    """Keeps in memory, and not more than a folder may have."""

    _kept: MemoryStore = attrs.field(factory=MemoryStore, init=False)
    _names: set[str] = attrs.field(factory=set, init=False)

    async def load(self, name: str) -> bytes | None:
        return await self._kept.load(name)

    async def save(self, name: str, value: bytes) -> None:
        if name not in self._names and len(self._names) >= MAX_ENTRIES:
            await trio.lowlevel.checkpoint()
            raise NotAuthorized(f"too many tokens are kept: {MAX_ENTRIES}")
        self._names.add(name)
        await self._kept.save(name, value)

    async def drop(self, name: str) -> None:
        self._names.discard(name)
        await self._kept.drop(name)


def open_store(folder: Path | None, secrets: Iterable[bytes]) -> Store:
    """The store for the tokens of users: in memory without a *folder*."""
    return BoundedStore() if folder is None else SealedStore(FileStore(folder), derived(secrets))
