"""`callboard check --start`: every server of a file, started as `callboard serve` would, and stopped again."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from callboard.actors.rules import AccessRules
from callboard.actors.unused_rules import UnusedPattern
from callboard.supervisor.logs import LEVEL_VARIABLE

if TYPE_CHECKING:
    from callboard.server.served import BackendStatus

START_TIME: Final = 30.0
"""Seconds that the servers have to come up: `npx` and `uvx` may have to load a package first."""


def try_servers(file: Path, rules: AccessRules | None) -> "tuple[Sequence[BackendStatus], Sequence[UnusedPattern]]":
    """Whether each server of *file* comes up, and if not, why; and which *rules* name tools that none of them has.
    Raises `CannotServe`."""
    os.environ.setdefault(LEVEL_VARIABLE, "error")  # the table says it all
    return trio.run(_try, file, rules)


async def _try(file: Path, rules: AccessRules | None) -> "tuple[Sequence[BackendStatus], Sequence[UnusedPattern]]":
    from callboard.broker.broker import Broker  # most checks start nothing

    broker = Broker.of_file(file, pre_warm=START_TIME)
    broker.pins = broker.caches = None  # a check approves nothing, keeps nothing, and starts all
    async with broker.host() as host:
        return broker.behind().servers, () if rules is None else host.unused_rules.find(rules)
