"""Limits and timeouts of the transports, each with its default and its reason."""

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from callboard.actors.server.bounds import (
    MAX_BODY_BYTES,
    MAX_KEPT_BYTES,
    MAX_MEMORY_EACH,
    MAX_PARKED,
    MAX_PARKED_EACH,
    MAX_SESSIONS,
    MAX_SESSIONS_EACH,
)
from callboard.codecs.lines import MAX_FRAME

if TYPE_CHECKING:
    from callboard.actors.server.host import Host

Holds: TypeAlias = Literal[
    "each worker", "all workers", "each message", "each connection", "each stream", "each session"
]
"""What a limit is counted for when several workers serve. One that holds for each worker protects its process, and
allows as many times as much in all as there are workers. A session is in one worker at a time."""


def _setting(default: Any, why: str, holds: Holds) -> Any:
    """A field with its reason, for `--help` and for the reference, and what it *holds* for."""
    told = f"{why} Per worker." if holds == "each worker" else why
    metadata = {"why": why, "help": told, "holds": holds}
    return attrs.field(default=default, metadata=metadata, kw_only=True, validator=_not_negative)


def _not_negative(_: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{attribute.name} cannot be {value}")


@attrs.frozen
class Settings:
    """The limits of the edges. Sizes in bytes, times in seconds."""

    max_frame: int = _setting(MAX_FRAME, "Maximum size of a message: 413, or 1009 on a WebSocket.", "each message")
    max_body_bytes: int = _setting(
        MAX_BODY_BYTES,
        "Maximum total size of messages that are being read, and of large ones until they are answered: 503, or 1013 on"
        " a WebSocket. Half of it for one authenticated principal: 429.",
        "each worker",
    )
    max_header: int = _setting(
        32 * 1024, "Maximum size of an HTTP request head, with the request line: 431.", "each message"
    )
    max_headers: int = _setting(100, "Maximum number of header lines of an HTTP request: 431.", "each message")
    max_connections: int = _setting(
        20_000,
        "Maximum connections of one listener, 3/4 of them from one address; more are closed at once.",
        "each worker",
    )
    max_in_flight: int = _setting(16_384, "Maximum requests in flight, open streams included: 503.", "each worker")
    max_in_flight_each: int = _setting(
        64, "Maximum requests in flight of one authenticated principal: 429.", "each worker"
    )
    max_sessions: int = _setting(MAX_SESSIONS, "Maximum sessions, of all transports: 503.", "each worker")
    max_memory_each: int = _setting(
        MAX_MEMORY_EACH, "Maximum memory of one client or address, estimated: 429.", "each worker"
    )
    max_sessions_each: int = _setting(
        MAX_SESSIONS_EACH,
        "Maximum sessions of one authenticated principal, and never more than 3/4 of all: 429.",
        "each worker",
    )
    max_streams: int = _setting(64, "Maximum open streams of one legacy session: 429.", "each session")
    max_parked: int = _setting(MAX_PARKED, "Maximum requests that wait for input of their client: 503.", "each worker")
    max_parked_each: int = _setting(
        MAX_PARKED_EACH, "Maximum requests of one authenticated principal that wait for input: 429.", "each worker"
    )
    max_events: int = _setting(
        1024, "Maximum events kept for replay to a client that reconnects, per session.", "each session"
    )
    max_event_bytes: int = _setting(
        1024 * 1024, "Maximum size of the events kept per session. A larger event is not kept.", "each session"
    )
    max_kept_bytes: int = _setting(
        MAX_KEPT_BYTES,
        "Maximum size of the events kept for all sessions; the session with the most loses its oldest.",
        "each worker",
    )
    first_byte_time: float = _setting(
        10.0, "Timeout for the first byte on a new connection, TLS handshake included.", "each connection"
    )
    header_time: float = _setting(5.0, "Timeout for a request head, from its first byte: 408.", "each message")
    body_idle: float = _setting(10.0, "Timeout between two reads of a body: 408.", "each message")
    body_time: float = _setting(30.0, "Timeout for a whole body: 408.", "each message")
    keep_alive: float = _setting(75.0, "Keep-alive timeout: idle time until a connection is closed.", "each connection")
    write_time: float = _setting(
        10.0, "Timeout for writing to a peer; then its connection is closed.", "each connection"
    )
    comment_every: float = _setting(15.0, "Interval of the comments that keep a quiet SSE stream alive.", "each stream")
    session_idle: float = _setting(1800.0, "Idle time until a legacy session is ended.", "each session")
    retry: float = _setting(1.0, "Reconnection time sent to clients whose stream ended (2025-11-25).", "each stream")
    poll_after: float = _setting(
        0.0,
        "Time without a message after which the HTTP stream of a call is closed: its client comes back for the answer"
        " (2025-11-25). For networks that cut long requests. 0: never.",
        "each stream",
    )
    ping_every: float = _setting(
        45.0, "Interval of WebSocket pings. One without a pong in a sixth of that is repeated once.", "each connection"
    )
    client_ping: float = _setting(
        0.0,
        "Interval of MCP pings to legacy clients; one that has not answered by the next is disconnected. 0: none.",
        "each session",
    )
    grace: float = _setting(60.0, "Time to resume the session of a dropped WebSocket.", "each session")
    drain_time: float = _setting(
        30.0, "Time for a graceful shutdown: requests in flight finish, or get an error.", "all workers"
    )
    lame_duck: float = _setting(
        0.0,
        "Time between the signal to end, when /readyz fails, and the end of new connections: for load balancers.",
        "all workers",
    )
    linger: float = _setting(
        600.0, "With --workers: time for an older generation to finish what it holds.", "all workers"
    )
    spread: float = _setting(
        10.0, "Time over which the clients of more than 100 subscriptions are disconnected at shutdown.", "all workers"
    )

    def apply(self, host: "Host") -> None:
        """Set the bounds of what all edges of a host share."""
        most = self.max_sessions
        host.in_flight.allow(self.max_in_flight, self.max_in_flight_each)
        host.sessions.allow(most, min(self.max_sessions_each, most - most // 4))
        host.memory.each = host.memory.each_address = self.max_memory_each
        host.bodies.allow(self.max_body_bytes, self.max_body_bytes // 2)
        host.kept.most = self.max_kept_bytes


DEFAULTS: Final = Settings()
