"""Bytes that are held of what clients are sending: counted for each account, and for all together."""

import attrs

from callboard.actors.shares import Shares


@attrs.define(eq=False)
class HeldBytes:
    """Bytes that one connection holds of a started message, until the message is processed."""

    shares: Shares
    account: str
    size: int = attrs.field(default=0, init=False)

    def grow(self, size: int) -> None:
        """There are *size* bytes by now. Raises `Overloaded` if that is more than the account, or all, may hold."""
        if size > self.size:
            self.shares.take(self.account, size - self.size)
            self.size = size

    def release(self) -> None:
        """Hold nothing any more. Harmless twice."""
        if self.size:
            self.shares.give_back(self.account, self.size)
            self.size = 0
