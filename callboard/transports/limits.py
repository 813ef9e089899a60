"""What may be set about the edges: every limit and time, each with its default and its reason."""

from typing import Any, Final

import attrs

from callboard.actors.server.host import (
    MAX_BODY_BYTES,
    MAX_KEPT_BYTES,
    MAX_MEMORY_EACH,
    MAX_SESSIONS,
    MAX_SESSIONS_EACH,
    Host,
)
from callboard.actors.server.parking import MAX_PARKED, MAX_PARKED_EACH
from callboard.codecs.lines import MAX_FRAME


def _setting(default: Any, why: str) -> Any:
    """A field whose reason is there for `--help` and for the reference."""
    return attrs.field(default=default, metadata={"why": why, "help": why}, kw_only=True, validator=_not_negative)


def _not_negative(_: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{attribute.name} cannot be {value}")


@attrs.frozen
class Settings:
    """The limits of the edges. Sizes in bytes, times in seconds."""

    max_frame: int = _setting(MAX_FRAME, "Largest message that is taken in: 413, or 1009 on a WebSocket.")
    max_body_bytes: int = _setting(
        MAX_BODY_BYTES,
        "Most bytes of messages that are being read, and of large ones until they are answered, in all: 503, or 1013 on"
        " a WebSocket. Half of it for one authenticated principal: 429.",
    )
    max_header: int = _setting(32 * 1024, "Largest head of an HTTP request, its first line included: 431.")
    max_headers: int = _setting(100, "Most header lines of an HTTP request: 431.")
    max_connections: int = _setting(
        20_000, "Most connections of one listener, and 3/4 of them from one address; the next is closed at once."
    )
    max_in_flight: int = _setting(16_384, "Most requests in flight in all, streams counted too: 503.")
    max_in_flight_each: int = _setting(64, "Most of them for one authenticated principal, in all its sessions: 429.")
    max_sessions: int = _setting(MAX_SESSIONS, "Most sessions in all, of every transport: 503.")
    max_memory_each: int = _setting(
        MAX_MEMORY_EACH, "Most memory that one client, or one address, takes up in all, estimated: 429."
    )
    max_sessions_each: int = _setting(
        MAX_SESSIONS_EACH, "Most of them for one authenticated principal, and never more than three quarters: 429."
    )
    max_streams: int = _setting(64, "Most open streams of one legacy session: 429.")
    max_parked: int = _setting(MAX_PARKED, "Most requests that wait for their client's input: 503.")
    max_parked_each: int = _setting(MAX_PARKED_EACH, "Most of them for one authenticated principal: 429.")
    max_events: int = _setting(1024, "Most events that are kept for a client that comes back, for each session.")
    max_event_bytes: int = _setting(1024 * 1024, "Most bytes of them. A larger event is not kept.")
    max_kept_bytes: int = _setting(MAX_KEPT_BYTES, "Most bytes of them of all sessions together; the oldest go.")
    first_byte_time: float = _setting(10.0, "For the first byte on a new connection, a TLS handshake included.")
    header_time: float = _setting(5.0, "For the head of a request, from its first byte: 408.")
    body_idle: float = _setting(10.0, "Between two pieces of a body: 408.")
    body_time: float = _setting(30.0, "For a whole body: 408.")
    keep_alive: float = _setting(75.0, "For the next request on a connection.")
    write_time: float = _setting(10.0, "For a peer to take what is written to it; then it is cut off.")
    comment_every: float = _setting(15.0, "Between two comments that keep a quiet stream alive.")
    session_idle: float = _setting(1800.0, "For a legacy session that nobody uses.")
    retry: float = _setting(1.0, "After which a client whose stream ended comes back (2025-11-25).")
    ping_every: float = _setting(
        45.0, "Between two pings of a WebSocket. One that is not answered in a sixth of that is sent again, once."
    )
    grace: float = _setting(60.0, "For a client to come back to the session of a dropped WebSocket.")
    drain_time: float = _setting(
        30.0, "For the end of a server: requests in flight finish, or are answered that it ends."
    )
    spread: float = _setting(10.0, "Over which more than 100 listeners are sent away at the end.")

    def apply(self, host: Host) -> None:
        """Set the bounds of what all edges of a host share."""
        most = self.max_sessions
        host.in_flight.allow(self.max_in_flight, self.max_in_flight_each)
        host.sessions.allow(most, min(self.max_sessions_each, most - most // 4))
        host.memory.each = host.memory.each_address = self.max_memory_each
        host.bodies.allow(self.max_body_bytes, self.max_body_bytes // 2)
        host.kept.most = self.max_kept_bytes


DEFAULTS: Final = Settings()
