"""Lists of servers that are started when they are needed, kept in files of the user's own from one run to the next."""

import errno
import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio
from msgspec import Raw

from callboard.actors.broker.cached_lists import CachedLists
from callboard.actors.broker.listing import MAX_LISTS
from callboard.actors.client.negotiate import Agreed
from callboard.broker.placing import Placed
from callboard.codecs.bridge.definitions import KINDS
from callboard.codecs.json_scan import check_value
from callboard.codecs.revisions import Implementation, Revision, ServerCapabilities
from callboard.codecs.revisions.convert import read, write
from callboard.config.model import PersonalCommand
from callboard.errors import PeerError
from callboard.supervisor import get_logger
from callboard.transports.client.process import Command

log = get_logger("callboard.broker")

VERSION: Final = 1

MAX_FILE: Final = 2 * MAX_LISTS
"""Largest file that is read, in bytes: all lists of a server, and what else it says."""

MAX_CACHES: Final = 256
"""Files that are kept, of all configurations of the user. The one that was written first makes room."""


class _Said(msgspec.Struct):
    """What a server agreed to."""

    revision: str
    capabilities: Raw
    info: Raw
    instructions: str | None


class _File(msgspec.Struct):
    """Contents of a file."""

    version: int
    key: str
    said: _Said
    lists: dict[str, list[Raw]]


@attrs.frozen
class ListCaches:
    """A folder with a file for each server, which only its owner may read: lists may be confidential."""

    folder: Path

    @classmethod
    def at_home(cls) -> "ListCaches | None":
        """In the user's own folder for what can be had again; None for a user without one."""
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        try:
            base = base if base.is_absolute() else Path("~/.cache").expanduser()  # as that standard has it
        except RuntimeError:  # a container's user may have no name, and no home
            return None
        return cls(base / "callboard" / "lists")

    def of(self, name: str, placed: Placed) -> "FileCache | None":
        """The lists of one server; None if it is no program, or is started in any case."""
        target = placed.target
        if placed.settings.start != "lazy" or not isinstance(target, Command):
            return None
        key = _key(name, target, placed.settings.revision)
        return FileCache(name, self.folder / f"{key}.json", key)


@attrs.define(eq=False)
class FileCache:
    """The lists of one server, in a file. A file that is not just as this class writes it counts as none."""

    backend: str
    file: Path
    key: str
    _kept: bytes = attrs.field(default=b"", init=False)
    """Digest of what stands in the file."""
    _is_told: bool = attrs.field(default=False, init=False)

    async def load(self) -> CachedLists | None:
        try:
            return await trio.to_thread.run_sync(self._load, abandon_on_cancel=True)
        except FileNotFoundError:
            return None
        except (OSError, PeerError, msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
            why = (error.strerror or "cannot be read") if isinstance(error, OSError) else type(error).__name__
            log.warning("list_cache_ignored", backend=self.backend, file=str(self.file), reason=why)
            return None

    async def save(self, lists: CachedLists) -> None:
        try:
            await trio.to_thread.run_sync(self._save, lists, abandon_on_cancel=True)
        except (OSError, ValueError) as error:
            if not self._is_told:
                log.warning("list_cache_not_saved", backend=self.backend, file=str(self.file), reason=str(error)[:200])
            self._is_told = True

    def _load(self) -> CachedLists:
        """Raises what `load` catches."""
        data = _read(self.file)
        check_value(data)
        found = msgspec.json.decode(data, type=_File)
        if found.version != VERSION or found.key != self.key:
            raise ValueError("is of something else")
        said, revision = found.said, Revision(found.said.revision)
        info = None if bytes(said.info) == b"null" else read(revision, Implementation, said.info)
        agreed = Agreed(
            revision=revision,
            capabilities=read(revision, ServerCapabilities, said.capabilities),
            info=info,
            instructions=said.instructions,
        )
        self._kept = hashlib.sha256(data).digest()
        return CachedLists(agreed, {kind.member: tuple(map(bytes, found.lists[kind.member])) for kind in KINDS})

    def _save(self, lists: CachedLists) -> None:
        """Raises `OSError`, `ValueError`."""
        agreed = lists.agreed
        info: Any = None if agreed.info is None else write(agreed.revision, agreed.info)
        capabilities = write(agreed.revision, agreed.capabilities)
        said = {"revision": agreed.revision.value, "capabilities": capabilities, "info": info}
        said["instructions"] = agreed.instructions
        listed = {member: [Raw(data) for data in page] for member, page in lists.lists.items()}
        data = msgspec.json.encode({"version": VERSION, "key": self.key, "said": said, "lists": listed})
        if hashlib.sha256(data).digest() == self._kept:
            return
        if len(data) > MAX_FILE:
            raise ValueError(f"the lists have more than {MAX_FILE} bytes")
        _make_folder(self.file.parent)
        _write(self.file, data)
        self._kept = hashlib.sha256(data).digest()
        _prune(self.file.parent)


def _key(name: str, command: Command, revision: Revision | None) -> str:
    """Names just this server: another command, environment or folder is another one. One way only: what stands in the
    environment may be secret."""
    templates = sorted(command.templates) if isinstance(command, PersonalCommand) else []
    said = (name, command.args, sorted(command.env.items()), command.cwd, templates, revision and revision.value)
    return hashlib.sha256(msgspec.json.encode((VERSION, said))).hexdigest()


def _read(file: Path) -> bytes:
    """A regular file that is ours alone to write, and of a bounded size. Raises `OSError`, `ValueError`."""
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(file, flags)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
            raise OSError(errno.EPERM, "others may have written it")
        pieces, size = [], 0
        while size <= MAX_FILE and (piece := os.read(handle, 1024 * 1024)):
            pieces.append(piece)
            size += len(piece)
    finally:
        os.close(handle)
    data = b"".join(pieces)
    if len(data) > MAX_FILE:
        raise OSError(errno.EFBIG, f"is larger than {MAX_FILE} bytes")
    return data


def _write(file: Path, data: bytes) -> None:
    """All of it, or nothing; a link in its place is replaced. Raises `OSError`."""
    beside = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """With those above it, for the owner alone. Raises `OSError`."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _prune(folder: Path) -> None:
    """Remove what is too many. Raises `OSError`."""
    found: list[tuple[float, Path]] = []
    for path in folder.iterdir():
        try:
            found.append((path.lstat().st_mtime, path))
        except FileNotFoundError:
            continue  # another broker has pruned
    for _, path in sorted(found)[:-MAX_CACHES]:
        path.unlink(missing_ok=True)
