"""When files of the operator are to be read anew: when they changed, or when a SIGHUP says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

import attrs
import trio

from callboard.transports.signals import heed_hangups

POLL: Final = 0.5
"""Seconds between two looks at the file. A look costs microseconds, and works on every file system. With `SETTLE`, what
was revoked is refused within a second."""

SETTLE: Final = 0.25
"""Seconds for which a file must stay as it is: editors and deployments write in several steps."""


class Why(Enum):
    """Reason of a reload."""

    CHANGED = "changed"
    ASKED = "asked"
    """By a signal; whether the file is another one is not known."""
    AGAIN = "again"
    """It could not be read the last time."""


@attrs.frozen
class Stamp:
    """A value that differs after every relevant change of a file, its replacement included."""

    modified: int
    size: int
    inode: int
    device: int


@attrs.define(eq=False)
class Watcher:
    """Tells of changes to *files*, which belong together, one after the other: `async for why in watcher`.

    A file that is gone is no change, unless it is asked for by signal: it may be about to be replaced.
    """

    files: tuple[Path, ...]
    hangups: trio.MemoryReceiveChannel[None]
    _seen: tuple[Stamp | None, ...] = attrs.field(init=False)
    _is_unread: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._seen = self._look()

    def __aiter__(self) -> "Watcher":
        return self

    async def __anext__(self) -> Why:
        return await self.wait_changed()

    def try_again(self) -> None:
        """The files could not be read: have them read again soon, whether they change or not."""
        self._is_unread = True

    async def wait_changed(self) -> Why:
        """Return when it is time to read the files."""
        while True:
            is_asked = await self._is_asked_within(POLL)
            now = self._look()
            is_changed = any(new is not None and new != old for new, old in zip(now, self._seen, strict=True))
            if is_asked or is_changed or self._is_unread:
                self._is_unread, is_again = False, self._is_unread
                self._seen = await self._wait_settled(now)
                return Why.ASKED if is_asked else Why.AGAIN if is_again and not is_changed else Why.CHANGED

    async def _wait_settled(self, last: tuple[Stamp | None, ...]) -> tuple[Stamp | None, ...]:
        """How the files are when they stay so. A reload that is asked for meanwhile is this one."""
        while True:
            await trio.sleep(SETTLE)
            now = self._look()
            if now == last:
                break
            last = now
        await self._is_asked_within(0)
        return last

    def _look(self) -> tuple[Stamp | None, ...]:
        return tuple(look(file) for file in self.files)

    async def _is_asked_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self.hangups.receive()
            return True
        return False


@contextmanager
def watching(*files: Path) -> Iterator[Watcher]:
    """Watch *files* from now on: begin before they are read for the first time, and no change is missed."""
    with heed_hangups() as hangups:
        yield Watcher(files, hangups)


def look(file: Path) -> Stamp | None:
    """How *file* is; None if it is not there. Not in a thread: that would cost a hundred times as much."""
    try:
        found = file.stat()
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev)
