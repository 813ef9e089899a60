"""Levels of log messages, as the protocol has them."""

from typing import Final

from callboard.actors.rate import Rate
from callboard.codecs.revisions import LoggingLevel

LEVELS: Final[tuple[LoggingLevel, ...]] = (
    *("debug", "info", "notice", "warning"),
    *("error", "critical", "alert", "emergency"),
)
"""From the least to the most severe."""

LOG_RATE: Final = Rate(1000)
"""Most log messages of one request in a second; more are dropped. No reader is faster."""

KEPT_LOGS: Final = 64
"""Log messages that are kept of what a backend says while its request is parked: the latest."""


def check_level(level: str) -> None:
    """Raises ValueError for a level that there is not, also if no client would hear it."""
    if level not in LEVELS:
        raise ValueError(f"unknown log level {level!r}: expected one of {', '.join(LEVELS)}")


def is_heard(level: LoggingLevel, wanted: LoggingLevel | None) -> bool:
    """Whether a client that wants the level *wanted* and those above it is sent a message of *level*."""
    return wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted)
