"""The base class of actors: a mailbox and a `run`."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import trio

from callboard.supervisor._node import NO_FACTS, Node, Stop
from callboard.supervisor.address import Address
from callboard.supervisor.groups import own_nursery
from callboard.supervisor.lifetime import WHY_SUPERVISOR, Lifetime
from callboard.supervisor.mailbox import Mailbox
from callboard.supervisor.overflow import MailboxSpec
from callboard.supervisor.snapshot import Fact, Snapshot

if TYPE_CHECKING:
    from callboard.supervisor.supervisor import Supervisor

M = TypeVar("M")

DEFAULT_MAILBOX: MailboxSpec[Any] = MailboxSpec()


class Unfinished(Protocol):
    """Work under way, as a drain sees it: it may finish, and is cut short if it takes too long."""

    @property
    def begin_stop(self) -> Callable[[], None] | None:
        """Asks it to end; None for what ends by itself."""

    async def wait_over(self) -> None:
        """Wait for its end."""

    def cut_short(self) -> bool:
        """It takes too long: nothing but `part` answers it from now on. False if it has ended already."""

    async def part(self) -> None:
        """After that: answer that the server ends, for as long as this is not cancelled. Then it is over."""


class Actor(Generic[M]):
    """Base of actors; M is the union of the messages it understands.

    ```python
    @attrs.define(eq=False)
    class Counter(Actor[Add | Get]):
        total: int = 0

        async def run(self) -> None:
            async for message in self.inbox:
                match message:
                    case Add(n):
                        self.total += n
                    case Get():
                        message.reply(self.total)
    ```

    An actor is asked to stop by closing its inbox: the loop above handles what is left, and `run` returns.
    """

    __slots__ = ("_node",)

    mailbox: ClassVar[MailboxSpec[Any] | None] = DEFAULT_MAILBOX
    """Size and overflow of the mailbox; None for an actor that is never spoken to."""

    starts_itself: ClassVar[bool] = False
    """Whether `run`, and not the return of `start`, says that the actor has started."""

    async def start(self) -> None:
        """Get ready, before siblings that follow are started. A failure here is a *start failure*."""

    async def run(self) -> None:
        """The only task body. Returning is ending."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, Fact]:
        """Additional facts for the tree. A "state" replaces the word "running"."""
        return NO_FACTS

    def unfinished(self) -> Iterable[Unfinished]:
        """The work here that a drain lets finish."""
        return ()

    @property
    def inbox(self) -> Mailbox[M]:
        """Messages, in order. Raises LookupError for an actor that declares no mailbox."""
        inbox = self._bound().mailbox
        if inbox is None:
            raise LookupError(f"{type(self).__name__} has no mailbox")
        return inbox

    @property
    def address(self) -> Address[M]:
        """Its own address, for others to hold."""
        return Address(self._bound())

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor it lives under. Raises LookupError at the root."""
        parent = self._bound().parent
        if parent is None:
            raise LookupError(f"{self.path} is the root")
        return parent

    @property
    def name(self) -> str:
        """Its name among its siblings."""
        return self._bound().name

    @property
    def path(self) -> str:
        """Its name, after those of all supervisors above it."""
        return self._bound().path

    @property
    def started_at(self) -> float:
        """When it began, on Trio's clock."""
        return self._bound().started_at

    async def wait_stopping(self) -> None:
        """Wait until the actor is asked to stop: for those that do not loop over their inbox."""
        node = self._bound()
        await trio.lowlevel.checkpoint()
        while node.stop is Stop.NO:
            await node.wait_change()

    @asynccontextmanager
    async def cancel_on_stop(self) -> AsyncIterator[trio.Nursery]:
        """A block that is cancelled when the actor is asked to stop, and its nursery: for an actor that waits for other
        things than messages."""
        async with own_nursery() as nursery:

            async def cancel() -> None:
                await self.wait_stopping()
                nursery.cancel_scope.cancel()

            nursery.start_soon(cancel)
            yield nursery
            nursery.cancel_scope.cancel()

    def expire(self, at: float) -> None:
        """Be cancelled at *at*, on Trio's clock; calling again moves it, `math.inf` takes it back.

        Costs no scope of its own. Asked to stop, the actor gets its drain time and not more, wherever this points.
        """
        self._bound().expire(at)

    # A task that stays with something else.

    @property
    def turn(self) -> object:
        """Stands for the task that runs the actor now: another one after `pass_on`."""
        return self._bound().scope

    def pass_on(self) -> Lifetime:
        """Have a new task call `run`, for the one that runs it now waits for something else: for as long as that takes,
        and whatever becomes of this actor. Returns the lifetime of the task that stays.

        `run` must be able to go on where it was. In the task that stays it returns as soon as it sees that its `turn`
        is over, and cleans nothing up. Raises `SupervisorClosed` if the end has begun.
        """
        return self.supervisor.relaunch(self._bound())

    @property
    def lifetime(self) -> Lifetime:
        """The lifetime of the task that runs the actor."""
        return self._bound()

    @property
    def why_cut(self) -> str | None:
        """Why the actor is being cancelled, for its own `finally`; None if it is not.

        What `kill` was told, or one of the `WHY_` texts: its deadline, its drain time, its supervisor's end.
        """
        why = self._bound().why_cut
        return WHY_SUPERVISOR if why is None and trio.current_effective_deadline() == -math.inf else why

    def _bound(self) -> Node:
        try:
            return self._node
        except AttributeError:
            raise LookupError(f"this {type(self).__name__} is not in a tree yet") from None

    # What the supervisor calls.

    def bind(self, node: Node) -> None:
        """Give the actor its place in the tree. Raises ValueError if it has another one, and lives there.

        A factory may return the same object for every incarnation, if others hold it: then `run` must begin cleanly.
        """
        before = getattr(self, "_node", node)
        if before is not node and before.ended is None:
            raise ValueError(f"this {type(self).__name__} is already in a tree, as {self.path}")
        self._node: Node = node

    def on_stop(self) -> None:
        """The actor was asked to stop. `wait_stopping` and the inbox tell it; a supervisor needs to know more."""

    def drain_time(self) -> float:
        """Seconds it gets to finish."""
        return self._bound().shutdown

    def hidden(self, most: int) -> int:
        """How many children of it `snapshots` leaves out."""
        return 0

    def snapshots(self, now: float, most: int = sys.maxsize) -> tuple[Snapshot, ...]:
        """Its children."""
        return ()
