"""Looks after requests that take their time.

While a request waits in the task of its connection, another must listen whether the client leaves, and its time
must be bounded. Most are answered within a few milliseconds, and a client that leaves so soon is not worth a task and
two deadlines for each. So connections say here that a request waits, and are reminded of it a little later.
"""

from typing import Final, Never, Protocol

import attrs
import trio

from callboard.supervisor import Actor, Fact

SOON: Final = 0.015
"""Seconds after which a request is looked after, at the earliest. After twice that time it is, for sure."""


class Minding(Protocol):
    """A connection."""

    def mind(self, number: int) -> None:
        """Look after request *number*, if that still waits."""


@attrs.define(eq=False)
class SlowRequests(Actor[Never]):
    """Reminds connections of requests that wait."""

    mailbox = None

    reminders: int = attrs.field(default=0, init=False)
    _latest: dict[Minding, int] = attrs.field(factory=dict, init=False)  # a connection has one that waits, at most
    _before: dict[Minding, int] = attrs.field(factory=dict, init=False)
    _wanted: trio.Event = attrs.field(factory=trio.Event, init=False)

    def expect(self, connection: Minding, number: int) -> None:
        """Request *number* of a connection waits."""
        if not self._latest:
            self._wanted.set()
        self._latest[connection] = number

    async def run(self) -> None:
        while True:
            if not self._before and not self._latest:  # else an earlier incarnation has left some
                await self._wanted.wait()
            self._wanted = trio.Event()
            while self._before or self._latest:
                self._before |= self._latest
                self._latest.clear()
                await trio.sleep(SOON)
                self._remind()

    def _remind(self) -> None:
        self.reminders += 1
        while self._before:  # taken out before it is reminded: one that fails does so once
            connection, number = self._before.popitem()
            connection.mind(number)

    def facts(self) -> dict[str, Fact]:
        return {"waiting": len(self._latest)}
