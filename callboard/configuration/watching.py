"""When a file of servers is to be read anew: when it changed, or when a SIGHUP says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

import attrs
import trio

from callboard.signals import heed_hangups

POLL: Final = 1.0
"""Seconds between two looks at the file. A look costs microseconds, and works on every file system."""

SETTLE: Final = 0.25
"""Seconds for which a file must stay as it is: editors and deployments write in several steps."""


class Why(Enum):
    """What happened."""

    CHANGED = "changed"
    ASKED = "asked"
    """By a signal; whether the file is another one is not known."""


@attrs.frozen
class Stamp:
    """What is another after every change to a file that matters: also one that is put in its place."""

    modified: int
    size: int
    inode: int
    device: int


@attrs.define(eq=False)
class Watcher:
    """Tells of changes to *file*, one after the other: `async for why in watcher`.

    A file that is gone is no change, unless it is asked for by signal: it may be about to be replaced.
    """

    file: Path
    hangups: trio.MemoryReceiveChannel[None]
    _seen: Stamp | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._seen = look(self.file)

    def __aiter__(self) -> "Watcher":
        return self

    async def __anext__(self) -> Why:
        return await self.wait_changed()

    async def wait_changed(self) -> Why:
        """Return when it is time to read the file."""
        while True:
            is_asked = await self._is_asked_within(POLL)
            now = look(self.file)
            if is_asked or (now is not None and now != self._seen):
                self._seen = await self._wait_settled(now)
                return Why.ASKED if is_asked else Why.CHANGED

    async def _wait_settled(self, last: Stamp | None) -> Stamp | None:
        """How the file is when it stays so. Whoever asks meanwhile has asked for this."""
        while True:
            await trio.sleep(SETTLE)
            now = look(self.file)
            if now == last:
                break
            last = now
        await self._is_asked_within(0)
        return last

    async def _is_asked_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self.hangups.receive()
            return True
        return False


@contextmanager
def watching(file: Path) -> Iterator[Watcher]:
    """Watch *file* from now on: begin before it is read for the first time, and no change is missed."""
    with heed_hangups() as hangups:
        yield Watcher(file, hangups)


def look(file: Path) -> Stamp | None:
    """How *file* is; None if it is not there. Not in a thread: that would cost a hundred times as much."""
    try:
        found = file.stat()
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)
