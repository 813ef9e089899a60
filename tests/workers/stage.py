"""Several workers in one process: each with its own server and listener, real sockets between them, and one book."""

import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import trio

from callboard import tree
from callboard.actors.server.parking import Parking
from callboard.codecs.home import HomeNames, new_worker_name
from callboard.codecs.http.access import Access
from callboard.codecs.seal import KeyRing
from callboard.supervisor import Supervisor
from callboard.transports.limits import Settings
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.server.http.crowd import ConnectionLimit
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.guard import Authenticate
from callboard.transports.server.http.listener import Edge, http_edge, listeners
from callboard.transports.server.websocket.upgrade import WebSocketUpgrade
from callboard.workers.book import Book, Found
from callboard.workers.homes import WorkerHomes, socket_path
from callboard.workers.inner import InnerDoor
from callboard.workers.messages import PeerWorker
from tests.transports.server.http.house import House, open_house
from tests.transports.server.http.stage import PATIENCE, QUICK, Place, settle


@attrs.define(eq=False)
class Worker:
    """One of them."""

    name: bytes
    homes: WorkerHomes
    house: House
    place: Place = attrs.field(init=False)
    inner: Supervisor = attrs.field(init=False)
    up: trio.Event = attrs.field(factory=trio.Event, init=False)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    over: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def forwarded(self) -> int:
        return self.homes.forwarded


@attrs.define(eq=False)
class Desk:
    """The book, as one worker has it: what the parent does by messages, without them."""

    office: "Office"
    home: bytes

    def keep(self, key: str, record: bytes) -> None:
        self.office.book.keep(key, record, self.home)

    def drop(self, key: str) -> None:
        self.office.book.drop(key)

    def release(self, key: str) -> None:
        self.office.book.release(key, self.home, trio.current_time())

    async def take(self, key: str) -> Found | None:
        await trio.lowlevel.checkpoint()
        living = {worker.name for worker in self.office.workers if not worker.over.is_set()}
        taker = self.home if self.home not in self.office.leaving else next(iter(living - self.office.leaving))
        found = self.office.book.take(key, taker, living, trio.current_time())
        return found if found is None or found.home == self.home else Found(found.home)


@attrs.define(eq=False)
class Office:
    """All workers, and what their parent would keep."""

    workers: list[Worker] = attrs.field(factory=list)
    leaving: set[bytes] = attrs.field(factory=set)
    book: Book = attrs.field(factory=lambda: Book(ttl=60.0))

    def meet(self) -> None:
        """Each hears of the others."""
        living = [worker for worker in self.workers if not worker.over.is_set()]
        for worker in living:
            worker.homes.know([PeerWorker(one.name, number, 1) for number, one in enumerate(living)])

    async def kill(self, worker: Worker, *, is_known: bool = True) -> None:
        """End one at once, as a crash would: without a word. *is_known*: whether the others are told."""
        worker.homes.book = None
        for edge in (worker.place.edge, worker.inner):
            for _, actor in edge.supervisor_of(tree.CONNECTIONS).actors():
                assert isinstance(actor, HttpConnection)
                actor.wire.close()
        worker.scope.cancel()
        await worker.over.wait()
        self.book.free_all_of(worker.name, trio.current_time())
        if is_known:
            self.meet()


@asynccontextmanager
async def office(
    folder: Path,
    count: int = 2,
    settings: Settings = QUICK,
    authenticate: Authenticate | None = None,
    patience: float = PATIENCE,
    arrange: Callable[[House], None] = lambda _: None,
) -> AsyncIterator[tuple[Office, Sequence[Worker]]]:
    """So many workers that know each other. *arrange* adds to what each offers."""
    ring, all_ = KeyRing.generate(), Office()
    with trio.fail_after(patience):
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                name = new_worker_name()
                worker = Worker(name, WorkerHomes(HomeNames(ring, name), str(folder)), open_house())
                worker.homes.book = Desk(all_, name)
                arrange(worker.house)
                all_.workers.append(worker)
                nursery.start_soon(_serve, worker, ring, folder, settings, authenticate)
                await worker.up.wait()
            all_.meet()
            try:
                yield all_, all_.workers
                await settle()  # a connection that was not begun yet would not be closed either
            finally:
                nursery.cancel_scope.cancel()


async def _serve(
    worker: Worker, ring: KeyRing, folder: Path, settings: Settings, authenticate: Authenticate | None
) -> None:
    path = socket_path(str(folder), worker.name)
    with worker.scope, socket.socket() as outer, socket.socket(socket.AF_UNIX) as inner:
        outer.bind(("127.0.0.1", 0))
        outer.listen(64)
        inner.bind(path)
        inner.listen(64)
        port = outer.getsockname()[1]
        parking = Parking("house", ring, clock=time.time, home=worker.name)
        async with worker.house.server.host(parking=parking) as host, AsyncExitStack() as clients:
            worker.homes.host = host
            host.elsewhere = worker.homes.elsewhere
            host.task_names = HomeNames(ring, worker.name, "task")
            upgrade = WebSocketUpgrade(host, settings, authenticate, worker.homes)
            endpoint = Endpoint(
                host,
                Access.of("127.0.0.1", port),
                settings,
                guard=authenticate,
                legacy_sse=True,
                on_upgrade=upgrade.serve,
                homes=worker.homes,
            )
            edge = await host.root.add(http_edge("http", endpoint, [outer]))
            door = Edge(InnerDoor([endpoint]), settings, crowd=ConnectionLimit(1000))
            worker.inner = await host.root.add(tree.inner("inner", listeners(door, [inner])))
            worker.place = Place(host, endpoint, edge, port, None, clients)
            worker.up.set()
            try:
                await trio.sleep_forever()
            finally:
                worker.homes.close()
    Path(path).unlink()  # noqa: ASYNC240  # as the parent does
    worker.over.set()
