"""What was said to a peer and may not have arrived: kept within bounds, until it is known to have, or asked for."""

from collections import deque

import attrs


@attrs.define(eq=False, repr=False)
class Kept:
    """The latest messages of one session to its peer. The first one ever is number 1."""

    most: int
    most_bytes: int
    sent: int = attrs.field(default=0, init=False)
    _messages: deque[bytes] | None = attrs.field(default=None, init=False)  # 700 bytes: a quiet session has none
    _bytes: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return 0 if self._messages is None else len(self._messages)

    @property
    def forgotten(self) -> int:
        """The number of the latest message that is no longer kept."""
        return self.sent - len(self)

    def add(self, message: bytes) -> None:
        """Count one message and keep it, and let go of the oldest."""
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        self._bytes += len(message)
        self.sent += 1
        while len(self) > self.most or self._bytes > self.most_bytes:
            self._let_go()

    def acknowledge(self, number: int) -> None:
        """The peer has everything up to *number*. A number that was never sent means nothing."""
        if number <= self.sent:
            while self.forgotten < number:
                self._let_go()

    def has_after(self, number: int) -> bool:
        """Whether a peer that has everything up to *number* can be given the rest."""
        return self.forgotten <= number <= self.sent

    def after(self, number: int) -> list[bytes]:
        """What followed *number*, in order."""
        return list(self._messages or ())[number - self.forgotten :]

    def _let_go(self) -> None:
        messages = self._messages
        if messages:
            self._bytes -= len(messages.popleft())
        if not messages:
            self._messages = None
