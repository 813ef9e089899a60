"""The server of `benchmarks.workers`."""

import os

from callboard import Server

server = Server("bench")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def where() -> str:
    """The worker's process id."""
    return str(os.getpid())
