"""Answers of one turn, written together.

A server that is busy reads many requests in one turn of the event loop. Written one by one, each answer wakes a client
which then finds nothing more to read and sleeps again; that costs more than the answer. So whole answers wait until the
turn is over, which is when their connections could do no more anyway, and go out in one breath. All but the first: one
is alone need not wait.
"""

from contextlib import suppress
from typing import Never

import attrs

from callboard.actors.end_of_turn import EndOfTurn
from callboard.errors import SupervisorClosed
from callboard.supervisor import Actor, Fact
from callboard.transports.wire import MAX_HELD, SocketWire


@attrs.define(eq=False)
class WriteBatch(Actor[Never]):
    """Holds the wires that have something to write, until the turn is over."""

    mailbox = None

    _wires: dict[SocketWire, None] = attrs.field(factory=dict, init=False)
    _unsent: int = attrs.field(default=0, init=False)
    _turn: EndOfTurn = attrs.field(init=False)
    turns: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._turn = EndOfTurn(self._flush)

    def put(self, wire: SocketWire, data: bytes) -> bool:
        """Write *data* when the turn is over. False if it must be written otherwise."""
        if not self._turn.is_near() or len(data) > MAX_HELD or not wire.hold(data):
            return False
        self._wires[wire] = None
        return True

    def finish(self, wire: SocketWire) -> None:
        """Have what *wire* holds written when the socket takes it."""
        self._unsent += 1
        with suppress(SupervisorClosed):  # the end has begun: the next writer finishes it, or no one does
            self.supervisor.spawn(Unsent(wire), name=f"rest-{self._unsent}")

    async def run(self) -> None:
        try:
            await self._turn.run()
        finally:
            self._flush()

    def _flush(self) -> bool:
        wires, self._wires = self._wires, {}
        self.turns += 1
        for wire in wires:
            if not wire.flush():
                self.finish(wire)
        return bool(wires)

    def facts(self) -> dict[str, Fact]:
        return {"turns": self.turns}


@attrs.define(eq=False)
class Unsent(Actor[Never]):
    """Writes what a socket could not take at once."""

    mailbox = None

    wire: SocketWire

    async def run(self) -> None:
        await self.wire.finish()
