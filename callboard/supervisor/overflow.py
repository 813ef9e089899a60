"""How large a mailbox is, and what happens to one message too many: as data."""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

import attrs

MAILBOX_SIZE: Final = 64
"""Messages a mailbox holds unless its actor says otherwise: a burst, and not a backlog."""

M = TypeVar("M")


class Overflow(Enum):
    """Policy of a full mailbox for one more message."""

    WAIT = "wait"
    """The sender waits: back-pressure."""
    DROP_OLDEST = "drop_oldest"
    """The oldest message that may be dropped makes room."""
    COALESCE = "coalesce"
    """One message per key: the latest value, in the first one's place. With no place left, the sender waits."""
    END = "end"
    """The slow consumer is ended; the message is lost with it."""


class Lost(Enum):
    """Why a message was not delivered."""

    DROPPED = "dropped"
    COALESCED = "coalesced"
    OVERFLOWED = "overflowed"
    ENDED = "ended"
    LATE_REPLY = "late_reply"
    ANSWERED_TWICE = "answered_twice"


@attrs.frozen(kw_only=True)
class MailboxSpec(Generic[M]):
    """How large a mailbox is, and how it overflows. `overflow` may depend on the message's kind."""

    size: int = attrs.field(default=MAILBOX_SIZE, validator=attrs.validators.ge(1))
    overflow: Overflow | Callable[[M], Overflow] = Overflow.WAIT
    key: Callable[[M], Hashable] = type
    """Key of a message for COALESCE: by default its class."""
    most_weight: int | None = None
    """A second bound, in the unit of `weigh` (bytes); None counts messages only."""
    weigh: Callable[[M], int] | None = None

    def __attrs_post_init__(self) -> None:
        if (self.most_weight is None) != (self.weigh is None):
            raise ValueError("most_weight and weigh go together")

    def overflow_of(self, message: M) -> Overflow:
        return self.overflow if isinstance(self.overflow, Overflow) else self.overflow(message)


class Owner(Protocol):
    """Callback for dropped messages."""

    def lose(self, message: object, reason: Lost) -> None:
        """Called once for each message given up. Must not block, raise, or touch the mailbox."""
