"""Sessions as `callboard.connect` opens them: any target, any transport, any revision."""

import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar, Final
from urllib.parse import urlsplit

import attrs
import trio

from callboard.actors.client.link import Link
from callboard.bench.engine import Lane, OpenLane
from callboard.bench.seats import L, Open
from callboard.bench.work import Act
from callboard.client.client import Client, Common, connect
from callboard.client.routes import Target, TransportRoute, TransportRoutes
from callboard.client.target_hints import no_target
from callboard.codecs.http.access import is_loopback
from callboard.config.entry import Remote, is_entry, read_entry
from callboard.errors import CannotConnect
from callboard.server.load import is_module_target
from callboard.server.server import Server
from callboard.transports.client.process import Command, OnStderr, running

_UNIX: Final = "+unix"


@attrs.define(eq=False)
class ClientLane:
    """A session of callboard's own client."""

    client: Client
    process: trio.Process | None = None
    """The server's, if it is a child of ours and its figures are wanted."""
    ignored: int = 0
    """How many of the late answers have been counted."""
    renewals: int = 0
    """How many of the sessions that the client opened in place of one that the server had ended have been counted."""

    @property
    def is_lost(self) -> bool:
        return self.client.is_lost

    async def do(self, act: Act) -> None:
        await act.do(self.client)


def by_client(target: Target, options: Common, on_open: Callable[[Client], None]) -> Open[ClientLane]:
    """Sessions at *target*; *on_open* is given each."""

    @asynccontextmanager
    async def open_lane() -> AsyncIterator[ClientLane]:
        async with connect(target, **options) as client:
            on_open(client)
            yield ClientLane(client)

    return open_lane


def by_process(command: Command, options: Common, on_open: Callable[[Client], None], pids: set[int]) -> OpenLane:
    """As `by_client`, each with the process that is at its other end."""

    @asynccontextmanager
    async def open_lane() -> AsyncIterator[Lane]:
        started: list[trio.Process] = []
        ways = watched(command, options.get("on_stderr"), pids, started.append)
        async with connect(ways, **options) as client:
            on_open(client)
            yield ClientLane(client, started[-1])

    return open_lane


@attrs.frozen(eq=False)
class ChurnLane:
    """No session that lasts: each request opens one, and ends it."""

    open: Open[Client]
    on_open: Callable[[Client], None]
    is_lost: ClassVar[bool] = False

    async def do(self, act: Act) -> None:
        async with self.open() as client:
            self.on_open(client)
            await act.do(client)


def by_churn(open_client: Open[Client], on_open: Callable[[Client], None]) -> OpenLane:
    """Sessions that are opened, asked once and closed."""

    @asynccontextmanager
    async def open_lane() -> AsyncIterator[Lane]:
        await trio.lowlevel.checkpoint()
        yield ChurnLane(open_client, on_open)

    return open_lane


def within(seconds: float, open_lane: Open[L]) -> Open[L]:
    """As *open_lane*, for a server that has so many seconds to be there. Raises `CannotConnect` if it is not."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[L]:
        with trio.CancelScope(deadline=trio.current_time() + seconds) as opening:
            async with open_lane() as lane:
                opening.deadline = math.inf
                yield lane
        if opening.cancelled_caught:
            raise CannotConnect(f"the server did not answer within {seconds:g} s")

    return opened


def resolved(target: Target) -> Command | Remote | Server:
    """The target that *target* names. A server in a file runs in its own process, so that it has its own core.

    Raises `CannotConnect`.
    """
    if isinstance(target, str):
        if "://" in target:
            return Remote(url=target)
        if is_entry(target):
            return read_entry(target)
        if ".py" in target or (":" in target and is_module_target(target)):
            return Command.of([sys.executable, "-m", "callboard", "run", target])
        raise no_target(target)
    if isinstance(target, TransportRoutes):
        raise TypeError("ways are what comes of this")
    return target if isinstance(target, Command | Remote | Server) else Command.of(target)


def is_here(target: Command | Remote | Server) -> bool:
    """Whether it is on this machine: a remote server is not loaded by mistake."""
    if not isinstance(target, Remote):
        return True
    try:
        parts = urlsplit(target.url)
        return parts.scheme.endswith(_UNIX) or is_loopback(parts.hostname or "")
    except ValueError:
        return False


def watched(
    command: Command,
    on_stderr: OnStderr | None,
    pids: set[int],
    on_start: Callable[[trio.Process], None] = lambda _: None,
) -> TransportRoutes:
    """The way to *command*: while it runs, its process is among *pids*; *on_start* is given it."""

    @asynccontextmanager
    async def open_link() -> AsyncIterator[Link]:
        async with running(command, on_stderr) as link:
            pids.add(link.process.pid)
            on_start(link.process)
            try:
                yield link
            finally:
                pids.discard(link.process.pid)

    return TransportRoutes((command.args, command.cwd), (TransportRoute("stdio", open_link),))
