"""A look at new rules, a little later: a file that has them may have new servers as well, which are about to start."""

from contextlib import suppress
from typing import Final, Never

import attrs
import trio

from callboard.actors.server.host import Host
from callboard.errors import NameTaken
from callboard.supervisor import Actor

SETTLED: Final = 5.0
"""Seconds from new rules until the operator is told which of them name a tool that there is not."""


@attrs.define(eq=False)
class RuleCheck(Actor[Never]):
    """Warns of rules that guard nothing, once, and ends."""

    mailbox = None

    host: Host

    async def run(self) -> None:
        await trio.sleep(SETTLED)
        self.host.unused_rules.warn(self.host.rules)


def check_soon(host: Host) -> None:
    """Have the rules looked at that *host* has by then."""
    if host.rules is None or not any(rule.tools for rule in host.rules.rules):
        return
    with suppress(NameTaken):  # one that waits will see these rules
        host.root.spawn(RuleCheck(host), name="rule-check", shutdown=0)
