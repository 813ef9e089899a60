"""Actors that play a script and write down what happens to them, with the virtual time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import attrs
import trio

from callboard.supervisor import Actor, Ask, Backoff, ChildSpec, Restart

STEADY = Backoff(first=0.1, most=5.0, jitter=0.0)
"""Back-off without chance: 0.1, 0.2, 0.4 ..."""


class Boom(Exception):
    """What a player raises when its script says so."""


@attrs.define
class History:
    """What happened, as `"name+ 1.1"` (started) and `"name- 1"` (ended)."""

    events: list[str] = attrs.field(factory=list)

    def add(self, event: str) -> None:
        self.events.append(f"{event} {round(trio.current_time(), 6):g}")

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self.add(f"{name}+")
        try:
            yield
        finally:
            self.add(f"{name}-")

    def take(self) -> list[str]:
        taken, self.events = self.events, []
        return taken


@attrs.frozen
class Add:
    n: int


@attrs.frozen
class Get(Ask[int]):
    pass


@attrs.frozen
class Crash(Ask[int]):
    """Be the message over which the actor crashes."""


@attrs.frozen
class Return:
    pass


@attrs.frozen
class Hang(Ask[int]):
    """Be handled for ever."""


Message: TypeAlias = Add | Get | Crash | Return | Hang


@attrs.define(eq=False)
class Player(Actor[Message]):
    """Counts, and dies as told."""

    name: str = "player"
    history: History = attrs.field(factory=History)
    fail_start: Callable[[], bool] = lambda: False
    linger: float = 0.0
    """How long it takes to stop gracefully."""
    total: int = 0

    async def start(self) -> None:
        if self.fail_start():
            self.history.add(f"{self.name}!")
            raise Boom("start")

    async def run(self) -> None:
        with self.history.of(self.name):
            async for message in self.inbox:
                match message:
                    case Add(n):
                        self.total += n
                    case Get():
                        message.reply(self.total)
                    case Crash():
                        raise Boom(self.name)
                    case Return():
                        return
                    case Hang():
                        await trio.sleep_forever()
            if self.linger:
                await trio.sleep(self.linger)


def player(
    name: str,
    history: History,
    *,
    restart: Restart = Restart.PERMANENT,
    shutdown: float = 5.0,
    significant: bool = False,
    fail_start: Callable[[], bool] = lambda: False,
    linger: float = 0.0,
) -> ChildSpec[Message]:
    return ChildSpec(
        name,
        lambda: Player(name, history, fail_start, linger),
        restart=restart,
        shutdown=shutdown,
        significant=significant,
    )


def fails_on(*starts: int) -> Callable[[], bool]:
    """A start that fails the nth times given, counted from 1."""
    count = 0

    def fails() -> bool:
        nonlocal count
        count += 1
        return count in starts

    return fails
