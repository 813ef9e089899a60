"""A backend that can be held in the middle of a call, and tells which process it is."""

import os
import sys

import trio

from callboard import Server

server = Server("held")
enough = trio.Event()


@server.tool
async def pid() -> int:
    return os.getpid()


@server.tool
async def hold() -> int:
    """Answers when it is let go."""
    sys.stderr.write("held\n")
    await enough.wait()
    return os.getpid()


@server.tool
async def let_go() -> str:
    enough.set()
    return "let go"
