"""The admin listener: whether a server lives, and whether it is ready, for the orchestrator that looks after it; and
everything else about it, for its operator.

On a port of its own, and off unless asked for. Health is without any detail, and does not ask for a token. It is served
by the native engine, so it depends on no other HTTP library than the endpoint does, and has the same guards.
"""

import socket
from collections.abc import Sequence
from typing import Final, Protocol

import attrs

from callboard import tree
from callboard.actors.server.host import Host
from callboard.codecs.caller import ANONYMOUS, Caller
from callboard.codecs.http.access import Access
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory
from callboard.codecs.http.writer import PLAIN
from callboard.server.served import Hosted
from callboard.supervisor import SupervisorSpec
from callboard.transports.limits import Settings
from callboard.transports.server.http.crowd import ConnectionLimit
from callboard.transports.server.http.listener import Edge, listeners
from callboard.transports.server.http.response import Response
from callboard.transports.server.http.upgraded import Reading, Upgraded
from callboard.transports.wire import Wire

LIMITS: Final = Settings(
    max_frame=1024,
    max_header=8192,
    max_headers=64,
    max_connections=32,
    first_byte_time=2.0,
    keep_alive=5.0,
    write_time=1.0,
)
"""What is asked here is small and soon answered. These connections alone may use the reserve of descriptors, and half
of it at most; one that says nothing makes room soon."""

_OPEN: Final = (b"/livez", b"/readyz")
_METHODS: Final = ("GET", "HEAD")
_ANY: Final = 1 << 30


class Readiness(Protocol):
    """What is asked here of a server, or of the parent of its workers."""

    def is_ready(self) -> bool:
        """Whether a request could be answered now."""


class AdminRoom(Protocol):
    """What an admin listener shows beside health."""

    def methods(self, head: Head) -> tuple[str, ...]:
        """With which methods the path may be used; none if there is no such path."""

    async def serve(self, head: Head, body: bytes, response: Response) -> None:
        """Answer a request for one of these paths."""

    async def why(self, head: Head) -> str:
        """Lines on what is ready and what is not, for those who may know."""


@attrs.define(eq=False)
class Health:
    """Health of a server in this process."""

    server: Hosted
    host: Host
    is_leaving: bool = attrs.field(default=False, init=False)
    """Whether it ends soon, and still takes requests: a load balancer has time to notice."""
    is_held: bool = attrs.field(default=False, init=False)
    """Whether an operator has it say that it is not ready."""

    def is_ready(self) -> bool:
        is_open = not (self.is_leaving or self.is_held or self.host.is_draining)
        return is_open and self.server.is_ready()


@attrs.define(eq=False)
class AdminHandler:
    """Answers `/livez` and `/readyz` to anybody; and shows the server, if there is a *room* for that, to those with a
    token. Under the names that the listener goes by, and to no page but its own."""

    health: Readiness
    access: Access
    room: AdminRoom | None = None
    heads: HeadMemory = attrs.field(factory=HeadMemory, init=False)
    is_leaving: bool = attrs.field(default=False, init=False)
    upgrade_to: bytes = attrs.field(default=b"websocket", init=False)

    def admit(self, head: Head) -> None:
        self.access.check(head.get(b"host"), head.get(b"origin"))
        methods = _METHODS if head.path in _OPEN else () if self.room is None else self.room.methods(head)
        if not methods:
            raise HttpRefusal(404, "not found", closes=True)
        if head.method not in methods:
            allowed = ", ".join(methods)
            raise HttpRefusal(405, f"use {methods[0]}", headers=((b"allow", allowed.encode()),), closes=True)

    def expect_head(self, peer: str) -> None:
        """A head is short here, and not counted."""

    async def expect_body(self, head: Head, peer: str) -> tuple[Caller, None]:
        return ANONYMOUS, None  # a body is no use here, and at most a kilobyte

    async def serve(self, head: Head, body: bytes, response: Response, caller: Caller | None = None) -> None:
        if head.path not in _OPEN and self.room is not None:
            await self.room.serve(head, body, response)
            return
        is_fine = head.path == b"/livez" or self.health.is_ready()
        text = "ok\n" if is_fine else "not ready\n"
        if head.path == b"/readyz" and head.query == b"verbose" and self.room is not None:
            text += await self.room.why(head)
        await response.answer(200 if is_fine else 503, PLAIN, b"" if head.method == "HEAD" else text.encode())

    async def refuse(self, refusal: HttpRefusal, response: Response) -> None:
        body = b"" if refusal.is_bodiless else b"not found\n" if refusal.status == 404 else b"refused\n"
        await response.answer(refusal.status, (*PLAIN, *refusal.headers), body)

    async def upgrade(self, head: Head, rest: bytes, wire: Wire, reading: Reading) -> Upgraded:
        raise HttpRefusal(501, "no WebSocket at this address", closes=True)


def admin_edge(
    health: Readiness, access: Access, sockets: Sequence[socket.socket], room: AdminRoom | None = None
) -> SupervisorSpec:
    """The tree of the admin listener. It runs before the other listeners open, and after they were closed."""
    crowd = ConnectionLimit(LIMITS.max_connections, ceiling=_ANY)
    edge = Edge(AdminHandler(health, access, room), LIMITS, crowd=crowd)
    return tree.admin(listeners(edge, sockets))
