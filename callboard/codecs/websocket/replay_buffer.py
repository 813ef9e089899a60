"""Messages that may not have arrived: kept within limits, until the peer confirms them or asks for them again."""

from collections import deque

import attrs

from callboard.codecs.replay_budget import ReplayBudget


@attrs.define(eq=False, repr=False)
class ReplayBuffer:
    """The latest messages of one session to its peer. The first one ever is number 1."""

    most: int
    most_bytes: int
    budget: ReplayBudget | None = None
    """The shared budget of all sessions, if there is one."""
    sent: int = attrs.field(default=0, init=False)
    # Each with its ticket of the budget. 700 bytes: a quiet session has none.
    _messages: deque[tuple[bytes, int]] | None = attrs.field(default=None, init=False)
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
        ticket = 0 if self.budget is None else self.budget.add(self, len(message))
        self._messages.append((message, ticket))
        self._bytes += len(message)
        self.sent += 1
        while len(self) > self.most or self._bytes > self.most_bytes:
            self.forget_oldest()
        if self.budget is not None:
            self.budget.trim()

    def acknowledge(self, number: int) -> None:
        """The peer has everything up to *number*. A number that was never sent means nothing."""
        if number <= self.sent:
            while self.forgotten < number:
                self.forget_oldest()

    def has_after(self, number: int) -> bool:
        """Whether a peer that has everything up to *number* can be given the rest."""
        return self.forgotten <= number <= self.sent

    def after(self, number: int) -> list[bytes]:
        """The messages after *number*, in order."""
        return [message for message, _ in self._messages or ()][number - self.forgotten :]

    def clear(self) -> None:
        """Forget all: the peer will not come back."""
        while self._messages is not None:
            self.forget_oldest()

    def forget_oldest(self) -> None:
        """Let go of the oldest message."""
        messages = self._messages
        if messages:
            message, ticket = messages.popleft()
            self._bytes -= len(message)
            if self.budget is not None:
                self.budget.give_back(ticket)
        if not messages:
            self._messages = None
