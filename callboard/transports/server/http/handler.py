"""The application behind a connection, as the connection needs it."""

from typing import Protocol

from callboard.codecs.caller import Caller
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.response import Response
from callboard.transports.server.http.upgraded import Reading, Upgraded
from callboard.transports.wire import Wire


class RequestHandler(Protocol):
    """Answers requests. The MCP endpoint is one, the health checks of the admin listener are another."""

    heads: HeadMemory

    upgrade_to: bytes
    """The protocol that a connection may turn into."""

    is_leaving: bool
    """Whether each connection ends after its next answer: other processes serve the address."""

    def admit(self, head: Head) -> None:
        """Raises `HttpRefusal` for a request that needs no body to be refused."""

    def expect_head(self, peer: str) -> HeldBytes | None:
        """The account for bytes of an incomplete head. Its sender may be any client at *peer*."""

    async def expect_body(self, head: Head, peer: str) -> tuple[Caller, HeldBytes | None]:
        """The caller of a request before its body arrives, and the account for the body's bytes.
        Raises `HttpRefusal`."""

    async def serve(self, head: Head, body: bytes, response: Response, caller: Caller | None = None) -> None:
        """Answer a request, or start the actor that will. *caller* if it is known already."""

    async def refuse(self, refusal: HttpRefusal, response: Response) -> None:
        """Answer a request that could not be read, or was not admitted."""

    async def upgrade(self, head: Head, rest: bytes, wire: Wire, reading: Reading) -> Upgraded:
        """Begin to serve a connection that turns into another protocol. Raises `HttpRefusal`."""
