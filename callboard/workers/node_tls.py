"""TLS between the workers of different nodes: both ends show a certificate of the operator's own CA."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

import attrs
import trio

from callboard.errors import CannotConnect, CannotRead, CannotServe
from callboard.transports.client.pool import Origin, reach
from callboard.transports.server.tls import Certificate
from callboard.transports.ssl_wire import SslWire
from callboard.transports.wire import SocketWire

REACHED_WITHIN: Final = 4.0
"""Seconds to reach a worker of another node, TLS included."""

UNHEARD_AFTER: Final = 5_000
"""Milliseconds after which a machine is given up that acknowledges nothing, where that can be set."""

ASKED_AFTER: Final = (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3))
"""The same for one from which an answer is waited for: seconds until it is asked, between two questions, how many."""


@attrs.define(eq=False)
class NodeCertificate(Certificate):
    """A node's certificate, and the CA whose certificates it believes: of clients and of servers."""

    ca: Path = attrs.field(kw_only=True)
    client: ssl.SSLContext = attrs.field(init=False)
    """For connections to others."""

    name: ClassVar[str] = "node_certificate"

    def __attrs_post_init__(self) -> None:
        self.context = self._read()
        self.client = self._as_client()

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.certificate, self.key, self.ca)

    def _read(self) -> ssl.SSLContext:
        context = super()._read()
        self._believe(context)
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def _as_client(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which asks for a certificate, with the right name
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.certificate, self.key)
        self._believe(context)
        return context

    def _believe(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise CannotServe(f"TLS: {self.ca}: {error.strerror or error}") from None
        except OSError as error:
            raise CannotRead(f"TLS: {self.ca}: {error.strerror or error}") from None

    async def use(self, context: ssl.SSLContext) -> Mapping[str, object]:
        # The same context, for links have it: what it believed before, it believes until the next generation.
        self.client.load_cert_chain(self.certificate, self.key)
        self._believe(self.client)
        return await super().use(context)


def set_patience(connected: socket.socket) -> None:
    """Have the kernel give up on the other end soon."""
    with suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in ASKED_AFTER:
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_AFTER)


async def reach_node(origin: Origin, tls: ssl.SSLContext | None = None) -> SocketWire | SslWire:
    """Connect to a worker of another node. Raises `CannotConnect`."""
    with trio.move_on_after(REACHED_WITHIN):
        wire = await reach(origin, tls)
        with socket.socket(fileno=wire.fileno()) as borrowed:
            set_patience(borrowed)
            borrowed.detach()
        return wire
    raise CannotConnect(f"{origin}: timed out after {REACHED_WITHIN:g} s")
