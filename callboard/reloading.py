"""Keeps a broker to its file: when that changes, or a SIGHUP says so, the broker goes on with what it says now."""

from pathlib import Path
from typing import TYPE_CHECKING, Never

import attrs

from callboard.configuration import BadConfiguration, Configuration, difference, read_configuration
from callboard.configuration.watching import watching
from callboard.errors import CannotConnect, CannotServe
from callboard.supervisor import Actor, Fact, get_logger

if TYPE_CHECKING:
    from callboard.broker import Broker

log = get_logger("callboard.broker")


@attrs.define(eq=False)
class Reloading(Actor[Never]):
    """Reads the file anew. One that is wrong changes nothing: its mistakes are logged, and the broker goes on."""

    mailbox = None

    broker: "Broker"
    current: Configuration
    reloaded: int = attrs.field(default=0, init=False)

    @property
    def file(self) -> Path:
        return self.current.file

    async def run(self) -> None:
        with watching(self.file) as watcher:
            await self._read_anew()  # it may have changed since it was read first
            async for why in watcher:
                log.info("configuration_read_anew", file=str(self.file), why=why.value)
                await self._read_anew()

    async def _read_anew(self) -> None:
        try:
            found = read_configuration(self.file)
        except BadConfiguration as error:
            log.warning("configuration_refused", file=str(self.file), mistakes=[str(one) for one in error.mistakes])
            return
        except CannotServe as error:
            log.warning("configuration_refused", file=str(self.file), mistakes=[str(error)])
            return
        changes = difference(self.current, found)
        if not changes:
            self.current = found
            return
        log.info(
            "configuration_changed",
            added=[spec.name for spec in changes.added],
            removed=[spec.name for spec in changes.removed],
            changed=[spec.name for spec in changes.changed],
        )
        try:
            await self.broker.reload(found.backends)
        except (CannotServe, CannotConnect) as error:
            log.warning("configuration_refused", file=str(self.file), mistakes=[str(error)])
            return
        self.current = found
        self.reloaded += 1

    def facts(self) -> dict[str, Fact]:
        return {"file": str(self.file), "reloaded": self.reloaded}
