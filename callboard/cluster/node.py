"""This node among the others: what it announces, hears and asks, on behalf of its parent."""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Literal, Protocol

import attrs
import msgspec
import trio

from callboard import tree
from callboard._version import __version__
from callboard.cluster.directory import HEARTBEAT, LINKS_SPOKEN, NodeEntry, NodeWorker, Roll
from callboard.cluster.knock import Answered, knock
from callboard.cluster.news import ALL, NodeMessage, PendingNews, read_node_message, write_node_message
from callboard.cluster.records import SharedRecords
from callboard.cluster.store import ANSWER_TIME, Directory, NotListed, SharedBook, StoreAway, View
from callboard.codecs.seal import KeyRing, Seal
from callboard.supervisor import Actor, Fact, Supervisor, get_logger
from callboard.workers.book import Book, Found
from callboard.workers.messages import PeerWorker, Told

MAX_GONE: Final = 1024
"""Own workers that have ended which are remembered: their sessions may be taken without asking the others."""

MAX_TAKES: Final = 1024
"""Sessions that are looked for in the store at once; for more there is a 503."""

TRIES: Final = 4
"""Times that a session is asked for: its owner may be new, or refuse a connection."""

KNOWN_FOR: Final = 1.0
"""Seconds that a worker of another node which could be reached is not knocked at again."""

ANNOUNCED_WITHIN: Final = 0.3
"""Seconds in which a node announces itself when it is asked to. A node that does not, and has a worker that refuses
connections, is dead; else something between the two refuses."""

ASKED_EVERY: Final = 0.05
"""Seconds between two looks whether it has."""

KNOCK_EVERY: Final = 1.0
"""Seconds between two looks whether the machines of other nodes answer."""

SILENT_AFTER: Final = 3
"""Times in a row that one did not: one packet that is lost is none."""

FAREWELL: Final = 2.0
"""Seconds to write the last records and to leave the directory."""

log = get_logger("callboard.cluster")

_entries: Final = msgspec.json.Decoder(NodeEntry)


class TryLater(Exception):
    """Where a session is cannot be said now."""


class NodeListener(Protocol):
    """The parent, as its node needs it."""

    def nodes_changed(self) -> None:
        """Other nodes are there now, or others of their workers."""

    def node_told(self, told: Told) -> None:
        """Other nodes tell of changes."""


@attrs.define(eq=False)
class ClusterNode:
    """All that the parent asks of the cluster. Nothing here waits but `take` and `leave`."""

    store: Directory
    book: SharedBook
    host: str
    local: Book
    ttl: float
    ring: Callable[[], KeyRing]
    listener: NodeListener
    name: str = attrs.field(factory=lambda: os.urandom(8).hex(), init=False)
    roll: Roll = attrs.field(init=False)
    records: SharedRecords = attrs.field(init=False)
    news: PendingNews = attrs.field(factory=PendingNews, init=False)
    has_news: trio.Event = attrs.field(factory=trio.Event, init=False)
    away_since: float | None = attrs.field(default=0.0, init=False)
    """When the store was lost; None while it is there."""
    is_deaf: bool = attrs.field(default=False, init=False)
    _workers: list[NodeWorker] = attrs.field(factory=list, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    figures: dict[str, float] = attrs.field(factory=dict, init=False)
    """What operators of other nodes see of this one."""
    _announced: frozenset[bytes] = attrs.field(default=frozenset(), init=False)
    _said: object = attrs.field(default=None, init=False)
    _why_lost: str = attrs.field(default="", init=False)
    _beat: int = attrs.field(default=0, init=False)
    _is_due: trio.Event = attrs.field(factory=trio.Event, init=False)
    _was_read: trio.Event = attrs.field(factory=trio.Event, init=False)
    _gone: "OrderedDict[bytes, None]" = attrs.field(factory=OrderedDict, init=False)
    _answers: dict[bytes, tuple[Answered, float]] = attrs.field(factory=dict, init=False)
    _refused: dict[bytes, int] = attrs.field(factory=dict, init=False)  # and the number of its announcement then
    _knocking: dict[bytes, trio.Event] = attrs.field(factory=dict, init=False)
    _silences: dict[str, int] = attrs.field(factory=dict, init=False)  # by node, how often in a row
    _takes: int = attrs.field(default=0, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.roll = Roll(self.name)
        self.records = SharedRecords(self.book, self.local, self.ring, self.view, self.ttl)

    # What the parent tells.

    def announce(self, workers: list[NodeWorker], *, is_leaving: bool) -> None:
        if (workers, is_leaving) != (self._workers, self._is_leaving):
            self._workers, self._is_leaving = workers, is_leaving
            self._is_due.set()

    def worker_ended(self, name: bytes, sessions: list[str]) -> None:
        """One of this node's workers ended, and had those *sessions*."""
        self._gone[name] = None
        while len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)
        if not self.store.is_there:
            for key in sessions:
                self.records.changed(key)

    def tell(self, told: Told) -> None:
        self.news.add(told)
        self.has_news.set()

    # Who is there.

    def nodes(self) -> list[NodeEntry]:
        return self.roll.nodes()

    def peers(self) -> list[PeerWorker]:
        """The workers of other nodes that can be spoken to."""
        return [
            PeerWorker(
                *(worker.name, worker.number, worker.generation, worker.hangs or self._answer(worker.name) == "silent"),
                address=(entry.host, worker.port),
                is_leaving=worker.is_leaving or entry.is_leaving,
            )
            for entry in self.roll.nodes()
            if entry.link in LINKS_SPOKEN
            for worker in entry.workers
            if self._answer(worker.name) != "refused"
        ]

    def view(self) -> View:
        own = frozenset(worker.name for worker in self._workers)
        others = {worker.name for entry in self.roll.nodes() for worker in entry.workers}
        refused = {name for name, (answer, _) in self._answers.items() if answer == "refused"}
        return View(own, frozenset(others - refused), frozenset(self._gone) | refused)

    def _answer(self, name: bytes) -> Answered:
        return self._answers.get(name, ("there", 0.0))[0]

    def _address_of(self, name: bytes) -> tuple[str, int] | None:
        for entry in self.roll.nodes():
            for worker in entry.workers:
                if worker.name == name:
                    return entry.host, worker.port
        return None

    async def knock_at(self, name: bytes) -> Answered:
        """Whether a worker of another node can be reached now."""
        answer, at = self._answers.get(name, ("there", -1.0))
        if at >= 0 and trio.current_time() - at < KNOWN_FOR:
            return answer
        address = self._address_of(name)
        if address is None:
            return "there"
        if name in self._knocking:
            await self._knocking[name].wait()
            return self._answer(name)
        done = self._knocking[name] = trio.Event()
        try:
            found = await knock(*address)
            if found == "refused":
                beat = self.roll.beat_of(name) or 0
                if await self._is_announced_again(name, beat):
                    found = "silent"
                else:
                    self._refused[name] = beat
            self._answers[name] = (found, trio.current_time())
        finally:
            del self._knocking[name]
            done.set()
        if found != answer:
            log.info("worker_of_node", answers=found, host=address[0], port=address[1])
            self.listener.nodes_changed()
        return found

    async def _is_announced_again(self, name: bytes, beat: int) -> bool:
        """Ask all nodes to announce themselves: whether that of this worker does, and still has it. Raises
        `StoreAway`."""
        await self.store.publish(write_node_message(NodeMessage(self.name, "changed"), self.ring()))
        with trio.move_on_after(ANNOUNCED_WITHIN):
            while self.roll.beat_of(name) == beat:
                await trio.sleep(ASKED_EVERY)
                await self.refresh()
        return (self.roll.beat_of(name) or 0) > beat

    def _believe_announced(self) -> None:
        """A refusal counts until the worker is announced again: it lives, and what refused was between."""
        again = [name for name, beat in self._refused.items() if (self.roll.beat_of(name) or 0) > beat]
        for name in again:
            del self._refused[name]
            self._answers.pop(name, None)
        if again:
            log.warning("worker_announced_again", workers=len(again), hint="connections to it were refused")
            self.listener.nodes_changed()

    # Sessions.

    def take_soon(self, key: str, taker: bytes, done: Callable[[Found | TryLater | None], None]) -> None:
        """Look for a session, and call *done* with where it is."""
        if self._nursery is None or self._takes >= MAX_TAKES:
            done(TryLater())
            return
        self._takes += 1
        self._nursery.start_soon(self._take_for, key, taker, done)

    async def _take_for(self, key: str, taker: bytes, done: Callable[[Found | TryLater | None], None]) -> None:
        try:
            found: Found | TryLater | None = await self.take(key, taker)
        except StoreAway:
            found = self._take_here(key, taker)
        except TryLater as later:
            found = later
        finally:
            self._takes -= 1
        done(found)

    async def take(self, key: str, taker: bytes) -> Found | None:
        """Where a session is, which no living worker of this node has. Raises `StoreAway` and `TryLater`."""
        is_sure = False
        for _ in range(TRIES):
            view = self.view()
            if taker in view.own and taker not in self._announced:
                await self.refresh()  # before it has a session, all know that it lives
            found = await self.records.take(key, taker, view, is_sure=is_sure)
            if isinstance(found, NotListed):
                await self.refresh()
                is_sure = True
                continue
            if found is None or found.record is not None or found.home not in view.others:
                return found
            if await self.knock_at(found.home) != "refused":
                return found
        raise TryLater

    def _take_here(self, key: str, taker: bytes) -> Found | TryLater | None:
        """The store is away. What lost its worker since then, no other node can have taken."""
        entry, now = self.local.entry(key), trio.current_time()
        if entry is None or entry.home is not None or taker not in self.view().own:
            return TryLater()
        if self.away_since is None or entry.free_since < self.away_since:
            return TryLater()
        found = self.local.take(key, taker, (), now)
        self.records.changed(key)
        return found

    # The store.

    async def refresh(self) -> None:
        """Announce this node, and read which nodes there are: begun after this was called. Raises `StoreAway`."""
        if not self.store.is_there:
            raise StoreAway("not connected")
        self._is_due.set()
        with trio.move_on_after(ANSWER_TIME):
            await self._was_read.wait()  # which the announcement that is under way does not set
            return
        raise StoreAway("no answer")

    async def serve(self) -> None:
        """Be part of the cluster, until the store does not answer. Raises `StoreAway`."""
        async with self.store.connected(), trio.open_nursery() as nursery:
            self.roll.excuse(trio.current_time())
            log.info("cluster_store_back" if self._beat else "cluster_joined", node=self.name)
            self.away_since, self._why_lost = None, ""
            nursery.start_soon(self.records.run)
            nursery.start_soon(self._publish)
            while True:
                self._is_due = trio.Event()
                await self._announce()
                with trio.move_on_after(HEARTBEAT):
                    await self._is_due.wait()

    def lost(self, why: str) -> None:
        """The store is away."""
        self.records.is_written = False
        if self.away_since is None:
            self.away_since = trio.current_time()
        if why != self._why_lost:
            self._why_lost = why
            log.warning("cluster_store_lost", reason=why, hint="calls go on; sessions of dead nodes are not restored")

    async def _announce(self) -> None:
        self._beat += 1
        names = frozenset(worker.name for worker in self._workers)
        about = (self.name, self.host, self._workers, self._is_leaving)
        entry = NodeEntry(*about, build=__version__, beat=self._beat, figures=self.figures)
        said_now = (self._workers, self._is_leaving)
        kind: Literal["changed", "beat"] = "changed" if said_now != self._said else "beat"
        sealed = Seal(self.ring(), "node").close(msgspec.json.encode(entry), (), expires=float("inf"))
        said = write_node_message(NodeMessage(self.name, kind), self.ring())
        was_read, self._was_read = self._was_read, trio.Event()
        answer = await self.store.announce(self.name, sealed, said)
        self._announced, self._said = names, said_now
        self._read(answer)
        was_read.set()

    def _read(self, answer: Iterable[bytes]) -> None:
        before = {entry.name for entry in self.roll.nodes()}
        has_changed = self.roll.read(filter(None, map(self._open, answer)), trio.current_time())
        self._believe_announced()
        if not has_changed:
            return
        after = {entry.name: entry for entry in self.roll.nodes()}
        for name in after.keys() - before:
            log.info("node_joined", node=name, host=after[name].host, workers=len(after[name].workers))
        for name in before - after.keys():
            log.warning("node_lost", node=name)
        self._forget_answers()
        self.listener.nodes_changed()

    def _open(self, text: bytes) -> NodeEntry | None:
        """None for an entry that no node with these keys has written."""
        try:
            opened = Seal(self.ring(), "node").open(text.decode(), (), now=0.0)
            return None if opened is None else _entries.decode(opened.payload)
        except (UnicodeDecodeError, msgspec.MsgspecError):
            return None

    def _forget_answers(self) -> None:
        known = {worker.name for entry in self.roll.nodes() for worker in entry.workers}
        self._answers = {name: answer for name, answer in self._answers.items() if name in known}
        self._refused = {name: beat for name, beat in self._refused.items() if name in known}
        nodes = {entry.name for entry in self.roll.nodes()}
        self._silences = {name: count for name, count in self._silences.items() if name in nodes}

    async def _publish(self) -> None:
        """Tell the others what has changed here. What could not be told is everything, the next time."""
        while True:
            await self.has_news.wait()
            self.has_news = trio.Event()
            told = self.news.take()
            if told == Told():
                continue
            message = NodeMessage(self.name, "told", told.lists, told.resources, told.everything)
            try:
                await self.store.publish(write_node_message(message, self.ring()))
            except BaseException:
                self.news.add(ALL)
                self.has_news.set()
                raise

    async def attend(self) -> None:
        """Give those that ask for sessions tasks to wait in; and see whether the other machines answer."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                while True:
                    await trio.sleep(KNOCK_EVERY)
                    async with trio.open_nursery() as knocking:
                        for entry in self.roll.nodes():
                            knocking.start_soon(self._knock_at_node, entry)
            finally:
                self._nursery = None

    async def _knock_at_node(self, entry: NodeEntry) -> None:
        """Whether its machine answers: for one of its workers, as for all."""
        if not entry.workers:
            return
        answer = await knock(entry.host, entry.workers[0].port)
        if answer == "refused":
            return  # which is for those to find out that want something of it
        is_silent = answer == "silent"
        self._silences[entry.name] = self._silences.get(entry.name, 0) + 1 if is_silent else 0
        wrong: Answered = "there" if is_silent else "silent"
        changed = [worker.name for worker in entry.workers if self._answer(worker.name) == wrong]
        if changed and (not is_silent or self._silences[entry.name] >= SILENT_AFTER):
            found: Answered = "silent" if is_silent else "there"
            self._answers.update(dict.fromkeys(changed, (found, trio.current_time())))
            log.warning("node_silent" if is_silent else "node_answers", node=entry.name, host=entry.host)
            self.listener.nodes_changed()

    async def leave(self) -> None:
        """The workers have ended: write what is left of their sessions, and go."""
        with trio.move_on_after(FAREWELL):
            try:
                await self.records.flush()
                said = write_node_message(NodeMessage(self.name, "gone"), self.ring())
                await self.store.leave(self.name, said)
            except StoreAway as error:
                log.warning("cluster_not_left", reason=str(error))

    # What others say.

    async def listen(self) -> None:
        """Hear what other nodes publish, until that ends. Raises `StoreAway`."""
        async with self.store.subscribed() as receive:
            if self.is_deaf:  # what was said meanwhile is not known
                self.listener.node_told(ALL)
            self.is_deaf = False
            while True:
                self._hear(await receive())

    def deafened(self) -> None:
        """Nothing is heard any more: the store may be away, which the next announcement shows."""
        self.is_deaf = True
        self._is_due.set()

    def _hear(self, data: bytes) -> None:
        message = read_node_message(data, self.ring())
        if message is None or message.node == self.name:
            return
        match message.kind:
            case "told":
                self.listener.node_told(Told(message.lists, message.resources, message.everything))
            case "changed":
                self._is_due.set()
            case "gone":
                if self.roll.remove(message.node):
                    log.info("node_left", node=message.node)
                    self.listener.nodes_changed()

    def facts(self) -> dict[str, Fact]:
        return {
            "state": "joined" if self.store.is_there else "store away",
            "node": self.name,
            "nodes": len(self.roll.nodes()) + 1,
            "unwritten": self.records.unwritten,
        }


@attrs.define(eq=False)
class NodeKeeper(Actor[None]):
    """Keeps this node in the directory. It ends when the store does not answer, and is started again."""

    mailbox = None
    node: ClusterNode

    async def run(self) -> None:
        async with self.cancel_on_stop():
            try:
                await self.node.serve()
            except StoreAway as error:
                self.node.lost(str(error))

    def facts(self) -> dict[str, Fact]:
        return self.node.facts()


@attrs.define(eq=False)
class NodeNews(Actor[None]):
    """Hears what other nodes publish. It ends when that does, and is started again."""

    mailbox = None
    node: ClusterNode

    async def run(self) -> None:
        async with self.cancel_on_stop():
            try:
                await self.node.listen()
            except StoreAway as error:
                self.node.deafened()
                log.debug("cluster_news_lost", reason=str(error))


@attrs.define(eq=False)
class NodeTakes(Actor[None]):
    """Has the tasks that look for sessions."""

    mailbox = None
    node: ClusterNode

    async def run(self) -> None:
        async with self.cancel_on_stop():
            await self.node.attend()


async def join_cluster(root: Supervisor, node: ClusterNode) -> None:
    """Start the actors of *node*."""
    await root.add(tree.cluster(lambda: NodeTakes(node), lambda: NodeNews(node), lambda: NodeKeeper(node)))
