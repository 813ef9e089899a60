"""Tokens and certificates are read again when their files change, or at a SIGHUP: rotating them needs no restart."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Never, Protocol, runtime_checkable

import attrs
import trio

from callboard.config.watch import Watcher, Why, watching
from callboard.errors import CannotRead, CannotServe
from callboard.supervisor import Actor, Fact, get_logger
from callboard.supervisor.audit import note

log = get_logger("callboard.serving")


@runtime_checkable
class Renewable(Protocol):
    """Contents of files that an operator replaces."""

    @property
    def name(self) -> str: ...

    @property
    def files(self) -> tuple[Path, ...]: ...

    def read(self) -> Any:
        """Read the files; called in a thread. Raises `CannotServe`."""

    async def use(self, found: Any) -> Mapping[str, object]:
        """Go by it from now on; the facts for the log. Raises `CannotServe` if that cannot be: then nothing changes."""


@attrs.define(eq=False)
class Renewing(Actor[Never]):
    """Keeps one of them as its files have it. Files that are wrong change nothing: what was there goes on."""

    mailbox = None

    what: Renewable
    on_used: Callable[[], None] = attrs.field(default=lambda: None)
    renewed: int = attrs.field(default=0, init=False)
    _refused: str | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        with watching(*self.what.files) as watcher:
            if all(file.is_file() for file in self.what.files):  # they may have changed since they were read first
                await self._read_anew(watcher, None)
            async for why in watcher:
                await self._read_anew(watcher, why)

    async def _read_anew(self, watcher: Watcher, why: Why | None) -> None:
        what, files = self.what, [str(file) for file in self.what.files]
        facts: dict[str, object] = {"files": files, "why": why and why.value}
        try:
            found = await trio.to_thread.run_sync(what.read, abandon_on_cancel=True)
            changed = await what.use(found)
            self.on_used()
        except CannotServe as error:
            if isinstance(error, CannotRead):
                watcher.try_again()
            if str(error) != self._refused:  # of files that are tried again and again it is said once
                log.warning(f"{what.name}_not_reloaded", reason=str(error), **facts)
                note("configuration_reloaded", outcome="failed", name=what.name, files=", ".join(files))
            self._refused = str(error)
            return
        self._refused = None
        facts |= changed
        if why is not None or changed.get("added") or changed.get("revoked"):  # since they were read first, too
            self.renewed += 1
            log.info(f"{what.name}_reloaded", **facts)
            note("configuration_reloaded", **{**changed, "outcome": "ok", "name": what.name, "files": ", ".join(files)})

    def facts(self) -> dict[str, Fact]:
        return {"renewed": self.renewed}
