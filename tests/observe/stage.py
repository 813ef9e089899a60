"""A broker that is worth looking at: servers that are up, down and hung, clients of any name, calls that wait."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import attrs
import trio

from callboard import Client, Context, ManualClient, Server, ToolError, connect
from callboard.actors.broker.policy import BackendSettings, Restarts
from callboard.broker import Broker
from callboard.codecs.revisions import LATEST, LEGACY, ClientCapabilities, ElicitationCapability, Implementation
from callboard.config import BackendSpec
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.supervisor import Intensity
from callboard.transports.client.process import Command
from tests.broker.back import Back
from tests.broker.front import backend

C = TypeVar("C")

PRE_WARM: Final = 0.5
MAY_BE_ASKED: Final = ClientCapabilities(elicitation=ElicitationCapability(form={}))
SETTINGS: Final = BackendSettings(
    share="all", max_connections=64, restarts=Restarts(intensity=Intensity(2, per=60.0), cool_down=45.0)
)


@attrs.frozen
class Reader:
    """The form of `borrow`."""

    name: str


def library(name: str, **options: Any) -> Server:
    """A server with a tool for everything that a call can come to. It is a legacy one: the broker parks its calls."""
    server = Server(name, version="1.0", revisions=LEGACY, **options)

    @server.tool
    async def echo(text: str = "") -> str:
        return text

    @server.tool
    async def fail() -> str:
        raise ToolError("no")

    @server.tool
    async def copy(pages: int = 8, *, ctx: Context) -> str:
        await ctx.report(3, total=pages)
        await trio.sleep_forever()

    @server.tool
    async def borrow(*, ctx: Context) -> str:
        return (await ctx.elicit("Who are you?", Reader)).name

    @server.tool
    async def unused() -> str:
        return ""

    @server.resource("book://{title}")
    async def book(title: str) -> str:
        return title

    return server


def up(name: str) -> BackendSpec:
    return backend(library(name), name, SETTINGS)


def down(name: str) -> BackendSpec:
    return BackendSpec(name=name, target=Command(args=(f"/nowhere/{name}",)), settings=SETTINGS)


def hung(name: str) -> BackendSpec:
    """It takes connections, and says nothing."""
    back = Back(hangs=True, holds={"initialize", "server/discover", "ping"})
    return backend(back.ways, name, SETTINGS)


@attrs.define(eq=False)
class Stage:
    """A broker that runs, and its clients, which stay until the end."""

    urls: dict[str, str]
    _nursery: trio.Nursery

    async def client(self, name: str, version: str = "1", revision: str | None = None, **options: Any) -> Client:
        given: Any = {"info": Implementation(name=name, version=version), "revision": revision, **options}
        return await self._stay(connect(self.urls["http"], check_results=False, **given))

    async def asked(self, name: str, **options: Any) -> ManualClient:
        """A client whose calls park where they ask something."""
        given: Any = {"info": Implementation(name=name, version="1"), "revision": LATEST, **options}
        given |= {"capabilities": MAY_BE_ASKED, "check_results": False}
        return await self._stay(connect(self.urls["http"], input="manual", **given))

    def begin(self, client: Client, tool: str, **arguments: Any) -> None:
        """A call that goes on until the end."""

        async def call() -> None:
            await client.call(tool, **arguments)

        self._nursery.start_soon(call)

    async def _stay(self, opening: AbstractAsyncContextManager[C]) -> C:
        async def stay(*, task_status: trio.TaskStatus[C]) -> None:
            async with opening as client:
                task_status.started(client)
                await trio.sleep_forever()

        client: C = await self._nursery.start(stay)
        return client


@asynccontextmanager
async def stage(backends: Sequence[BackendSpec], **options: Any) -> AsyncIterator[Stage]:
    """It ends at once: how a broker drains is tested elsewhere, and takes as long as those that hang may take."""
    broker = Broker(backends, pre_warm=PRE_WARM)
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[Ready]) -> None:
            given: Any = {"http": 0, "admin": 0, **options}
            await serve(broker, task_status=task_status, **given)

        ready = await nursery.start(run)
        urls = {one.transport: one.url or "" for one in ready.listening}
        async with trio.open_nursery() as clients:
            yield Stage(urls, clients)
            clients.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
