"""Approved definitions of tools and skills: stored in a file beside the configuration, shared with `callboard approve`.

The first list of tools that a pinned server gives is taken as it is, and so is its first list of skills. From then on a
tool or skill that is another, or new, waits until the operator approves of it. A skill is known by its URI at its
server, in the place of a name.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Never, Self

import attrs
import msgspec
import trio

from callboard.actors.broker.broker import Approved
from callboard.codecs.bridge.pinned_skill import is_skill
from callboard.config.files import read_file
from callboard.config.watch import Stamp, look
from callboard.errors import CannotServe
from callboard.supervisor import Actor, Address, Fact, get_logger
from callboard.supervisor.audit import note

log = get_logger("callboard.broker")

SUFFIX: Final = ".pins.json"
LOCK: Final = ".lock"
VERSION: Final = 1

NOTHING: Final = "none"
"""Stands for the digest of what was never approved: a tool or skill that is new."""

POLL: Final = 1.0
"""Seconds between two looks at the file, and between two writes: so soon an approval is noticed."""

MAX_FILE: Final = 16 * 1024 * 1024
"""Largest file of pins that is read, in bytes: some eighty thousand tools."""

MAX_SERVER: Final = 4 * 1024 * 1024
"""Bytes in it of one server: what is new beyond that is withheld, and cannot be approved. Names that were listed once
are never forgotten, and a server must not make the file too large to be read."""

PIN_SIZE: Final = 200
"""Bytes of one pin beside its name, as it is written."""

PATIENCE: Final = 2.0
"""Seconds that the operator's approval waits for a broker that writes."""


@attrs.frozen
class Pin:
    """One tool or skill: the digest that was approved, and the one that waits for it. None: there is none."""

    pinned: str | None = None
    found: str | None = None


@attrs.frozen(kw_only=True)
class Waiting:
    """A definition that waits for approval."""

    server: str
    tool: str
    """The name of the tool, or the URI of the skill."""
    pinned: str
    found: str

    @property
    def subject(self) -> str:
        """What an operator approves of: this definition, and none that takes its place meanwhile."""
        return f"{self.server}/{self.tool}/{self.found}"


class _File(msgspec.Struct):
    """Contents of the file."""

    servers: dict[str, dict[str, Pin]]
    version: int = VERSION


@attrs.define(eq=False)
class Pins:
    """The pins of one configuration. What others wrote into the file wins over what was known before."""

    file: Path
    _servers: dict[str, dict[str, Pin]] = attrs.field(factory=dict, init=False)
    _unkept: set[tuple[str, str]] = attrs.field(factory=set, init=False)
    _seen: Stamp | None = attrs.field(default=None, init=False)

    @classmethod
    def beside(cls, configuration: Path) -> Self:
        """The pins for the servers of *configuration*. Raises `CannotServe` for an invalid file."""
        pins = cls(configuration.with_name(configuration.name + SUFFIX))
        pins._seen = look(pins.file)
        pins._servers = _read(pins.file)
        return pins

    def approve(self, server: str, digests: Mapping[str, str]) -> Mapping[str, str]:
        """The tools to withhold, with the digests that were approved instead of theirs."""
        return self._approve(server, digests, are_skills=False)

    def approve_skills(self, server: str, digests: Mapping[str, str]) -> Mapping[str, str]:
        """The same of skills, by their URIs."""
        return self._approve(server, digests, are_skills=True)

    def _approve(self, server: str, digests: Mapping[str, str], *, are_skills: bool) -> Mapping[str, str]:
        if not digests:
            return {}
        is_first = not self._has_any(server, are_skills=are_skills)
        pins = self._servers.setdefault(server, {})
        if is_first:
            log.info("definitions_pinned", backend=server, **{"skills" if are_skills else "tools": len(digests)})
        room = MAX_SERVER - sum(PIN_SIZE + len(name) for name in pins)
        withheld: dict[str, str] = {}
        for tool, digest in digests.items():
            before = pins.get(tool)
            room -= PIN_SIZE + len(tool) if before is None else 0
            has_room = before is not None or room >= 0
            if not has_room or is_skill(tool) is not are_skills:  # a tool with the name of a skill is neither
                withheld[tool] = NOTHING
                continue
            after = Pin(digest) if is_first else _found(before or Pin(), digest)
            if after != before:
                pins[tool] = after
                self._unkept.add((server, tool))
            if after.found is not None:
                withheld[tool] = after.pinned or NOTHING
                if after != before:
                    facts = {"skill" if are_skills else "tool": tool, "pinned": withheld[tool], "found": after.found}
                    log.warning("definition_changed", backend=server, **facts)
                    note("definition_changed", server=server, name=tool, pinned=withheld[tool], found=after.found)
        return withheld

    def has_skills(self, server: str) -> bool:
        """Whether skills of a server are pinned."""
        return self._has_any(server, are_skills=True)

    def _has_any(self, server: str, *, are_skills: bool) -> bool:
        return any(is_skill(name) is are_skills for name in self._servers.get(server, ()))

    def waiting(self, server: str | None = None, tool: str | None = None) -> list[Waiting]:
        """Tools and skills that wait for approval: all, those of one server, or one."""
        return [
            Waiting(server=owner, tool=name, pinned=pin.pinned or NOTHING, found=pin.found)
            for owner, pins in self._servers.items()
            for name, pin in pins.items()
            if pin.found is not None and server in (None, owner) and tool in (None, name)
        ]

    def known(self) -> Mapping[str, Mapping[str, Pin]]:
        """All of them, by server and name."""
        return self._servers

    def settle(self, waiting: Waiting) -> None:
        """The operator approves."""
        self._servers[waiting.server][waiting.tool] = Pin(waiting.found)
        self._unkept.add((waiting.server, waiting.tool))

    def save(self, *, are_ours: bool = False, patience: float = 0.0) -> None:
        """Put what is new into the file; what was approved there meanwhile stays, unless the approvals *are ours*.

        Raises OSError, also if another process writes for longer than *patience*, and `CannotServe`.
        """
        with self._saving() as saving:
            saving.run(are_ours=are_ours, patience=patience)

    async def save_aside(self) -> None:
        """As `save`, in a thread: disks can be slow. Abandoned if it is cancelled; then nothing counts as kept."""
        with self._saving() as saving:
            await trio.to_thread.run_sync(saving.run, abandon_on_cancel=True)

    async def approve_aside(self, waiting: Waiting) -> None:
        """The operator approves, of this one alone. Written in a thread; it is noticed as the approval of another
        process is. Raises OSError, and `CannotServe`."""
        saving = _Saving(self.file, {(waiting.server, waiting.tool): Pin(waiting.found)})
        await trio.to_thread.run_sync(partial(saving.run, are_ours=True, patience=PATIENCE), abandon_on_cancel=True)

    @contextmanager
    def _saving(self) -> "Iterator[_Saving]":
        unkept, self._unkept = self._unkept, set()
        saving = _Saving(self.file, {(server, tool): self._servers[server][tool] for server, tool in unkept})
        try:
            yield saving
        finally:
            if saving.seen is None:
                self._unkept |= unkept
            elif saving.kept == self._servers:  # else it is read anew: a tool was approved meanwhile
                self._seen = saving.seen

    def look_again(self) -> bool:
        """Read the file if another process wrote it. True if that changes anything. One that is gone is written anew:
        removing a file that a broker holds on to must not approve of everything. Raises `CannotServe`."""
        now = self._news()
        return now is not None and self._take(now, _read(self.file))

    async def look_aside(self) -> bool:
        """As `look_again`, where the file is read in a thread."""
        now = self._news()
        if now is None:
            return False
        return self._take(now, await trio.to_thread.run_sync(_read, self.file, abandon_on_cancel=True))

    def _news(self) -> Stamp | None:
        """How the file is now, if another process wrote it since it was read or written here."""
        now = look(self.file)
        if now is None and self._seen is not None:
            self._seen = None
            self._unkept |= {(server, tool) for server, pins in self._servers.items() for tool in pins}
        return None if now == self._seen else now

    def _take(self, now: Stamp, servers: dict[str, dict[str, Pin]]) -> bool:
        self._seen = now  # not before it was read: one that cannot be is looked at again
        before, self._servers = self._servers, servers
        for server, tool in self._unkept:  # not written yet, and not forgotten either
            servers.setdefault(server, {}).setdefault(tool, before[server][tool])
        return before != servers

    @property
    def has_unkept(self) -> bool:
        return bool(self._unkept)


@attrs.define(eq=False)
class _Saving:
    """One attempt to write the file: also in a thread, so it has all that it needs."""

    file: Path
    new: Mapping[tuple[str, str], Pin]
    kept: dict[str, dict[str, Pin]] = attrs.field(factory=dict, init=False)
    """The new contents of the file."""
    seen: Stamp | None = attrs.field(default=None, init=False)

    def run(self, *, are_ours: bool = False, patience: float = 0.0) -> None:
        """Raises OSError and `CannotServe`."""
        with _alone(self.file.with_name(self.file.name + LOCK), patience):
            kept = _read(self.file)
            for (server, tool), ours in self.new.items():
                theirs = kept.get(server, {}).get(tool)
                is_theirs = theirs is not None and theirs.pinned is not None and not are_ours
                kept.setdefault(server, {})[tool] = _found(theirs, ours.found or ours.pinned) if is_theirs else ours
            _write(self.file, msgspec.json.format(msgspec.json.encode(_File(kept)), indent=1))
            self.kept, self.seen = kept, look(self.file)


@attrs.define(eq=False)
class Pinning(Actor[Never]):
    """Keeps pins in their file, and has a broker look again when the operator approved of something."""

    mailbox = None

    pins: Pins
    broker: Address[Approved]

    async def run(self) -> None:
        async with self.cancel_on_stop():
            try:
                while True:
                    await self._keep()
                    await self._look()
                    await trio.sleep(POLL)
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE):
                    await self._keep()

    def facts(self) -> dict[str, Fact]:
        return {"file": str(self.pins.file), "waiting": len(self.pins.waiting())}

    async def _keep(self) -> None:
        if not self.pins.has_unkept:
            return
        try:
            await self.pins.save_aside()
        except (OSError, CannotServe) as error:
            log.warning("pins_not_saved", file=str(self.pins.file), reason=str(error)[:200])
        else:
            log.info("pins_saved", file=str(self.pins.file), waiting=len(self.pins.waiting()))

    async def _look(self) -> None:
        try:
            if await self.pins.look_aside():
                log.info("pins_reloaded", file=str(self.pins.file), waiting=len(self.pins.waiting()))
                note("definition_approved", reason="pins file", waiting=len(self.pins.waiting()))
                self.broker.send_nowait(Approved())
        except CannotServe as error:
            log.warning("pins_rejected", reason=str(error)[:200])


def _found(pin: Pin | None, digest: str | None) -> Pin:
    """The pin of a tool that is like that now."""
    pinned = None if pin is None else pin.pinned
    return Pin(pinned, None if digest == pinned else digest)


def _read(file: Path) -> dict[str, dict[str, Pin]]:
    """Raises `CannotServe`: a file that cannot be read must not approve of everything."""
    try:
        data = read_file(file, MAX_FILE, is_running=True).data
        if len(data) > MAX_FILE:
            raise CannotServe(f"{file}: is larger than {MAX_FILE} bytes")
        found = msgspec.json.decode(data, type=_File)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CannotServe(f"{file}: {error.strerror or error}") from None
    except msgspec.MsgspecError as error:
        raise CannotServe(f"{file}: not a valid pins file: {error}") from None
    if found.version != VERSION:
        raise CannotServe(f"{file}: was written by another version of callboard")
    return found.servers


def _write(file: Path, data: bytes) -> None:
    """All of it, or nothing. Raises OSError."""
    beside = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data + b"\n")
            opened.flush()
            os.fsync(handle)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _alone(lock: Path, patience: float) -> Iterator[None]:
    """Exclude other writers. POSIX has locks; elsewhere the later of two writers wins. Raises OSError."""
    if os.name != "posix":
        yield
        return
    import fcntl

    handle = _open_lock(lock)
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                break
        yield
    finally:
        os.close(handle)


def _open_lock(lock: Path) -> int:
    """A file that only its owner can open, and so lock: a user that may read a file may lock it, for ever. One
    that another user has put there is replaced. Raises OSError."""
    for _ in range(2):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and (found.st_uid == os.geteuid() or os.geteuid() == 0):
            os.fchmod(handle, 0o600)
            return handle
        os.close(handle)
        lock.unlink()
    raise PermissionError(errno.EPERM, "the lock belongs to another user", str(lock))
