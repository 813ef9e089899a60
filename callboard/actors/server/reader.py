"""Reads a connection that requests share, and runs each request in the task that read it."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Never, Protocol

import attrs

from callboard.actors.outlet import Carried, Carrier
from callboard.actors.terms import Terms
from callboard.errors import PeerError, SupervisorClosed
from callboard.supervisor import Actor, Lifetime


class Receiver(Protocol):
    """The session, as its reader needs it."""

    async def receive(self, frame: bytes | PeerError, carrier: Carrier | None) -> bool:
        """Deal with what the client says."""

    def hang_up(self) -> None:
        """The client says nothing more."""


@attrs.define(eq=False)
class Reader(Actor[Never]):
    """Reads the frames of a connection. Its end is the end of the session."""

    mailbox = None

    session: Receiver
    frames: AsyncIterable[bytes | PeerError]
    terms: Terms | None = attrs.field(default=None, init=False)
    _reading: AsyncIterator[bytes | PeerError] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reading = aiter(self.frames)

    async def run(self) -> None:
        turn = self.turn
        try:
            async for frame in self._reading:
                await self.session.receive(frame, self)
                if self.turn is not turn:
                    return  # a request waited here, and another task reads
        finally:
            if self.turn is turn:
                self.session.hang_up()

    # How it runs requests.

    def carry(self, request: Carried) -> None:
        """Another task reads on at once: other requests share the connection."""
        request.own(self.free())

    def free(self) -> Lifetime:
        try:
            return self.pass_on()
        except SupervisorClosed:  # the end has begun: nothing more is read
            return self.lifetime

    def drop(self, request: Carried) -> None:
        pass
