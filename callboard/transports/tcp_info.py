"""What Linux tells of a TCP connection (`struct tcp_info`): counted by the system, so it costs nothing until asked."""

import socket
import struct
from typing import Any, Final

_SIZE: Final = 136
_TRAFFIC: Final = struct.Struct("=QQ")
_TRAFFIC_AT: Final = 120
"""Where the bytes acknowledged and received are."""
_SINCE: Final = struct.Struct("=IxxxxI")
_SINCE_AT: Final = 44
"""Where the milliseconds are since something was sent, and since something came."""


def traffic_of(connected: socket.socket) -> tuple[int, int]:
    """Bytes that came, and that the peer has got; 0 where the system does not tell."""
    sent, received = _told(connected, _TRAFFIC, _TRAFFIC_AT) or (0, 0)
    return received, sent


def idle_of(connected: socket.socket) -> float | None:
    """Seconds for which nothing was sent and nothing came, where the system tells."""
    told = _told(connected, _SINCE, _SINCE_AT)
    return None if told is None else min(told) / 1000


def _told(connected: socket.socket, form: struct.Struct, at: int) -> tuple[Any, ...] | None:
    try:
        return form.unpack_from(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE), at)
    except (OSError, AttributeError, struct.error):  # closed, no TCP, or another system
        return None
