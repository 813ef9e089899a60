"""Places for sessions. Each is held by a task of its own, and a session that is lost is replaced."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, TypeAlias, TypeVar

import attrs
import trio

from callboard.errors import CallboardError

CONNECTING: Final = 32
"""Sessions that are opened at once."""

PAUSE: Final = 0.1
"""Seconds between the loss of a connection and another: nothing is gained by failing as fast as one can."""

LOST: Final = "sessions_lost"
REOPENED: Final = "sessions_reopened"
RENEWED: Final = "sessions_renewed"

L = TypeVar("L")
Open: TypeAlias = Callable[[], AbstractAsyncContextManager[L]]


@attrs.define(eq=False)
class Seat(Generic[L]):
    """A place for one session, which is *current* but for the time that it takes to open another."""

    number: int
    open: Open[L]
    on_event: Callable[[str], None]
    """Is told what becomes of the session: `LOST`, `REOPENED`, `RENEWED`."""
    on_failure: Callable[[CallboardError], None]
    """Is told why another could not be opened. It is tried again."""
    current: L | None = attrs.field(default=None, init=False)
    uses: int = attrs.field(default=0, init=False)
    """How often the current session was used, for profiles that count that."""
    took: float = attrs.field(default=0.0, init=False)
    """Seconds that it took to open the current session."""
    on_answer: Callable[[], None] | None = attrs.field(default=None, init=False)
    """Is told of an answer, for a profile that waits for the first one."""
    _opened: trio.Event = attrs.field(factory=trio.Event, init=False)
    _left: trio.Event = attrs.field(factory=trio.Event, init=False)
    _next: str = attrs.field(default="", init=False)
    """The event to count for the next session: reopened or renewed."""
    _is_over: bool = attrs.field(default=False, init=False)
    _whole: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def lane(self) -> L:
        """The session, as soon as there is one."""
        while self.current is None:
            await self._opened.wait()
        return self.current

    def lose(self, lane: L) -> None:
        """Report a lost session, once or several times. Another one will be opened."""
        if self.current is lane:
            self.on_event(LOST)
            self._leave(REOPENED)

    async def renew(self) -> L:
        """End the session, and open another at once."""
        if self.current is not None:
            self._leave(RENEWED)
        return await self.lane()

    def end(self) -> None:
        """No session is needed any more. One that is open is ended as it should be."""
        self._is_over = True
        if self.current is None:
            self._whole.cancel()
        else:
            self._leave("")

    def _leave(self, why: str) -> None:
        self.current, self._next, self.uses = None, why, 0
        self._opened = trio.Event()
        self._left.set()

    async def hold(
        self, turns: trio.CapacityLimiter, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Have sessions, one after the other. Raises the `CallboardError` that keeps the first from opening."""
        with self._whole:
            await self._hold(turns, task_status)
            while not self._is_over:
                if self._next != RENEWED:
                    await trio.sleep(PAUSE)
                try:
                    await self._hold(turns, None)
                except CallboardError as error:
                    if self.current is not None:
                        self._leave(REOPENED)
                    self.on_failure(error)

    async def _hold(self, turns: trio.CapacityLimiter, task_status: trio.TaskStatus[None] | None) -> None:
        self._left = trio.Event()
        await turns.acquire_on_behalf_of(self)
        began = trio.current_time()
        try:
            async with self.open() as lane:
                turns.release_on_behalf_of(self)
                self.current, self.took = lane, trio.current_time() - began
                self._opened.set()
                if task_status is not None:
                    task_status.started()
                else:
                    self.on_event(self._next)
                await self._left.wait()
        finally:
            if self in turns.statistics().borrowers:
                turns.release_on_behalf_of(self)


@asynccontextmanager
async def seated(seats: Sequence[Seat[L]]) -> AsyncIterator[None]:
    """All of *seats*, opened a few at a time."""
    turns = trio.CapacityLimiter(CONNECTING)
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as opening:
            for seat in seats:
                opening.start_soon(nursery.start, seat.hold, turns)
        yield
        for seat in seats:
            seat.end()
