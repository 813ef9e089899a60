"""A process that its parent has started: it serves at the parent's addresses, and the other workers can reach it."""

import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import attrs

from callboard import tree
from callboard.actors.server.host import Host
from callboard.serve.options import ServePlan
from callboard.server.served import Hosted
from callboard.transports.bind import BindAddress, Bound, listen
from callboard.transports.server.http.crowd import ConnectionLimit
from callboard.transports.server.http.listener import Edge, listeners
from callboard.workers.homes import socket_path
from callboard.workers.inner import InnerDoor
from callboard.workers.messages import Started
from callboard.workers.relay import MAX_STREAMS
from callboard.workers.worker import ParentLink, Worker


def inherited(worker: Worker, places: Sequence[BindAddress]) -> dict[BindAddress, Bound]:
    """The sockets that the parent has bound, for each of *places*."""
    return {
        place: Bound(attrs.evolve(place, port=port), tuple(socket.socket(fileno=one) for one in descriptors))
        for place, (port, descriptors) in zip(places, worker.assignment.listening, strict=True)
    }


async def begin_work(
    worker: Worker, host: Host, server: Hosted, plan: ServePlan, warnings: Sequence[str], stack: AsyncExitStack
) -> Callable[[], Awaitable[object]]:
    """Open the door to other workers, and tell the parent that this one serves. Returns what waits for the order to
    leave."""
    place = BindAddress.parse(f"unix:{socket_path(worker.assignment.folder, worker.assignment.name)}")
    bound = await stack.enter_async_context(listen(place))
    if worker.endpoint is not None:
        crowd = ConnectionLimit(3 * MAX_STREAMS * 64)
        edge = Edge(InnerDoor(worker.endpoint), attrs.evolve(plan.settings, keep_alive=75.0), crowd=crowd)
        await host.root.add(tree.inner(listeners(edge, bound.sockets)))
    link = ParentLink(worker, host, server.is_ready)
    host.root.spawn(link, name="parent", shutdown=0)
    link.say(_started(server, warnings))
    return link.leaving.wait


def _started(server: Hosted, warnings: Sequence[str]) -> Started:
    behind = server.behind()
    if behind is None:
        return Started(server.info.name, server.info.version, list(warnings))
    return Started(
        server.info.name,
        server.info.version,
        list(warnings),
        [(one.name, one.state, one.is_up, one.why) for one in behind.servers],
        behind.tools,
        behind.example,
    )
