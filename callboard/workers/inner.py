"""The door between workers: links, and WebSockets that are passed on. Requests come on the links."""

from collections.abc import Sequence
from typing import Final

import attrs

from callboard.codecs.caller import ANONYMOUS, Caller
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.response import Response
from callboard.transports.server.http.upgraded import Reading, Upgraded
from callboard.transports.wire import Wire
from callboard.workers.link_server import LinkServer
from callboard.workers.relay import CALLER, PEER, PROTOCOL, VERSION, VERSION_HEADER, read_name, read_told

_PLAIN: Final = ((b"content-type", b"text/plain; charset=utf-8"),)


@attrs.define(eq=False)
class InnerDoor:
    """Serves the sessions of this worker to the others. Only they can reach its socket: it lies in a folder that no
    other user may enter."""

    endpoints: Sequence[Endpoint]
    """That of HTTP first, that of WebSocket last; one, if they share an address. They are there before a request is."""
    heads: HeadMemory = attrs.field(factory=HeadMemory, init=False)
    requests: HeadMemory = attrs.field(factory=HeadMemory, init=False)
    """The heads of requests that links bring."""
    is_leaving: bool = attrs.field(default=False, init=False)
    upgrade_to: bytes = attrs.field(default=PROTOCOL, init=False)

    def admit(self, head: Head) -> None:
        if head.get(b"upgrade") is None:
            raise HttpRefusal(426, "only for workers", headers=((b"upgrade", PROTOCOL),), closes=True)

    def expect_head(self, peer: str) -> HeldBytes | None:
        return None  # the worker that read it has counted it

    async def expect_body(self, head: Head, peer: str) -> tuple[Caller, HeldBytes | None]:
        return ANONYMOUS, None

    async def serve(self, head: Head, body: bytes, response: Response, caller: Caller | None = None) -> None:
        await self.refuse(HttpRefusal(400, "only for workers"), response)

    async def refuse(self, refusal: HttpRefusal, response: Response) -> None:
        await response.answer(refusal.status, (*_PLAIN, *refusal.headers), f"{refusal}\n".encode())

    async def upgrade(self, head: Head, rest: bytes, wire: Wire, reading: Reading) -> Upgraded:
        if head.get(VERSION_HEADER) != VERSION:
            raise HttpRefusal(505, "workers of this release speak another version", closes=True)
        caller, peer = head.get(CALLER), head.get(PEER)
        if caller is None or peer is None:
            link = LinkServer(wire, reading, self.endpoints, self.requests)
            link.begin_with(rest)
            return link
        reading.peer = read_name(peer)  # a WebSocket, which another worker passes on
        return await self.endpoints[-1].upgrade(head, rest, wire, reading, read_told(caller))
