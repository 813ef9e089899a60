"""One process at a time renews the tokens of a store that several share: a refresh token is good for one use only."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final

import trio

from callboard.oauth.store import FileStore, Store, in_thread, make_folder

TURN_TIME: Final = 20.0
"""Seconds that another process may take to renew tokens. After that it is not waited for: it may hang."""

LOOKED_EVERY: Final = 0.05
"""Seconds after which it is looked again whether another process is done."""

_CAN_LOCK: Final = os.name == "posix"
"""Elsewhere, what another process has renewed is noticed when a refresh is refused."""


@asynccontextmanager
async def own_turn(store: Store, name: str) -> AsyncIterator[None]:
    """For the block, no other process renews what *store* keeps under *name*, as far as that can be had. Look at the
    store again in it."""
    file = None
    if _CAN_LOCK and isinstance(store, FileStore):
        file = await in_thread(_open, store.path(name).with_suffix(".lock"))
    with nullcontext() if file is None else file:  # which gives the lock up
        if file is not None:
            with trio.move_on_after(TURN_TIME):
                while not _lock(file):  # noqa: ASYNC110  # another process sets no event
                    await trio.sleep(LOOKED_EVERY)
        yield


def _open(path: Path) -> BinaryIO | None:
    """None for a folder that cannot be written to: then no other process can keep what it renews there, either."""
    try:
        make_folder(path.parent)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600), "wb", 0)
    except OSError:
        return None


def _lock(file: BinaryIO) -> bool:
    """Whether it could be locked now. A file system that has no locks lets everyone in."""
    import fcntl  # which Windows does not have

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
