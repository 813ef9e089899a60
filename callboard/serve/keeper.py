"""The process that its parent has started to own the backends which all workers share."""

from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import trio

from callboard import tree
from callboard.broker.broker import Broker
from callboard.broker.reload import Reloader
from callboard.serve.collector import collecting_now_and_then, collecting_seldom
from callboard.serve.worker import MAX_INNER
from callboard.supervisor import open_tree
from callboard.transports.bind import BindAddress, listen
from callboard.transports.descriptors import raise_descriptor_limit
from callboard.transports.limits import Settings
from callboard.transports.server.http.crowd import ConnectionLimit
from callboard.transports.server.http.listener import Edge, listeners
from callboard.transports.signals import heed_hangups, heed_signals
from callboard.workers.keeper import BackendKeeper, keeper_settings
from callboard.workers.keeper_control import KeeperControl
from callboard.workers.keeper_door import KeeperDoor
from callboard.workers.kept import keeper_path
from callboard.workers.messages import Started
from callboard.workers.worker import Worker

LOOKED_EVERY: Final = 0.2
"""Seconds after which a keeper without a parent looks again whether workers still use it."""


def run_keeper(broker: Broker, worker: Worker, settings: Settings) -> None:
    """Keep the backends of *broker* until a signal says that it is enough. Raises `CannotServe`."""
    raise_descriptor_limit()
    with collecting_seldom():
        trio.run(partial(_run, broker, worker, settings))


async def _run(broker: Broker, worker: Worker, settings: Settings) -> None:
    with (
        trio.CancelScope() as whole,
        heed_signals(whole.cancel) as asked,
        heed_hangups(),
        collecting_now_and_then(),
    ):
        await keep(broker, worker, settings, asked)


async def keep(broker: Broker, worker: Worker, settings: Settings, asked: trio.Event) -> None:
    """Keep backends until *asked* is set; or the parent is gone, and the workers have left."""
    limits = keeper_settings(settings)
    async with AsyncExitStack() as stack:
        bound = await stack.enter_async_context(listen(BindAddress.parse(f"unix:{keeper_path(worker.folder)}")))
        root = await stack.enter_async_context(open_tree(tree.keeper()))
        keeper = BackendKeeper(
            root, limits, skips_invalid=broker.configuration is not None and broker.configuration.skips_invalid
        )
        control = KeeperControl(worker, keeper)
        crowd = ConnectionLimit(MAX_INNER)
        root.spawn(control, name="parent", shutdown=0)
        await keeper.reload(tuple(broker.specs.values()))
        with trio.move_on_after(broker.pre_warm):
            await keeper.wait_settled()
        await root.add(tree.inner("inner", listeners(Edge(KeeperDoor(keeper), limits, crowd=crowd), bound.sockets)))
        if broker.configuration is not None:
            root.spawn(Reloader(keeper, broker.configuration), name="configuration", shutdown=0)
        control.say(Started(broker.info.name, broker.info.version, []))
        await _wait_end(asked, control, keeper, crowd, settings.drain_time)
        keeper.close()


async def _wait_end(
    asked: trio.Event, control: KeeperControl, keeper: BackendKeeper, crowd: ConnectionLimit, drain_time: float
) -> None:
    async with trio.open_nursery() as nursery:

        async def wait_asked() -> None:
            await asked.wait()
            nursery.cancel_scope.cancel()

        async def wait_alone() -> None:
            await control.orphaned.wait()
            with trio.move_on_after(drain_time):
                while crowd.total:
                    keeper.told()  # a worker that waits for news may be gone: that is seen when it is answered
                    await trio.sleep(LOOKED_EVERY)
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait_asked)
        nursery.start_soon(wait_alone)
