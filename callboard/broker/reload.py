"""Keeps a broker to its file: when that changes, or a SIGHUP says so, the broker goes on with what it says now."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Never, Protocol

import attrs
import trio

from callboard.config import BackendSpec, BadConfiguration, Configuration, difference, read_configuration
from callboard.config.front import FrontSettings
from callboard.config.watch import Watcher, Why, watching
from callboard.errors import AskFailed, CannotConnect, CannotRead, CannotServe
from callboard.supervisor import Actor, Fact, get_logger
from callboard.supervisor.audit import note

log = get_logger("callboard.broker")


class Reloadable(Protocol):
    """A broker that goes on with other backends, and other settings of its own."""

    async def reload(self, backends: Sequence[BackendSpec], front: FrontSettings | None = None) -> object: ...


@attrs.define(eq=False)
class Reloader(Actor[Never]):
    """Reads the file anew. One that is wrong changes nothing: its mistakes are logged, and the broker goes on."""

    mailbox = None

    broker: Reloadable
    current: Configuration
    reloaded: int = attrs.field(default=0, init=False)
    rejected: int = attrs.field(default=0, init=False)
    reloaded_at: float = attrs.field(factory=time.time, init=False)
    """When the file that is in use was read: seconds since 1970."""
    _refused: list[str] | None = attrs.field(default=None, init=False)

    @property
    def file(self) -> Path:
        return self.current.file

    async def run(self) -> None:
        with watching(self.file) as watcher:
            await self._read_anew(watcher)  # it may have changed since it was read first
            async for why in watcher:
                if await self._read_anew(watcher) and why is not Why.AGAIN:
                    log.info("config_reloaded", file=str(self.file), why=why.value)

    async def _read_anew(self, watcher: Watcher) -> bool:
        """Whether what the file says is in use now."""
        try:
            # In a thread: the file may be on a network that hangs, or a megabyte long.
            read = partial(read_configuration, self.file, is_running=True, skips_invalid=self.current.skips_invalid)
            found = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        except BadConfiguration as error:
            if isinstance(error, CannotRead):
                watcher.try_again()
            self._refuse([str(one) for one in error.mistakes])
            return False
        except CannotServe as error:
            self._refuse([str(error)])
            return False
        self._refused = None
        changes = difference(self.current, found)
        if not changes:
            self.current = found
            return True
        log.info(
            "config_changed",
            added=[spec.name for spec in changes.added],
            removed=[spec.name for spec in changes.removed],
            changed=[spec.name for spec in changes.changed],
        )
        try:
            await self.broker.reload(found.backends, found.front)
        except (CannotServe, CannotConnect) as error:
            self._refuse([str(error)])
            return False
        except AskFailed as error:  # the broker's own actor crashed over it, or is slow: some may be started, some not
            self._refuse([str(error)])
            watcher.try_again()
            return False
        self.current = found
        self.reloaded += 1
        note("configuration_reloaded", outcome="ok", name="servers", files=str(self.file))
        self.reloaded_at = time.time()
        return True

    def _refuse(self, mistakes: list[str]) -> None:
        """Say why nothing changes; of a file that is tried again and again, once."""
        if mistakes != self._refused:
            log.warning("config_rejected", file=str(self.file), mistakes=mistakes)
            note("configuration_reloaded", outcome="failed", name="servers", files=str(self.file))
            self.rejected += 1
        self._refused = mistakes

    def facts(self) -> dict[str, Fact]:
        counts = {"reloaded": self.reloaded, "rejected": self.rejected, "reloaded_at": self.reloaded_at}
        return {"file": str(self.file), **counts}
