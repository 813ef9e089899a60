"""One process at a time renews the tokens of a store that several share: a refresh token is good for one use only."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final

import trio

from callboard.errors import NotAuthorized
from callboard.oauth.store import FileStore, Store, in_thread, make_folder

try:
    import fcntl
except ImportError:  # not on Windows: what another process has renewed is noticed there when a refresh is refused
    fcntl = None  # type: ignore[assignment]

TURN_TIME: Final = 20.0
"""Seconds that another process may take to renew tokens. After that it is not waited for: it may hang."""

LOOKED_EVERY: Final = 0.05
"""Seconds after which it is looked again whether another process is done."""


@asynccontextmanager
async def own_turn(store: Store, name: str) -> AsyncIterator[None]:
    """For the block, no other process renews what *store* keeps under *name*, as far as that can be had. Look at the
    store again in it. Raises `NotAuthorized` if the folder cannot be written to."""
    if fcntl is None or not isinstance(store, FileStore):
        yield
        return
    file = await in_thread(_open, store.path(name).with_suffix(".lock"))
    with file:  # which gives the lock up
        with trio.move_on_after(TURN_TIME):
            while not _lock(file):  # noqa: ASYNC110  # another process sets no event
                await trio.sleep(LOOKED_EVERY)
        yield


def _open(path: Path) -> BinaryIO:
    try:
        make_folder(path.parent)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600), "wb", 0)
    except OSError as error:
        raise NotAuthorized(f"{path}: {error.strerror}") from None


def _lock(file: BinaryIO) -> bool:
    """Whether it could be locked now. A file system that has no locks lets everyone in."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
