"""A backend that remembers what it was told, for all that share its process. callboard run tests/apps/memory.py"""

import os
import sys
from typing import Final

import trio

from callboard import Server

server = Server("memory")
told: Final[list[str]] = []


@server.tool
async def remember(text: str) -> str:
    """Keep a text."""
    told.append(text)
    return text


@server.tool
async def recall() -> str:
    """Give all that was kept."""
    return " ".join(told[-200:])


@server.tool
async def echo(text: str, turns: int) -> str:
    """Answer after some turns: later calls may overtake."""
    for _ in range(turns):
        await trio.lowlevel.checkpoint()
    return text


@server.tool
async def around() -> str:
    """Give all that the process was started with."""
    return f"{sys.argv} {dict(os.environ)}"


@server.resource("memory://mine", ttl=60)
async def mine() -> str:
    """What was kept last: for one client alone."""
    return told[-1] if told else ""


@server.resource("memory://all", ttl=60, cache_scope="public")
async def everyone() -> str:
    """The same for all."""
    return "the same for all"
