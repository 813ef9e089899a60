"""Stores for clients and tokens: in memory, in files that only their owner can read, or in the system's keyring."""

import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, TypeVar, TypeVarTuple, Unpack, cast

import attrs
import msgspec
import trio

from callboard.codecs.oauth.discovery import canonical
from callboard.errors import NotAuthorized

MAX_KEPT: Final = 256 * 1024
"""Largest thing that is read back, in bytes."""

KEEP_TIME: Final = 5.0
"""Seconds that a store gets to keep or forget something although the task that wants it is cancelled."""

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Store(Protocol):
    """Keeps small secrets by name, from one run to the next if it can. Raises `NotAuthorized` if it cannot be used."""

    async def load(self, name: str) -> bytes | None:
        """The value under *name*."""

    async def save(self, name: str, value: bytes) -> None:
        """Keep *value*, all of it or, if this is cut off, what was there before."""

    async def drop(self, name: str) -> None:
        """Forget what is kept under *name*, if anything is."""


@attrs.define(repr=False)
class MemoryStore:
    """Keeps for as long as the process lives."""

    _kept: dict[str, bytes] = attrs.field(factory=dict, init=False)

    async def load(self, name: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return self._kept.get(name)

    async def save(self, name: str, value: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._kept[name] = value

    async def drop(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self._kept.pop(name, None)


@attrs.frozen
class FileStore:
    """Keeps in a folder of its own, a file for each name, which only the owner may read.

    A file is replaced as a whole. Several processes may share a folder.
    """

    folder: Path = attrs.field(converter=Path)

    @classmethod
    def at_home(cls) -> "FileStore":
        """In the user's own folder for data."""
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        return cls(Path(base).expanduser() / "callboard" / "credentials")

    async def load(self, name: str) -> bytes | None:
        return await in_thread(_read_file, self.path(name))

    async def save(self, name: str, value: bytes) -> None:
        await in_thread(_write_file, self.path(name), value)

    async def drop(self, name: str) -> None:
        await in_thread(_remove_file, self.path(name))

    def path(self, name: str) -> Path:
        """The file for *name*."""
        return self.folder / f"{hashlib.sha256(name.encode()).hexdigest()}.json"


def tokens_of(url: str) -> str:
    """The name under which the tokens for the server at *url* are kept."""
    return f"tokens for {canonical(url)}"


class Keyring(Protocol):
    """The part of the `keyring` package that is used."""

    def get_password(self, service_name: str, username: str) -> str | None: ...
    def set_password(self, service_name: str, username: str, password: str) -> None: ...
    def delete_password(self, service_name: str, username: str) -> None: ...


def _system_keyring() -> Keyring:
    try:
        return cast("Keyring", import_module("keyring"))
    except ImportError:
        raise NotAuthorized("keyring is not installed: pip install 'callboard[keyring]'") from None


@attrs.frozen
class KeyringStore:
    """Keeps in the keyring of the system. Needs the extra `keyring`."""

    service: str = "callboard"
    keyring: Keyring = attrs.field(factory=_system_keyring, repr=False)

    async def load(self, name: str) -> bytes | None:
        kept = await in_thread(self._do, self.keyring.get_password, self.service, name)
        return None if kept is None else str(kept).encode()

    async def save(self, name: str, value: bytes) -> None:
        await in_thread(self._do, self.keyring.set_password, self.service, name, value.decode())

    async def drop(self, name: str) -> None:
        if await self.load(name) is not None:
            await in_thread(self._do, self.keyring.delete_password, self.service, name)

    def _do(self, action: Callable[..., object], *arguments: str) -> object:
        try:
            return action(*arguments)
        except self._failures as error:
            raise NotAuthorized(f"the keyring cannot be used: {type(error).__name__}") from None

    @property
    def _failures(self) -> tuple[type[Exception], ...]:
        """The exceptions of the package; it is an optional dependency."""
        kind = getattr(getattr(self.keyring, "errors", None), "KeyringError", None)
        return (OSError,) if kind is None else (OSError, kind)


async def recall(store: Store, name: str, kind: type[T]) -> T | None:
    """The value under *name*; None also if it can no longer be read."""
    kept = await store.load(name)
    if kept is None:
        return None
    try:
        return msgspec.json.decode(kept, type=kind)
    except msgspec.MsgspecError:
        return None  # written by another version: it is had anew


async def keep(store: Store, name: str, value: object) -> None:
    await store.save(name, msgspec.json.encode(value))


async def in_thread(act: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """Run *act* in a thread, which a caller that is cancelled leaves behind: a disk or a keyring may hang."""
    return await trio.to_thread.run_sync(act, *args, abandon_on_cancel=True)


def _read_file(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotAuthorized(f"{path}: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        if os.name == "posix" and stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
            raise NotAuthorized(f"{path}: readable by other users; delete it, or chmod 600")
        return file.read(MAX_KEPT)


def _write_file(path: Path, value: bytes) -> None:
    beside = path.with_suffix(f".{secrets.token_hex(8)}")
    try:
        make_folder(path.parent)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(handle)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise NotAuthorized(f"{path}: {error.strerror}") from None


def make_folder(folder: Path) -> None:
    """With those above it, for the owner alone; `mkdir` would let others into what it makes on the way."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _remove_file(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise NotAuthorized(f"{path}: {error.strerror}") from None
