"""The parent of workers: binds the addresses, starts the processes that serve at them, and sees to it that they live.

It serves nothing itself but the health checks, and loads no code of an author's: so what a server does cannot harm it.
"""

import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from callboard import tree
from callboard.cluster.directory import HEARTBEAT, NodeWorker
from callboard.codecs.home import chosen_home
from callboard.codecs.seal import new_secret
from callboard.errors import CannotServe
from callboard.serve.cluster_options import ClusterPlan
from callboard.serve.code_watch import CodeWatch
from callboard.serve.options import Ready, ServePlan, ServerName, listening_at, warnings_for
from callboard.server.served import BackendStatus, Behind
from callboard.supervisor import Intensity, Supervisor, get_logger
from callboard.supervisor.ended import failure_text, where
from callboard.supervisor.groups import own_nursery
from callboard.supervisor.window import RestartWindow
from callboard.transports.bind import BindAddress, Bound
from callboard.transports.signals import heed_hangups, heed_signals
from callboard.workers.book import Book, Found
from callboard.workers.fair_share import SLOTS
from callboard.workers.messages import (
    AllSessions,
    Drop,
    Keep,
    PeerWorker,
    PeerWorkers,
    Release,
    Started,
    Take,
    Taken,
    Told,
)
from callboard.workers.process import Equipment, WorkerProcess, how_ended

if TYPE_CHECKING:
    from callboard.cluster.node import ClusterNode
    from callboard.serve.node_view import NodeView

LATE: Final = 5.0
"""Seconds that workers have to end beyond the time for their shutdown; then they are killed."""

TIDIED_EVERY: Final = 60.0
"""Seconds after which sessions are forgotten that no client has come back for."""

KNOWN_WITHIN: Final = 1.0
"""Seconds in which workers hear of a new one. One that takes longer does not hold it up."""

KEEPER_ENDS: Final = 15.0
"""Seconds for the process that has the backends to end them."""

MAX_LINGERING: Final = 3
"""Older generations that may finish what they hold. With one more, the oldest must end."""

CRASH_LOOP: Final = Intensity(5, per=30.0)
"""Workers that may end by themselves; more are said to do so again and again. They are started again in any case, after
longer and longer pauses."""

SAID_WHY: Final = 2
"""Exit code of a process that has said in one line why it does not serve."""

LEAVING: Final = 2 / 3
"""Part of the time for shutdown in which the workers of a cluster's node hand their sessions over; then they drain."""

log = get_logger("callboard.workers")


async def keep_telling(tell: "Callable[[ClusterNode], Awaitable[None]]", node: "ClusterNode") -> None:
    """Have other nodes know some figures of this one. A fault in a view, which a worker of another release may cause,
    is said once, and ends nothing."""
    said = ""
    while True:
        try:
            await tell(node)
        except Exception as error:
            if said != (said := failure_text(error)):
                log.warning("view_failed", failure=said, where=where(error))
        await trio.sleep(HEARTBEAT)


def _listed(worker: WorkerProcess) -> NodeWorker:
    """A worker as other nodes read of it."""
    return NodeWorker(
        *(worker.identity, worker.number, worker.generation, worker.port, worker.hangs, worker.is_leaving)
    )


@attrs.define(eq=False)
class Parent:
    """All workers of one server: a generation of them serves; an older one may still finish what it holds."""

    plan: ServePlan
    equipment: Equipment
    root: Supervisor
    bound: Mapping[BindAddress, Bound]
    admin: Bound | None
    book: Book = attrs.field(init=False)
    view: "NodeView | None" = attrs.field(default=None, init=False)
    node: "ClusterNode | None" = attrs.field(default=None, init=False)
    generation: int = attrs.field(default=0, init=False)
    is_held: bool = attrs.field(default=False, init=False)
    """Whether an operator has it say that it is not ready."""
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _workers: dict[int, WorkerProcess] = attrs.field(factory=dict, init=False)  # by number, each the latest process
    _keeper: WorkerProcess | None = attrs.field(default=None, init=False)  # the latest process of it
    _first: Started | None = attrs.field(default=None, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)  # something became of a worker
    _crashes: RestartWindow = attrs.field(factory=lambda: RestartWindow(CRASH_LOOP), init=False)
    _code: int = attrs.field(default=0, init=False)
    _is_ending: bool = attrs.field(default=False, init=False)
    _watch: CodeWatch = attrs.field(init=False)
    _renew: trio.Event = attrs.field(factory=trio.Event, init=False)  # another generation is wanted

    def __attrs_post_init__(self) -> None:
        self.book = Book(self.plan.settings.session_idle)
        self._watch = CodeWatch(self._code_changed)

    async def join(self, cluster: ClusterPlan) -> None:
        """Be one of several nodes."""
        from callboard.cluster.node import ClusterNode, join_cluster
        from callboard.cluster.redis import RedisStore  # with an extra that takes 18 MiB
        from callboard.codecs.seal import KeyRing

        ttl = self.plan.settings.session_idle
        store = RedisStore(cluster.url, cluster.name, ttl, cluster.password())
        self.equipment.keys = self.plan.state_keys()
        self.node = ClusterNode(
            *(store, store, cluster.address, self.book, ttl),
            lambda: KeyRing.from_bytes(*self.equipment.keys),
            self,
        )
        if self.view is not None:
            self.view.node = self.node
        await join_cluster(self.root, self.node)

    async def run(self) -> int:
        """Serve until a signal comes. Returns the exit code."""
        with heed_signals(self._kill_all) as asked, heed_hangups() as hangups:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, nursery.cancel_scope)
                nursery.start_soon(self._heed, hangups)
                nursery.start_soon(self._tidy)
                if self.node is not None and self.view is not None:
                    nursery.start_soon(keep_telling, self.view.tell_nodes, self.node)
                await asked.wait()
                nursery.cancel_scope.cancel()
            await self._end()
        return self._code

    async def _heed(self, hangups: trio.MemoryReceiveChannel[None]) -> None:
        async for _ in hangups:
            self._renew.set()

    def _code_changed(self, files: Sequence[str]) -> None:
        log.info("code_changed", files=[Path(file).name for file in files])
        self._renew.set()

    async def _serve(self, whole: trio.CancelScope) -> None:
        if not (await self._start_keeper() and await self._start_generation()):
            if self._code != SAID_WHY:
                process = "keeper" if self.generation == 0 else "worker"
                log.error("server_not_started", process=process, ended=how_ended(self._code))
            self._code = self._code or 1
            whole.cancel()
            return
        self._announce()
        if self.plan.reload:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch.run)
                await self._renew_always()
        await self._renew_always()

    async def _renew_always(self) -> None:
        """Start another generation whenever one is wanted."""
        while True:
            await self._renew.wait()
            self._renew = trio.Event()
            log.info("next_generation", generation=self.generation + 1)
            if self._keeper is not None:
                self._keeper.read_anew()
            try:
                is_started = await self._start_generation()
            except CannotServe as error:
                is_started = False
                log.warning("invalid_configuration", reason=str(error))
            if not is_started:
                self._code = 0
                self._watch.failed()
                log.error("generation_not_started", generation=self.generation, hint="the older one goes on")

    async def _tidy(self) -> None:
        while True:
            await trio.sleep(TIDIED_EVERY)
            self.book.forget_old(trio.current_time())

    # The backends that all workers share.

    async def _start_keeper(self) -> bool:
        """Start the process that has them, if there are any. It outlives generations. False if it does not start."""
        if not self.equipment.has_keeper:
            return True
        await self.root.supervisor_of(tree.WORKERS).add(tree.worker("keeper", self._make_keeper))
        while (keeper := self._keeper) is None or not (keeper.is_serving or keeper.is_over):
            await self._wait_news()
        return keeper.is_serving

    def _make_keeper(self) -> WorkerProcess:
        keeper = WorkerProcess(0, 0, SLOTS - 1, self.equipment, self, is_keeper=True)
        keeper.is_trial = self._keeper is None
        self._keeper = keeper
        return keeper

    # Generations.

    async def _start_generation(self) -> bool:
        """Start new workers; when all of them serve, let the others leave. False if the first does not start; or, of a
        later generation, any."""
        self.equipment.keys = self.plan.state_keys() or self.equipment.keys or [new_secret()]
        older = list(self._workers.values())
        await self._make_room()
        self.generation += 1
        numbers = [next(self._numbers) for _ in range(self.plan.workers)]
        # The first one alone: if it cannot start, it says so once, and no other one does.
        if not await self._start(numbers[0], is_trial=True):
            return False
        is_first, started = not older, list[bool]()

        async def start(number: int) -> None:
            started.append(await self._start(number, is_trial=not is_first))

        async with trio.open_nursery() as nursery:
            for number in numbers[1:]:
                nursery.start_soon(start, number)
        is_whole = is_first or all(started)  # the first generation has no other that could go on
        for worker in older if is_whole else [self._workers[number] for number in numbers if number in self._workers]:
            # Code that was changed serves from now on: the older one finishes calls, and does not begin any.
            worker.leave(0 if self.plan.reload else self.plan.settings.linger)
        return is_whole

    async def _start(self, number: int, *, is_trial: bool) -> bool:
        """Start one. A trial that ends before it serves is not started again."""
        workers = self.root.supervisor_of(tree.WORKERS)
        make = partial(self._make, number, self.generation, is_trial)
        await workers.add(tree.worker(f"worker-{number}", make))
        while (worker := self._workers.get(number)) is None or not (worker.is_serving or worker.is_over):
            await self._wait_news()
        if is_trial and not worker.is_serving:
            self._workers.pop(number, None)
        return worker.is_serving

    def _make(self, number: int, generation: int, is_trial: bool) -> WorkerProcess:
        used = {worker.slot for worker in self._workers.values() if not worker.is_over}
        slot = next(slot for slot in range(SLOTS) if slot not in used)
        worker = WorkerProcess(number, generation, slot, self.equipment, self)
        worker.is_trial = is_trial and self._workers.get(number) is None
        worker.is_leaving = self._is_ending
        self._workers[number] = worker
        return worker

    async def _make_room(self) -> None:
        """End the oldest generations that still finish what they hold, if there are too many: each has processes, and
        there is one page of loads for all."""
        while True:
            living = [worker for worker in self._workers.values() if not worker.is_over]
            lingering = sorted({worker.generation for worker in living if worker.is_leaving})
            has_slots = len(living) + self.plan.workers < SLOTS
            if not lingering or (len(lingering) <= MAX_LINGERING - 1 and has_slots):
                return
            log.warning("generation_ended_early", generation=lingering[0], lingering=len(lingering), most=MAX_LINGERING)
            ending = [worker for worker in living if worker.generation == lingering[0]]
            await self._end_now(ending)

    async def _end_now(self, ending: list[WorkerProcess]) -> None:
        """Have workers drain that would finish in their own time; kill them if they do not."""
        for worker in ending:
            worker.end()
        with trio.move_on_after(self.plan.settings.drain_time + LATE):
            while any(not worker.is_over for worker in ending):
                await self._wait_news()
        for worker in ending:
            if not worker.is_over:
                worker.end(signal.SIGKILL)
        while any(not worker.is_over for worker in ending):
            await self._wait_news()

    # What workers say.

    def started(self, worker: WorkerProcess, first: Started) -> None:
        if worker.is_keeper:
            log.info("keeper_serves", pid=0 if worker.process is None else worker.process.pid)
            return
        self._first = first
        self._watch.served(first.files)
        log.info("worker_serves", worker=worker.number, generation=worker.generation)

    async def wait_known(self, worker: WorkerProcess) -> None:
        others = [one for one in self._reachable() if one is not worker and not one.hangs]
        with trio.move_on_after(KNOWN_WITHIN):
            async with own_nursery() as nursery:
                for one in others:
                    nursery.start_soon(one.wait_read)

    def told(self, worker: WorkerProcess, news: Told) -> None:
        for other in self._reachable():
            if other is not worker:
                other.tell(news)
        if self.node is not None:
            self.node.tell(news)

    def node_told(self, told: Told) -> None:
        for worker in self._reachable():
            worker.tell(told)

    def nodes_changed(self) -> None:
        self._say_peers()

    def noted(self, worker: WorkerProcess, note: Keep | Drop | Release | AllSessions | Take) -> None:
        book, home = self.book, worker.identity
        match note:
            case Keep():
                book.keep(note.key, note.record, home)
            case Drop():
                book.drop(note.key)
            case Release():
                book.release(note.key, home, trio.current_time())
            case AllSessions():
                self._say_anew(home, is_over=note.is_over)
                return
            case Take():
                self._take(worker, note)
                return
        if self.node is not None:
            self.node.records.changed(note.key)

    def _say_anew(self, home: bytes, *, is_over: bool) -> None:
        if not is_over:
            self.book.begin_anew(home)
            return
        for key in self.book.end_anew(home):
            if self.node is not None:
                self.node.records.changed(key)

    def _take(self, worker: WorkerProcess, note: Take) -> None:
        home = worker.identity
        taker = home if not worker.is_leaving else self._successor(note.key)
        living = {one.identity for one in self._reachable()}
        entry = self.book.entry(note.key)
        if self.node is None or (entry is not None and entry.home != taker and entry.home in living):
            self._taken(worker, note, self.book.take(note.key, taker, living, trio.current_time()))
        else:
            self.node.take_soon(note.key, taker, partial(self._taken, worker, note))

    def _taken(self, worker: WorkerProcess, note: Take, found: Found | Exception | None) -> None:
        """Say where a session is; write it down, if other nodes had it."""
        if found is None or isinstance(found, Exception):
            worker.say(Taken(note.number, later=found is not None))
            return
        is_here = found.home == worker.identity
        if is_here and found.record is not None:
            self.book.keep(note.key, found.record, found.home)
        worker.say(Taken(note.number, found.home, found.record if is_here else None))

    def _successor(self, key: str) -> bytes:
        """The worker that opens a session which one that leaves is asked for: of this node, if one stays."""
        staying = [one.identity for one in self._serving() if not one.is_leaving]
        others = [] if self.node is None else [one.name for one in self.node.peers() if not one.is_leaving]
        return chosen_home(key.encode(), staying or others or [b""])

    def peers(self) -> list[PeerWorker]:
        return [*(worker.peer() for worker in self._reachable()), *([] if self.node is None else self.node.peers())]

    def changed(self) -> None:
        if self.node is not None:
            self.node.announce([_listed(worker) for worker in self._reachable()], is_leaving=self._is_ending)
        self._say_peers()

    def _say_peers(self) -> None:
        peers = PeerWorkers(self.peers())
        for worker in self._reachable():
            worker.say(peers)
        self._news.set()
        self._news = trio.Event()

    def ended(self, worker: WorkerProcess, code: int) -> None:
        if worker.is_trial:
            self._code = code
        freed = self.book.free_all_of(worker.identity, trio.current_time())
        if self.node is not None:
            self.node.worker_ended(worker.identity, freed)
        if worker.is_leaving:
            self._workers.pop(worker.number, None)
        elif not (worker.is_trial or self._crashes.allow(trio.current_time())):
            self._crashes = RestartWindow(CRASH_LOOP)  # and it is said again after as many
            log.error("workers_crash", crashes=CRASH_LOOP.restarts + 1, within=CRASH_LOOP.per, ended=how_ended(code))

    def _reachable(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers.values() if worker.is_reachable]

    def workers(self) -> list[WorkerProcess]:
        """The latest process of each."""
        return list(self._workers.values())

    def keeper(self) -> WorkerProcess | None:
        """The latest process that has the shared backends."""
        return self._keeper

    def _serving(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers.values() if worker.is_serving]

    async def _wait_news(self) -> None:
        await self._news.wait()

    # Health.

    def is_ready(self) -> bool:
        """Whether any worker would answer a request now."""
        is_open = not (self._is_ending or self.is_held)
        return is_open and any(worker.is_ready and not worker.hangs for worker in self._serving())

    # The end.

    async def _end(self) -> None:
        """Have all workers drain, and wait for them. Those of a cluster first hand their sessions over."""
        settings = self.plan.settings
        self._is_ending = True
        self.changed()
        if settings.lame_duck:
            log.info("leaving", lame_duck=settings.lame_duck)
            await trio.sleep(settings.lame_duck)
        self._close_doors()
        for worker in list(self._workers.values()):
            if self.node is None or not worker.is_serving:
                worker.end()
            else:
                worker.leave(settings.drain_time * LEAVING, settings.drain_time * (1 - LEAVING))
        with trio.move_on_after(settings.drain_time + LATE):
            while any(not worker.is_over for worker in self._workers.values()):
                await self._wait_news()
        if self._keeper is not None and not self._keeper.is_over:  # after all of its clients
            self._keeper.end()
            with trio.move_on_after(KEEPER_ENDS):
                while not self._keeper.is_over:
                    await self._wait_news()
        self._kill_all()
        if self.node is not None:
            await self.node.leave()

    def _close_doors(self) -> None:
        """Give up the addresses, before workers do: what none of them accepts must be refused, so that a balancer goes
        elsewhere with it, and not wait in the kernel until this process ends."""
        self.equipment.listening = []
        for bound in self.bound.values():
            for listening in bound.sockets:
                listening.close()

    def _kill_all(self) -> None:
        for worker in [*self._workers.values(), *([] if self._keeper is None else [self._keeper])]:
            if not worker.is_over:
                worker.end(signal.SIGKILL)

    def _announce(self) -> None:
        first = self._first
        if self.plan.on_ready is None or first is None:
            return
        behind = None
        if first.servers is not None:
            servers = tuple(
                BackendStatus(name=name, state=state, is_up=is_up, why=why) for name, state, is_up, why in first.servers
            )
            behind = Behind(servers=servers, tools=first.tools, example=first.example)
        listening = tuple(listening_at(self.plan, self.bound, self.admin))
        warnings = tuple(warnings_for(self.plan, self.bound, self.admin))
        info = ServerName(first.server, first.version)
        self.plan.on_ready(Ready(info, listening, warnings, behind, workers=self.plan.workers))
