"""Reads a connection that requests share, and runs what needs no task of its own between two frames."""

import math
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Never, Protocol

import attrs
import trio

from callboard.actors.server.adoption import run_noticing
from callboard.actors.server.dispatch import Dispatch
from callboard.actors.server.host import Errand, Host
from callboard.actors.server.inline import InlineRequest
from callboard.actors.server.reply_slot import ReplySlot
from callboard.errors import Draining, PeerError, RequestTimedOut, SupervisorClosed
from callboard.supervisor import Actor, Address, Fact, Unfinished


@attrs.define(eq=False)
class InlineCall:
    """An inline call that waits in the reader's task."""

    slot: ReplySlot
    name: str
    end: Callable[[], None]
    """Cuts it short."""
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    begin_stop: None = attrs.field(default=None, init=False)

    async def wait_over(self) -> None:
        await self.over.wait()

    def cut_short(self) -> bool:
        return not self.over.is_set()

    async def part(self) -> None:
        try:
            await self.slot.fail(Draining())
        finally:
            self.end()


class Receiver(Protocol):
    """The session, as its reader needs it."""

    host: Host
    requests: Dispatch

    async def receive(self, frame: bytes | PeerError) -> bool:
        """Deal with what the client says."""

    def hang_up(self) -> None:
        """The client says nothing more."""


@attrs.define(eq=False)
class Reader(Actor[Never]):
    """Reads the frames of a connection. Its end is the end of the session.

    An inline call that never waits is over before the next frame could be read, so it runs here. The first time
    that one waits, the reader stays with it, since a coroutine cannot change its task, and a stand-in reads on until it
    ends. A tool that waited once gets its own task from then on.
    """

    mailbox = None

    session: Receiver
    frames: AsyncIterable[bytes | PeerError]
    carried: InlineCall | None = attrs.field(default=None, init=False)
    """The stand-in that waits here, if there is one."""
    _waits: set[str] = attrs.field(factory=set, init=False)  # names of tools
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _deputy: "tuple[StandIn, Address[Never]] | None" = attrs.field(default=None, init=False)

    async def run(self) -> None:
        self.session.requests.carrier = self
        try:
            while not await self._read():
                pass
        finally:
            self.session.requests.carrier = self._deputy = self.carried = None  # the latter two hold this reader
            self.session.hang_up()

    def unfinished(self) -> Iterable[Unfinished]:
        return () if self.carried is None else (self.carried,)

    def facts(self) -> dict[str, Fact]:
        return {} if self.carried is None else {"state": "waits", "tool": self.carried.name}

    async def _read(self) -> bool:
        """Read to the end; False if an inline call was cut short. One scope for all inline calls that never wait."""
        is_over = False
        with trio.CancelScope() as self._scope:
            async for frame in self.frames:
                await self.session.receive(frame)
                if self._deputy is not None and await self._is_over():
                    break
            is_over = True
        if is_over:
            return True
        carried, is_over = self.carried, await self._is_over()
        if carried is not None:  # unless it was cancelled, which closed the slot
            await carried.slot.fail(RequestTimedOut(after=self.session.host.cap))
        return is_over

    # Inline calls.

    def carries(self, name: str) -> bool:
        """Whether a call of this tool may run here."""
        return self.carried is None and name not in self._waits

    async def carry(self, errand: Errand, slot: ReplySlot, name: str, cap: float) -> None:
        """Run an inline call here, and answer with its outcome. If the peer does not read, the answer waits here."""

        def on_wait() -> None:
            self.carried = InlineCall(slot, name, self._scope.cancel)
            if slot.is_open:
                self._waits.add(name)
                self.session.requests.note(slot, InlineRequest(slot, self._scope.cancel))
                self._scope.deadline = trio.current_time() + cap
            self._hand_over()

        await run_noticing(self._answer(errand, slot), on_wait)

    async def _answer(self, errand: Errand, slot: ReplySlot) -> None:
        outcome = await errand
        if self.carried is not None:
            self._scope.deadline = math.inf  # an answer is not torn by the deadline of the work
        await slot.answer(outcome)

    def _hand_over(self) -> None:
        """Never raises: an inline call waits."""
        deputy = StandIn(self.session, self.frames, self._no_more)
        try:
            self._deputy = deputy, self.supervisor.spawn(deputy, name="deputy")
        except SupervisorClosed:
            return  # the end has begun: nothing more is read

    def _no_more(self) -> None:
        """The peer has said its last: an answer that waits for it to read does not wait much longer."""
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + self.supervisor.spec.drain)

    async def _is_over(self) -> bool:
        """Take the reading back. Whether there is nothing more to read."""
        if self.carried is not None:
            self.carried.over.set()
        is_over = False
        if self._deputy is not None:
            deputy, address = self._deputy
            deputy.hand_back()
            await address.wait_ended()
            is_over = deputy.is_over
        self._deputy = self.carried = None
        return is_over


@attrs.define(eq=False)
class StandIn(Actor[Never]):
    """Reads on while the reader is busy, and runs nothing itself."""

    mailbox = None

    session: Receiver
    frames: AsyncIterable[bytes | PeerError]
    on_end: Callable[[], None]
    is_over: bool = attrs.field(default=False, init=False)
    """Whether it has read to the end."""
    _is_wanted: bool = attrs.field(default=True, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self) -> None:
        reading = aiter(self.frames)
        while self._is_wanted:
            with trio.CancelScope() as self._scope:
                try:
                    frame = await anext(reading)
                except StopAsyncIteration:
                    self.is_over = True
                    self.session.hang_up()
                    self.on_end()
                    return
            if self._scope.cancelled_caught:
                return
            self._scope = trio.CancelScope()  # what it has read, it deals with
            await self.session.receive(frame)

    def hand_back(self) -> None:
        """Read nothing more. What was read is dealt with first."""
        self._is_wanted = False
        self._scope.cancel()
