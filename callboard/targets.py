"""What can be connected to: URLs, commands, and servers of this process."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import urlsplit

from callboard.actors.duplex import DuplexLink
from callboard.actors.link import Link
from callboard.actors.session import open_session
from callboard.errors import CannotConnect
from callboard.server import Server
from callboard.transports.client.http import HttpLink
from callboard.transports.client.pool import Origin, Pool
from callboard.transports.client.process import Command, running
from callboard.transports.memory import memory_pair

Target: TypeAlias = str | Sequence[str] | Command | Server
"""A URL, a command with its arguments, or a `Server`."""


@asynccontextmanager
async def open_link(target: Target, headers: Mapping[str, str]) -> AsyncIterator[Link]:
    """A link to *target*. Raises `CannotConnect`."""
    if isinstance(target, Server):
        async with target.host() as host:
            there, here = memory_pair()
            await open_session(host, here, "client")
            try:
                yield DuplexLink(there)
            finally:
                there.close()
    elif isinstance(target, str):
        yield _by_url(target, headers)
    else:
        command = target if isinstance(target, Command) else Command.of(target)
        async with running(command) as link:
            yield link


def _by_url(url: str, headers: Mapping[str, str]) -> Link:
    parts = urlsplit(url)
    origin = Origin.of(parts)
    if origin.scheme not in ("http", "https"):
        raise CannotConnect(f"{parts.scheme}:// cannot be connected to yet")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    given = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
    return HttpLink(Pool(origin), target.encode("ascii"), given)
