"""The door between workers: a request that another worker has read, authenticated and checked, is answered here."""

from collections.abc import Sequence

import attrs

from callboard.actors.shares import account_of
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.response import Response
from callboard.transports.server.http.upgraded import Reading, Upgraded
from callboard.transports.wire import Wire
from callboard.workers.relay import PEER, PRINCIPAL, read_name


@attrs.define(eq=False)
class InnerDoor:
    """Serves the sessions of an endpoint to other workers. Only they can reach its socket: it lies in a folder that
    no other user may enter."""

    endpoints: Sequence[Endpoint]
    """That of HTTP first, that of WebSocket last; one, if they share an address. They are there before a request is."""
    heads: HeadMemory = attrs.field(factory=HeadMemory, init=False)
    is_leaving: bool = attrs.field(default=False, init=False)

    def admit(self, head: Head) -> None:
        if head.get(PRINCIPAL) is None or head.get(PEER) is None:
            raise HttpRefusal(400, "only for workers", closes=True)

    def expect_head(self, peer: str) -> HeldBytes | None:
        return None  # the worker that read it has counted it

    async def expect_body(self, head: Head, peer: str) -> tuple[str, HeldBytes | None]:
        principal = _name(head, PRINCIPAL)
        return principal, HeldBytes(self.endpoints[0].host.bodies, account_of(principal, _name(head, PEER)))

    async def serve(self, head: Head, body: bytes, response: Response, principal: str | None = None) -> None:
        response.is_forwarded = True
        response.peer = _name(head, PEER)
        await self.endpoints[0].serve(head, body, response, _name(head, PRINCIPAL))

    async def refuse(self, refusal: HttpRefusal, response: Response) -> None:
        await self.endpoints[0].refuse(refusal, response)

    async def upgrade(self, head: Head, rest: bytes, wire: Wire, reading: Reading) -> Upgraded:
        reading.peer = _name(head, PEER)
        return await self.endpoints[-1].upgrade(head, rest, wire, reading, _name(head, PRINCIPAL))


def _name(head: Head, header: bytes) -> str:
    return read_name(head.get(header) or b"")
