"""A memory channel with one reader and an overflow policy: what happens to one message too many is declared.

Built on a deque and `trio.lowlevel`: Trio's memory channel can neither drop its oldest item nor replace one in place,
and a mailbox has one reader, which makes it cheaper (`docs/design/supervision.md` has the figures). The conventions are
Trio's: what may block is async and a checkpoint, `*_nowait` raises `WouldBlock`, a cancelled `put` has put nothing, a
cancelled `receive` has taken nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Final, TypeVar

import attrs
import trio
from trio.lowlevel import Abort, RaiseCancelT, Task, enable_ki_protection

from callboard.errors import MessageTooHeavy
from callboard.supervisor.overflow import Lost, MailboxSpec, Overflow, Owner

M = TypeVar("M")


class MailboxClosed(trio.ClosedResourceError):
    """It will not be read. A class of its own: an actor may refuse a question with Trio's."""


@attrs.frozen
class MailboxStatistics:
    """Statistics of a mailbox."""

    depth: int
    size: int
    weight: int
    taken: int
    senders_waiting: int
    closed: bool


@attrs.define(eq=False)
class _Entry:
    """A queued message that needs more than its place in the queue."""

    message: Any
    key: Hashable = None
    weight: int = 0
    may_drop: bool = False
    is_dropped: bool = False


_NO_KEY: Final = object()


class Mailbox(trio.abc.ReceiveChannel[M]):
    """Messages for one reader, in the order in which they were accepted: the receiving end. `Address` is the other."""

    __slots__ = (
        "_closed",
        "_droppable",
        "_dropped",
        "_keyed",
        "_owner",
        "_paused",
        "_queue",
        "_reader",
        "_senders",
        "_weight",
        "spec",
        "taken",
    )

    def __init__(self, spec: MailboxSpec[M], owner: Owner) -> None:
        self.spec = spec
        self.taken = 0
        self._owner = owner
        self._queue: deque[Any] | None = None  # 600 bytes: an idle actor has none
        self._senders: dict[Task, M] | None = None
        self._keyed: dict[Hashable, _Entry] | None = None
        self._droppable: deque[_Entry] | None = None  # those of the queue that may make room, oldest first
        self._dropped = 0  # entries that are still in the queue, and never at its head
        self._reader: Task | None = None
        self._weight = 0
        self._closed = False
        self._paused = False

    # What the sender sees.

    @enable_ki_protection
    def put_nowait(self, message: M) -> None:
        """Accept *message* as the policy says.

        Raises:
            trio.WouldBlock: the policy is to wait.
            MailboxClosed: it will not be read.
            MessageTooHeavy: it would not fit into an empty mailbox.
        """
        if self._closed:
            raise MailboxClosed
        if not self._admit(message, overtakes=bool(self._senders)):
            raise trio.WouldBlock

    @enable_ki_protection
    async def put(self, message: M) -> None:
        """Accept *message*, waiting for room if that is the policy. Raises what `put_nowait` does, but WouldBlock."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self.put_nowait(message)
        except trio.WouldBlock:
            await self.wait_put(message)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()

    @enable_ki_protection
    async def wait_put(self, message: M) -> None:
        """Wait in line behind the senders that came earlier; returns when *message* is accepted."""
        task = trio.lowlevel.current_task()
        if self._senders is None:
            self._senders = {}
        senders = self._senders
        senders[task] = message

        def abort(_: RaiseCancelT) -> Abort:
            del senders[task]
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if task in senders:  # `_admit_waiting` takes out the tasks it lets in, `close` does not
            raise MailboxClosed

    # What the reader sees.

    @enable_ki_protection
    async def receive(self) -> M:
        """The next message.

        Raises:
            trio.EndOfChannel: closed and drained, or paused for a restart.
            trio.BusyResourceError: another task of the actor is already waiting here.
        """
        if self._queue and not self._paused:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._paused:
                raise trio.EndOfChannel
            if self._queue:
                return self._take()
            if self._closed:
                raise trio.EndOfChannel
            await self._wait_for_message()

    def receive_nowait(self) -> M:
        """The next message. Raises WouldBlock, or EndOfChannel as `receive` does."""
        if self._paused:
            raise trio.EndOfChannel
        if self._queue:
            return self._take()
        raise trio.EndOfChannel if self._closed else trio.WouldBlock

    async def _wait_for_message(self) -> None:
        if self._reader is not None:
            raise trio.BusyResourceError("a mailbox has one reader")
        self._reader = trio.lowlevel.current_task()

        def abort(_: RaiseCancelT) -> Abort:
            self._reader = None
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    # What its owner does to it.

    @enable_ki_protection
    def close(self) -> None:
        """Take no more. The reader gets what is left and then the end; waiting senders are refused."""
        if self._closed:
            return
        self._closed = True
        senders, self._senders = self._senders, None
        for task in senders or ():
            trio.lowlevel.reschedule(task)
        self._wake_reader()

    async def aclose(self) -> None:
        """`close`, and give others their turn."""
        self.close()
        await trio.lowlevel.checkpoint()

    def pause(self) -> None:
        """Show the reader the end at once, and keep everything for the next one: a restart is under way."""
        self._paused = True
        self._wake_reader()

    def resume(self) -> None:
        """A new reader is here."""
        self._paused = False

    def drain(self) -> list[M]:
        """Take everything that is left, without counting it as taken by the reader."""
        left = list(self.messages())
        self._queue = self._keyed = self._droppable = None
        self._weight = self._dropped = 0
        return left

    def messages(self) -> Iterator[Any]:
        """Everything accepted and not yet taken, oldest first."""
        for entry in self._queue or ():
            if type(entry) is not _Entry:
                yield entry
            elif not entry.is_dropped:
                yield entry.message

    def waiting(self) -> Iterator[M]:
        """Weight of the messages of waiting senders."""
        return iter((self._senders or {}).values())

    @property
    def depth(self) -> int:
        return len(self._queue) - self._dropped if self._queue else 0

    @property
    def is_waited_for(self) -> bool:
        """Whether its reader waits for a message: then nothing is queued, and the reader does nothing else."""
        return self._reader is not None

    @property
    def coalesced(self) -> int:
        """How many messages wait that a later one of the same key would replace."""
        return len(self._keyed) if self._keyed else 0

    def statistics(self) -> MailboxStatistics:
        """A snapshot."""
        return MailboxStatistics(
            depth=self.depth,
            size=self.spec.size,
            weight=self._weight,
            taken=self.taken,
            senders_waiting=len(self._senders or ()),
            closed=self._closed,
        )

    # How a message gets in and out.

    def _admit(self, message: M, *, overtakes: bool) -> bool:
        """Place *message*, or dispose of it as the policy says; False if its sender has to wait.

        *overtakes* says that others stand in line: then what may wait goes behind them.
        """
        spec = self.spec
        if spec.overflow is Overflow.WAIT and spec.weigh is None:  # the common case, first
            if overtakes or (self._queue and len(self._queue) >= spec.size):
                return False
            self._append(message)
            return True
        policy = spec.overflow_of(message)
        weight = spec.weigh(message) if spec.weigh else 0
        if spec.most_weight is not None and weight > spec.most_weight:
            raise MessageTooHeavy(weight=weight, limit=spec.most_weight)
        key = _NO_KEY
        if policy is Overflow.COALESCE:
            key = spec.key(message)
            if overtakes and self._stands_in_line(key):
                return False  # an older value of this key would come later and win
            if self._replace(key, message, weight):
                return True
        if overtakes and policy in (Overflow.WAIT, Overflow.COALESCE):
            return False
        return self._fit(message, policy, key, weight)

    def _fit(self, message: M, policy: Overflow, key: Hashable, weight: int) -> bool:
        while not self._has_room(weight):
            if policy is Overflow.END:
                self._owner.lose(message, Lost.OVERFLOWED)
                return True
            if self._give_up_oldest():
                continue
            if policy is not Overflow.DROP_OLDEST:
                return False
            self._owner.lose(message, Lost.DROPPED)
            return True
        self._place(message, key, weight, may_drop=policy is Overflow.DROP_OLDEST)
        return True

    def _stands_in_line(self, key: Hashable) -> bool:
        spec = self.spec
        return any(spec.overflow_of(other) is Overflow.COALESCE and spec.key(other) == key for other in self.waiting())

    def _has_room(self, weight: int) -> bool:
        spec = self.spec
        return self.depth < spec.size and (spec.most_weight is None or self._weight + weight <= spec.most_weight)

    def _place(self, message: M, key: Hashable, weight: int, *, may_drop: bool) -> None:
        if key is _NO_KEY and not weight and not may_drop:
            self._append(message)
            return
        entry = _Entry(message, key, weight, may_drop=may_drop)
        if key is not _NO_KEY:
            if self._keyed is None:
                self._keyed = {}
            self._keyed[key] = entry
        if may_drop:
            if self._droppable is None:
                self._droppable = deque()
            self._droppable.append(entry)
        self._weight += weight
        self._append(entry)

    def _append(self, entry: object) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(entry)
        self._wake_reader()

    def _replace(self, key: Hashable, message: M, weight: int) -> bool:
        entry = self._keyed.get(key) if self._keyed else None
        if entry is None:
            return False
        most = self.spec.most_weight
        while most is not None and self._weight - entry.weight + weight > most:
            if not self._give_up_oldest():
                return False
        self._weight += weight - entry.weight
        lost, entry.message, entry.weight = entry.message, message, weight
        self._owner.lose(lost, Lost.COALESCED)
        return True

    def _give_up_oldest(self) -> bool:
        """Drop the oldest message that may be dropped. Called for each message, so without a search."""
        if not self._droppable:
            return False
        entry = self._droppable.popleft()
        entry.is_dropped = True
        self._dropped += 1
        self._weight -= entry.weight
        message, entry.message = entry.message, None
        self._skip_dropped()
        self._owner.lose(message, Lost.DROPPED)
        return True

    def _skip_dropped(self) -> None:
        """Keep a living entry at the head of the queue, and most of the queue alive."""
        queue = self._queue
        while queue and type(queue[0]) is _Entry and queue[0].is_dropped:
            queue.popleft()
            self._dropped -= 1
        if queue and self._dropped > len(queue) // 2:
            self._queue = deque(entry for entry in queue if not (type(entry) is _Entry and entry.is_dropped))
            self._dropped = 0

    def _take(self) -> M:
        entry = self._queue.popleft()  # type: ignore[union-attr]  # callers have looked
        self.taken += 1
        if type(entry) is _Entry:
            self._weight -= entry.weight
            if entry.key is not _NO_KEY and self._keyed:
                self._keyed.pop(entry.key, None)
            if entry.may_drop:
                self._droppable.popleft()  # type: ignore[union-attr]  # both queues have one order
            entry = entry.message
        if self._dropped:
            self._skip_dropped()
        if self._senders:
            self._admit_waiting()
        return entry  # type: ignore[no-any-return]  # what was put in, unwrapped

    def _admit_waiting(self) -> None:
        """Let senders in, first come first served, as long as there is room."""
        senders = self._senders
        while senders:
            task, message = next(iter(senders.items()))
            if not self._admit(message, overtakes=False):
                return
            del senders[task]
            trio.lowlevel.reschedule(task)

    def _wake_reader(self) -> None:
        if self._reader is not None:
            task, self._reader = self._reader, None
            trio.lowlevel.reschedule(task)
