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
    kept_bytes: int = attrs.field(default=0, init=False)
    _messages: deque[bytes] | None = attrs.field(default=None, init=False)  # 700 bytes: a quiet session has none

    def __len__(self) -> int:
        return 0 if self._messages is None else len(self._messages)

    @property
    def forgotten(self) -> int:
        """The number of the latest message that is no longer kept."""
        return self.sent - len(self)

    def add(self, message: bytes) -> None:
        """Count one message and keep it, and let go of the oldest. Each message of a busy session comes this way."""
        messages, budget, more = self._messages, self.budget, len(message)
        if messages is None:
            messages = self._messages = deque()
            if budget is not None:
                budget.join(self)
        messages.append(message)
        self.sent += 1
        if len(messages) > self.most:
            more -= len(messages.popleft())
        self.kept_bytes += more
        if budget is not None:
            budget.total += more
        while self.kept_bytes > self.most_bytes or (not messages and self._messages is not None):
            self.forget_oldest()
        if budget is not None and budget.total > budget.most:
            budget.trim()

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
        return list(self._messages or ())[number - self.forgotten :]

    def clear(self) -> None:
        """Forget all: the peer will not come back."""
        while self._messages is not None:
            self.forget_oldest()

    def forget_oldest(self) -> None:
        """Let go of the oldest message."""
        messages, budget = self._messages, self.budget
        if messages:
            size = len(messages.popleft())
            self.kept_bytes -= size
            if budget is not None:
                budget.total -= size
        if not messages:
            self._messages = None
            if budget is not None:
                budget.leave(self)
