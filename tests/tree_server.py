"""A server whose tree is compared with what its clients do: hosted or behind a broker, in the test's own process."""

import os
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

import attrs
import trio

from callboard import Context, Server
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.server.drain import drain
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.codecs.revisions.revision import R4
from callboard.serve.options import Options, Ready
from callboard.serve.run import serve
from callboard.server.served import Hosted
from callboard.supervisor import Supervisor, live_trees
from callboard.transports.limits import Settings
from callboard.transports.server.stdio import Pipes
from tests.broker.front import backend, ways_in

Place: TypeAlias = Literal["hosted", "brokered, modern behind", "brokered, legacy behind"]
PLACES: Final[tuple[Place, ...]] = get_args(Place)
NOTE: Final = "truth://note"

MANY: Final = 10_000
"""More of anything than there are."""

SETTINGS: Final = Settings(drain_time=1, max_parked_each=MANY, ping_every=3600)
"""All clients are anonymous and have one address, and so one account. No pings: trio-websocket fails on one that comes
while it closes."""


@attrs.frozen
class Name:
    name: str


@attrs.define(eq=False)
class WaitingServer:
    """A server whose calls wait until they are released."""

    server: Server
    started: set[str] = attrs.field(factory=set, init=False)
    gates: defaultdict[str, trio.Event] = attrs.field(factory=lambda: defaultdict(trio.Event), init=False)
    threads: defaultdict[str, threading.Event] = attrs.field(factory=lambda: defaultdict(threading.Event), init=False)
    _stirred: trio.Event = attrs.field(factory=trio.Event, init=False)

    token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token, init=False)

    def begin(self, label: str) -> None:
        self.started.add(label)
        self._stirred.set()
        self._stirred = trio.Event()

    async def wait(self, label: str) -> str:
        self.begin(label)
        await self.gates[label].wait()
        return label

    async def wait_started(self, label: str) -> None:
        while label not in self.started:
            await self._stirred.wait()

    def release(self, label: str) -> None:
        self.gates[label].set()
        self.threads[label].set()

    def release_all(self) -> None:
        for label in self.started:
            self.release(label)


def waiting_server() -> WaitingServer:
    server = Server("truth", version="1")
    here = WaitingServer(server)

    @server.tool
    async def plain(label: str) -> str:
        return await here.wait(label)

    @server.tool
    async def ctx(label: str, *, ctx: Context) -> str:
        return await here.wait(label)

    @server.tool
    async def reports(label: str, *, ctx: Context) -> str:
        await ctx.report(1)
        return await here.wait(label)

    @server.tool
    def sync(label: str) -> str:
        here.token.run_sync_soon(here.begin, label)
        here.threads[label].wait()
        return label

    @server.tool
    async def parked(label: str, *, ctx: Context) -> str:
        await ctx.elicit(f"Who? ({label})", Name)
        return label

    @server.resource("truth://{label}/wait")
    async def wait(label: str) -> str:
        return await here.wait(label)

    @server.resource(NOTE)
    async def note() -> str:
        return "a note"

    @server.prompt
    async def brief(label: str) -> str:
        return await here.wait(label)

    return here


@attrs.frozen
class PipePair:
    """Both ends of what the server takes for its standard input and output."""

    theirs: Pipes
    incoming: trio.abc.ReceiveStream
    outgoing: trio.abc.SendStream
    turn: trio.Lock = attrs.field(factory=trio.Lock)


@attrs.frozen
class Serving:
    """A server that runs, its tree, and the ways to it."""

    server: WaitingServer
    root: Supervisor
    urls: dict[str, str]
    pipes: PipePair


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[Serving]:
    """Serve over HTTP, WebSocket and a pair of pipes, until the block ends."""
    server, enough = waiting_server(), trio.Event()
    async with AsyncExitStack() as stack:
        served: Hosted = server.server
        if place != "hosted":
            served = await stack.enter_async_context(_brokered(server.server, place))
        pipes = await stack.enter_async_context(_pipes())
        nursery = await stack.enter_async_context(trio.open_nursery())
        options = Options(http=0, ws=0, stdio=pipes.theirs, settings=SETTINGS)
        ready: Ready = await nursery.start(partial(serve, served, until=enough.wait, **options))
        urls = {one.transport: one.url or "" for one in ready.listening}
        (root,) = [root for root in live_trees() if root.path == served.info.name]
        try:
            yield Serving(server, root, {"http": urls["http"], "websocket": urls["ws"]}, pipes)
        finally:
            server.release_all()
            enough.set()


@asynccontextmanager
async def _brokered(server: Server, place: Place) -> AsyncIterator[Hosted]:
    """A broker in front of *server*. It is one client of it, and has more in flight than others may."""
    async with server.host(parking=Parking("truth", most_each=MANY)) as host:
        host.most_in_flight = MANY
        behind = R4 if place == "brokered, legacy behind" else None
        settings = BackendSettings(prefix="", max_in_flight=MANY, max_connections=MANY, share="all", revision=behind)
        try:
            yield Broker([backend(ways_in(host), settings=settings)], name="broker")
        finally:
            # What a legacy client cancelled may be parked here, and is not waited for.
            await drain(host, within=0.1, spread=0)


@asynccontextmanager
async def _pipes() -> AsyncIterator[PipePair]:
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    try:
        async with trio.lowlevel.FdStream(our_in) as incoming, trio.lowlevel.FdStream(our_out) as outgoing:
            yield PipePair(Pipes(their_in, their_out), incoming, outgoing)
    finally:
        os.close(their_in)
        os.close(their_out)
