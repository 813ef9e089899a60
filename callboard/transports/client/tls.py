"""TLS as a client begins it: which certificates to trust, and what to say of one that is not trusted."""

import socket
import ssl
from functools import cache

from callboard.actors.undo import undo_unless_done
from callboard.transports.ssl_wire import SslWire


@cache
def believed() -> ssl.SSLContext:
    """The system's trust store, read once: that takes 30 ms, in which no other task gets a turn."""
    return ssl.create_default_context()


async def secured(connected: socket.socket, host: str, tls: ssl.SSLContext | None, write_time: float) -> SslWire:
    """TLS around *connected*, with *host* at the other end. Raises `ssl.SSLError`, `trio.BrokenResourceError`."""
    wire = SslWire(connected, believed() if tls is None else tls, write_time, server_name=host)
    with undo_unless_done(wire.close):
        await wire.shake_hands()
    return wire


def why_untrusted(error: ssl.SSLError) -> str:
    """The reason why a certificate or a handshake failed."""
    said = getattr(error, "verify_message", "")
    return f"{error.reason or error}{f': {said}' if said else ''}"
