"""A keeper and brokers that share its backends, all in the test's own process: real sockets between them."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from callboard import tree
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.client.routes import TransportRoutes
from callboard.config import BackendSpec
from callboard.server import Server
from callboard.supervisor import open_tree
from callboard.transports.bind import BindAddress, listen
from callboard.transports.limits import Settings
from callboard.transports.server.http.crowd import ConnectionLimit
from callboard.transports.server.http.listener import Edge, listeners
from callboard.workers.keeper import BackendKeeper, keeper_settings
from callboard.workers.keeper_door import KeeperDoor
from callboard.workers.kept import KeptBackends, keeper_path
from tests.broker.front import STUCK, backend

QUICK = Settings(write_time=1.0)


@asynccontextmanager
async def keeping(folder: str, *specs: BackendSpec, skips_invalid: bool = False) -> AsyncIterator[BackendKeeper]:
    """A keeper of these backends, as long as the block lasts."""
    limits = keeper_settings(QUICK)
    async with listen(BindAddress.parse(f"unix:{keeper_path(folder)}")) as bound, open_tree(tree.keeper()) as root:
        keeper = BackendKeeper(root, limits, skips_invalid=skips_invalid)
        await keeper.reload(specs)
        await keeper.wait_settled()
        edge = Edge(KeeperDoor(keeper), limits, crowd=ConnectionLimit(1000))
        await root.add(tree.inner("inner", listeners(edge, bound.sockets)))
        try:
            yield keeper
        finally:
            keeper.close()


@attrs.define(eq=False)
class Shared:
    """The brokers of all workers, and the keeper."""

    folder: str
    keeper: BackendKeeper
    brokers: Sequence[Broker]
    hosts: Sequence[Host]

    async def reload(self, *specs: BackendSpec) -> None:
        """As if the file of all of them had changed: the keeper reads it first."""
        await self.keeper.reload(specs)
        for broker in self.brokers:
            await broker.reload(specs)


def worker(folder: str, *specs: BackendSpec, **said: object) -> Broker:
    """The broker of one worker."""
    broker = Broker(specs, **said)  # type: ignore[arg-type]  # options of a broker
    broker.placing = KeptBackends(folder)
    return broker


@asynccontextmanager
async def sharing(
    *backends: BackendSpec | Server | TransportRoutes, workers: int = 2, within: float = STUCK, **said: object
) -> AsyncIterator[Shared]:
    """So many workers in front of *backends*."""
    specs = [one if isinstance(one, BackendSpec) else backend(one) for one in backends]
    with tempfile.TemporaryDirectory() as folder, trio.fail_after(within):
        async with keeping(folder, *specs) as keeper, AsyncExitStack() as stack:
            brokers = [worker(folder, *specs, **said) for _ in range(workers)]
            hosts = [await stack.enter_async_context(one.host(parking=Parking("broker"))) for one in brokers]
            yield Shared(folder, keeper, brokers, hosts)
