"""The door between workers: a request that another worker has read, authenticated and checked, is answered here."""

import attrs

from callboard.actors.shares import account_of
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.endpoint import Endpoint, Reading, Upgraded
from callboard.transports.server.http.response import Response
from callboard.transports.wire import Wire
from callboard.workers.relay import PEER, PRINCIPAL, read_name


@attrs.define(eq=False)
class InnerDoor:
    """Serves the sessions of an endpoint to other workers. Only they can reach its socket: it lies in a folder that
    no other user may enter."""

    endpoint: Endpoint
    upgrades: Endpoint
    """The one that serves WebSockets: the same, if they share an address."""
    heads: HeadMemory = attrs.field(factory=HeadMemory, init=False)
    is_leaving: bool = attrs.field(default=False, init=False)

    def admit(self, head: Head) -> None:
        if head.get(PRINCIPAL) is None or head.get(PEER) is None:
            raise HttpRefusal(400, "only for workers", closes=True)

    def expect_head(self, peer: str) -> HeldBytes | None:
        return None  # the worker that read it has counted it

    async def expect_body(self, head: Head, peer: str) -> tuple[str, HeldBytes | None]:
        principal = _name(head, PRINCIPAL)
        return principal, HeldBytes(self.endpoint.host.bodies, account_of(principal, _name(head, PEER)))

    async def serve(self, head: Head, body: bytes, response: Response, principal: str | None = None) -> None:
        response.is_forwarded = True
        response.peer = _name(head, PEER)
        await self.endpoint.serve(head, body, response, _name(head, PRINCIPAL))

    async def refuse(self, refusal: HttpRefusal, response: Response) -> None:
        await self.endpoint.refuse(refusal, response)

    async def upgrade(self, head: Head, rest: bytes, wire: Wire, reading: Reading) -> Upgraded:
        reading.peer = _name(head, PEER)
        return await self.upgrades.upgrade(head, rest, wire, reading, _name(head, PRINCIPAL))


def _name(head: Head, header: bytes) -> str:
    return read_name(head.get(header) or b"")
