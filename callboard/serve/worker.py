"""A process that its parent has started: it serves at the parent's addresses, and the other workers can reach it."""

import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Never

import attrs
import trio

from callboard import tree
from callboard.actors.server.drain import stop_all
from callboard.actors.server.host import Host
from callboard.serve.cluster_options import ClusterPlan
from callboard.serve.options import MOST_WORKERS, ServePlan
from callboard.serve.renew import Renewing
from callboard.server.served import Hosted
from callboard.supervisor import Address, Supervisor
from callboard.supervisor.groups import own_nursery
from callboard.transports.bind import BindAddress, Bound, listen
from callboard.transports.limits import Settings
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.server.http.crowd import ConnectionLimit
from callboard.transports.server.http.listener import Edge, listeners
from callboard.workers.homes import socket_path
from callboard.workers.inner import InnerDoor
from callboard.workers.link import MAX_STREAMS
from callboard.workers.link_server import LinkServer
from callboard.workers.messages import Started
from callboard.workers.node_tls import set_patience
from callboard.workers.worker import ParentLink, Worker

if TYPE_CHECKING:
    from callboard.observe.view import ServerView

MAX_INNER: Final = 3 * MAX_STREAMS * MOST_WORKERS
"""Connections of other workers: as many as all of them may open."""

INNER: Final = ("inner", "nodes")
"""Names of the doors for other workers: those of this node, and of others."""

LOOKED_EVERY: Final = 0.1
"""Seconds after which a worker that leaves looks again whether anything is left."""


def inherited(worker: Worker, places: Sequence[BindAddress]) -> dict[BindAddress, Bound]:
    """The sockets that the parent has bound, for each of *places*."""
    return {
        place: Bound(attrs.evolve(place, port=port), tuple(socket.socket(fileno=one) for one in descriptors))
        for place, (port, descriptors) in zip(places, worker.assignment.listening, strict=True)
    }


def place_backends(worker: Worker, server: Hosted) -> None:
    """Have a broker reach the backends that workers share where they are: at the keeper."""
    if not worker.assignment.has_keeper:
        return
    from callboard.broker.broker import Broker  # and not for a server, which has none
    from callboard.workers.kept import KeptBackends

    if isinstance(server, Broker):
        server.placing = KeptBackends(worker.folder)


async def begin_work(
    worker: Worker, host: Host, server: Hosted, plan: ServePlan, stack: AsyncExitStack, view: "ServerView | None"
) -> ParentLink:
    """Open the door to other workers, and listen to the parent: before any client can come."""
    settings = plan.settings
    place = BindAddress.parse(f"unix:{socket_path(worker.assignment.folder, worker.assignment.name)}")
    bound = await stack.enter_async_context(listen(place))
    edge = Edge(InnerDoor(worker.endpoints), settings, crowd=ConnectionLimit(MAX_INNER))
    await host.root.add(tree.inner(INNER[0], listeners(edge, bound.sockets)))
    if plan.cluster is not None:
        await _open_to_nodes(worker, host, plan.cluster, settings, stack)
    link = ParentLink(worker, host, server.is_ready, view)
    host.root.spawn(link, name="parent", shutdown=0)
    return link


async def _open_to_nodes(
    worker: Worker, host: Host, cluster: ClusterPlan, settings: Settings, stack: AsyncExitStack
) -> None:
    """The same door for workers of other nodes: at any port, to those with a certificate of the operator's CA."""
    certificate = worker.homes.certificate = cluster.certificate()
    bound = await stack.enter_async_context(listen(BindAddress(cluster.address)))
    for listening in bound.sockets:
        set_patience(listening)
    worker.port = bound.place.port
    edge = Edge(InnerDoor(worker.endpoints), settings, certificate, crowd=ConnectionLimit(MAX_INNER))
    await host.root.add(tree.inner(INNER[1], listeners(edge, bound.sockets)))
    host.root.spawn(Renewing(certificate), name=f"renew-{certificate.name}", shutdown=0)


async def leave(
    worker: Worker,
    host: Host,
    edges: Sequence[Supervisor],
    close_doors: Callable[[], Awaitable[None]],
    until: Callable[[], Awaitable[None]],
    spread: float,
) -> None:
    """A newer generation serves. Take no more connections, but cut none that a client may be about to use; let
    requests finish, parked ones too, whose retries other workers forward; pass idle sessions on. Returns when nothing
    is left, or *until* does."""
    await close_doors()
    for endpoint in worker.endpoints:
        endpoint.is_leaving = True
    async with own_nursery() as nursery:

        async def stop() -> None:
            await until()
            nursery.cancel_scope.cancel()

        nursery.start_soon(stop)
        nursery.start_soon(_send_away, host, edges, spread)
        while True:
            for endpoint in worker.endpoints:
                endpoint.hand_over(worker.homes.release)
            busy = len(host.parking) + host.in_flight.total + host.sessions.total + worker.share.connections
            busy += 0 if host.offer.task_store is None else host.offer.task_store.waiting
            if not busy:
                break
            await trio.sleep(LOOKED_EVERY)
        nursery.cancel_scope.cancel()


async def _send_away(host: Host, edges: Sequence[Supervisor], spread: float) -> None:
    """End subscriptions and WebSockets, one after the other: their clients come back, and reach another worker. A
    WebSocket that comes back here by way of another worker meanwhile is ended at once."""
    stops = [work.begin_stop for work in host.root.unfinished() if work.begin_stop is not None]
    inner = [host.root.supervisor_of(name) for name in INNER if host.root.node(name) is not None]
    told, until = set[Address[Never]](), trio.current_time() + spread
    while True:
        found = {one for edge in (*edges, *inner) for one in _websockets(edge)}
        await stop_all([*stops, *(one.begin_stop for one in found - told)], until)
        told, stops = found, []
        await trio.sleep(LOOKED_EVERY)


def _websockets(edge: Supervisor) -> Iterator[Address[Never]]:
    """The connections that carry one, or pass one on."""
    for address, actor in edge.supervisor_of(tree.CONNECTIONS).actors():
        if isinstance(actor, HttpConnection) and not isinstance(actor.upgraded, LinkServer | None):
            yield address


def started(server: Hosted, warnings: Sequence[str], port: int, files: Sequence[str] = ()) -> Started:
    """What the parent is told when it serves."""
    behind = server.behind()
    if behind is None:
        return Started(server.info.name, server.info.version, list(warnings), port=port, files=list(files))
    return Started(
        server.info.name,
        server.info.version,
        list(warnings),
        [(one.name, one.state, one.is_up, one.why) for one in behind.servers],
        behind.tools,
        behind.example,
        port,
        server.is_ready(),
    )
