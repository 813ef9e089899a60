"""A link over WebSocket, which outlives its socket where the server allows it (`conversation`)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Hear, OutgoingRequest
from callboard.codecs.envelope import ErrorResponse, ResultResponse
from callboard.codecs.revisions import Revision
from callboard.codecs.websocket.client import ASKING
from callboard.transports.client.websocket_resumable import ResumableLink
from callboard.transports.client.websocket_socket import Door

CLOSE_TIME: Final = 2.0
"""Seconds that a server has for its last word, once it has heard ours."""


@attrs.define(eq=False)
class WebSocketLink(DuplexLink):
    """A link over such a conversation."""

    conversation: ResumableLink = attrs.field(kw_only=True)
    _reading: trio.Event | None = attrs.field(default=None, init=False)  # set when it is over

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        if outgoing.method == "initialize":
            self.conversation.count()
        return await super().ask(outgoing, hear)

    def agree(self, revision: Revision) -> None:
        self.conversation.begun()

    async def listen(self, hear: Hear) -> None:
        self._reading = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                self.conversation.nursery = nursery
                nursery.start_soon(self.conversation.beat)
                await self.read(hear)
                nursery.cancel_scope.cancel()
        finally:
            self.conversation.nursery = None
            self._reading.set()
            self.lose(self.conversation.why)

    async def aclose(self) -> None:
        self.lose("closed locally")
        self.conversation.leave()
        if self._reading is not None:
            with trio.move_on_after(CLOSE_TIME):
                await self._reading.wait()
        self.conversation.cut()


@asynccontextmanager
async def open_websocket(door: Door) -> AsyncIterator[WebSocketLink]:
    """A WebSocket for as long as the block lasts. Raises `CannotConnect`, `BadAnswer`, `HttpRefused`."""
    conversation = ResumableLink(door, await door.open(ASKING))
    try:
        yield WebSocketLink(conversation, conversation=conversation)
    finally:
        conversation.cut()
