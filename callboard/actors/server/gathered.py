"""Frames for one peer that are written together: one write wakes the peer once."""

from typing import Final

import trio

from callboard.actors.outlet import Outbound
from callboard.supervisor import Mailbox

GATHERED: Final = 65_536
"""Bytes from which on frames to one peer are not written together: what a pipe holds."""


def gathered(frame: bytes, inbox: Mailbox[Outbound]) -> list[bytes]:
    """*frame*, and those that wait in *inbox* behind it, up to a limit."""
    frames, size = [frame], len(frame)
    try:
        while size < GATHERED:
            frames.append(inbox.receive_nowait().frame)
            size += len(frames[-1])
    except (trio.WouldBlock, trio.EndOfChannel):
        pass
    return frames
