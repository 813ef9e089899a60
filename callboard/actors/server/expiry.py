"""The end of a token: what is open for long because of it ends, too. A revoked user must not listen on for days.

Calls that were begun with a good token go on: they have deadlines of their own, and their work is half done.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final, Never, TypeVar
from weakref import WeakKeyDictionary

import attrs
import trio

from callboard.codecs.caller import Caller
from callboard.supervisor import Actor, Fact, Supervisor

EXPIRY_LEEWAY: Final = 60.0
"""Seconds that something stays open after its token has ended: clocks differ, and so long is a token taken."""

BREATH: Final = 1.0
"""Shortest time between two looks for what is due, in seconds."""


T = TypeVar("T")


@attrs.define(eq=False)
class _Open:
    """How and when something ends, without a reference to it: it would live as long as its token."""

    caller: Callable[[], Caller]
    end: Callable[[Any], None]
    seen: Caller
    due: float

    def look(self) -> float:
        """When it is due: that changes with the token."""
        if (caller := self.caller()) is not self.seen:
            self.seen, self.due = caller, _due(caller)
        return self.due


@attrs.define(eq=False)
class TokenExpiry(Actor[Never]):
    """Ends streams and sockets when their tokens do. What is gone by then is forgotten without being told."""

    mailbox = None

    root: Supervisor
    _open: "WeakKeyDictionary[object, _Open]" = attrs.field(factory=WeakKeyDictionary, init=False)
    _next: float = attrs.field(default=math.inf, init=False)
    _nap: trio.CancelScope | None = attrs.field(default=None, init=False)
    ended: int = attrs.field(default=0, init=False)

    def add(self, thing: T, caller: Callable[[], Caller], end: Callable[[T], None]) -> None:
        """Call *end* with *thing* when the token of *caller* has ended, which may be renewed meanwhile. Neither of them
        may hold *thing*."""
        seen = caller()
        if seen.expires is None:
            return
        due = _due(seen)
        self._open[thing] = _Open(caller, end, seen, due)
        if due < self._next:
            self._next = due
            if self._nap is not None:
                self._nap.deadline = due
        if self._nap is None:
            self._nap = trio.CancelScope()  # it is started once, and has its own naps then
            self.root.spawn(self, name="token-expiry", shutdown=0)

    async def run(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._next) as self._nap:
                await trio.sleep_forever()
            self._look()
            await trio.sleep(BREATH)

    def _look(self) -> None:
        now, self._next = trio.current_time(), math.inf
        for thing, found in list(self._open.items()):
            if (due := found.look()) <= now:
                self._open.pop(thing, None)
                self.ended += 1
                found.end(thing)
            else:
                self._next = min(self._next, due)

    def facts(self) -> dict[str, Fact]:
        return {"open": len(self._open), "ended": self.ended}


def _due(caller: Caller) -> float:
    """When a token ends, by Trio's clock."""
    if caller.expires is None:
        return math.inf
    return trio.current_time() + caller.expires - time.time() + EXPIRY_LEEWAY
