"""Files that an operator writes and a server reads, at its start and while it runs."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

import attrs

READ_SIZE: Final = 65_536


class NotRegular(OSError):
    """There is a pipe, a socket or a device in the place of a file."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "is not a regular file")


@attrs.frozen
class Contents:
    """Contents of a file, and the users that may change or read it."""

    data: bytes
    mode: int

    @property
    def others_may_write(self) -> bool:
        return os.name == "posix" and bool(self.mode & stat.S_IWOTH)

    @property
    def others_may_read(self) -> bool:
        return os.name == "posix" and bool(self.mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP))


def read_file(path: Path, most: int, *, is_running: bool = False) -> Contents:
    """The first *most* bytes of a file, and one more if there are more. Raises OSError, `NotRegular`.

    At the start a pipe is fine (`--token-file <(pass show tokens)`), and is waited for. A server that *is_running*
    reads regular files only: to open a pipe without a writer would block for ever.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | (getattr(os, "O_NONBLOCK", 0) if is_running else 0)
    handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if is_running and not stat.S_ISREG(found.st_mode):
            raise NotRegular
        pieces, size = [], 0
        while size <= most and (piece := os.read(handle, min(READ_SIZE, most + 1 - size))):
            pieces.append(piece)
            size += len(piece)
    finally:
        os.close(handle)
    return Contents(b"".join(pieces), found.st_mode)
