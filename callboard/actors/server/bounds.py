"""Bounds of a host, and weights of what it counts. They are apart, for commands show some that run no host."""

from typing import Final

MAX_SESSIONS: Final = 20_000
"""Most sessions of all clients together."""

MAX_MEMORY_EACH: Final = 160 * 1024 * 1024
"""Most memory that one client may take up in all, estimated. With the events that are kept, which all share, that stays
under 256 MiB."""

MAX_SESSIONS_EACH: Final = 5_000
"""Most sessions of one authenticated principal: a platform may serve all its users with one token."""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of messages that are being read, and of large ones that are being dealt with, of all clients together."""

MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Most bytes that are kept for clients which may come back, of all sessions together. The oldest go first."""

MAX_PARKED: Final = 10_000
"""Most parked exchanges in all. Each holds a task and what its handler holds."""

MAX_PARKED_EACH: Final = 64
"""Most parked exchanges of one account, or on one connection: what one client may have in flight."""

MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of large answers that all clients together have not read yet."""

MAX_MEMORY: Final = 2 * 1024 * 1024 * 1024
"""Most memory that all clients may take up together, estimated: more than all other bounds together let them."""

IN_FLIGHT_WEIGHT: Final = 16 * 1024
"""Bytes that a request in flight takes up, its body not counted: measured, a stream."""

SESSION_WEIGHT: Final = 28 * 1024
"""Bytes that a session takes up: measured, of a WebSocket. Others take half of that."""

FOLLOWED_WEIGHT: Final = 2
"""Bytes for each byte of a URI that is followed: it stands in the subscription and in the table of topics."""
