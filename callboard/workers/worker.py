"""One worker: what its parent gave it, and the link to it."""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final, Self

import attrs
import msgspec
import trio

from callboard.actors.changes import LISTS, Change, ListChanged, ResourceUpdated
from callboard.actors.rate import Rate, RateLimit
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.codecs.home import HomeNames
from callboard.codecs.seal import KeyRing
from callboard.errors import Overloaded
from callboard.supervisor import Actor, Fact, get_logger
from callboard.supervisor.ended import failure_text, where
from callboard.supervisor.groups import own_nursery
from callboard.transports.limits import Settings
from callboard.transports.server.http.endpoint import Endpoint
from callboard.workers.book import Found
from callboard.workers.control import READ, Control
from callboard.workers.fair_share import FairShare, LoadPage
from callboard.workers.homes import WorkerHomes
from callboard.workers.messages import (
    VARIABLE,
    ActionWanted,
    AreYouThere,
    Assignment,
    Drop,
    FromParent,
    Keep,
    Known,
    Leave,
    MessageLines,
    PeerWorkers,
    Reachable,
    Release,
    Show,
    Shown,
    Started,
    StillThere,
    Take,
    Taken,
    Told,
)
from callboard.workers.shared_rate import MeterPage, SharedRateLimit

if TYPE_CHECKING:
    from callboard.observe.view import ServerView

ANSWERED_WITHIN: Final = 10.0
"""Seconds in which the parent says where a session is. It does nothing else for long; but a machine may pause, and its
clients would rather wait than be refused."""

KNOWN_WITHIN: Final = 3.0
"""Seconds in which the parent says that the other workers know this one. A parent of an older release never does."""

log = get_logger("callboard.workers")

_decoder: Final = msgspec.json.Decoder[FromParent](FromParent)


@attrs.define(eq=False)
class Worker:
    """What a process is that a parent has started."""

    assignment: Assignment
    end: socket.socket
    lines: MessageLines
    homes: WorkerHomes = attrs.field(init=False)
    share: FairShare = attrs.field(init=False)
    endpoints: list[Endpoint] = attrs.field(factory=list, init=False)
    port: int = attrs.field(default=0, init=False)
    """Where workers of other nodes reach this one."""
    _meters: MeterPage = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        told = self.assignment
        if told.is_keeper:
            return  # it seals nothing, and no client connects to it
        self.homes = WorkerHomes(HomeNames(self._ring, told.name), told.folder)
        self.share = FairShare(LoadPage(told.page), told.slot)

    @classmethod
    def take(cls) -> Self | None:
        """The worker that this process is; None if no parent has started it. Only the first call finds it."""
        descriptor = os.environ.pop(VARIABLE, None)
        if descriptor is None:
            return None
        end, lines = socket.socket(fileno=int(descriptor)), MessageLines()
        end.set_inheritable(False)
        while True:
            data = end.recv(READ)
            if not data:
                raise SystemExit("callboard: the parent of this worker ended")
            for line in lines.feed(data):
                first = _decoder.decode(line)
                if not isinstance(first, Assignment):
                    raise SystemExit("callboard: this worker was told nothing")
                for descriptor_ in (first.page, first.meters, *(one for _, some in first.listening for one in some)):
                    os.set_inheritable(descriptor_, False)
                return cls(first, end, lines)

    @property
    def _ring(self) -> KeyRing:
        return KeyRing.from_bytes(*self.assignment.keys)

    @property
    def folder(self) -> str:
        """Where the sockets of all workers are."""
        return self.assignment.folder

    @property
    def is_keeper(self) -> bool:
        """Whether it serves no clients, but owns the backends that workers share."""
        return self.assignment.is_keeper

    @property
    def label(self) -> str:
        return f"worker-{self.assignment.number}"

    def join(self, host: Host) -> None:
        """*host* is what this worker serves."""
        self.homes.host = host
        host.elsewhere = self.homes.elsewhere
        host.task_names = HomeNames(self._ring, self.assignment.name, "task")
        self.share.sessions = lambda: host.sessions.total
        self._meters = MeterPage(self.assignment.meters)
        host.meters = {name: self.shared_limit(own.rate, name) for name, own in host.meters.items()}

    def shared_limit(self, rate: Rate, name: str) -> RateLimit:
        """Meters for one purpose that all workers share."""
        return SharedRateLimit.of(rate, self._meters, name)

    def parking(self, audience: str, settings: Settings) -> Parking:
        """Where requests are parked whose retries may reach any worker."""
        return Parking(
            audience,
            self._ring,
            most=settings.max_parked,
            most_each=settings.max_parked_each,
            clock=time.time,
            home=self.assignment.name,
        )


@attrs.define(eq=False)
class ParentLink(Actor[None]):
    """The link to the parent: tells it that the worker lives, and what has changed; hears of the others."""

    mailbox = None

    worker: Worker
    host: Host
    is_ready: Callable[[], bool]
    view: "ServerView | None" = None
    leaving: trio.Event = attrs.field(factory=trio.Event, init=False)
    known: trio.Event = attrs.field(factory=trio.Event, init=False)
    has_parent: bool = attrs.field(default=True, init=False)
    linger: float = attrs.field(default=0.0, init=False)
    drain_within: float | None = attrs.field(default=None, init=False)
    is_draining: bool = attrs.field(default=False, init=False)
    """Whether sessions end because this worker does: then another one may open them."""
    _control: Control[FromParent] = attrs.field(init=False)
    _asked: dict[int, trio.MemorySendChannel[Found | None]] = attrs.field(factory=dict, init=False)
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    def __attrs_post_init__(self) -> None:
        self._control = Control(self.worker.end, _decoder, self.worker.lines, self.worker.homes.kept)
        self.host.topics.on_published = self._published
        self.worker.homes.book = self

    async def run(self) -> None:
        try:
            async with own_nursery() as nursery:
                nursery.start_soon(self._control.write)
                async for message in self._control:
                    if isinstance(message, Show | ActionWanted):
                        nursery.start_soon(self._show, message)
                    else:
                        self._hear(message)
                nursery.cancel_scope.cancel()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it is gone, which is said below
        finally:
            self.has_parent = False
            self.known.set()
            self.leaving.set()  # without a parent there is no one to restart this worker, or to end it
            self.worker.homes.close()

    def say(self, started: Started) -> None:
        self._control.say(started)

    async def introduce(self) -> None:
        """Have the other workers hear of this one: what clients get here, they may show to another at once."""
        self._control.say(Reachable(self.worker.port))
        with trio.move_on_after(KNOWN_WITHIN):
            await self.known.wait()

    def _hear(self, message: FromParent) -> None:
        match message:
            case PeerWorkers():
                self.worker.homes.know(message.workers)
            case Known():
                self.known.set()
            case AreYouThere():
                self._control.say(StillThere(message.number, self.is_ready()))
            case Told():
                topics = self.host.topics
                for change in list(topics) if message.everything else changes_of(message):
                    topics.publish_here(change)
            case Taken():
                asked = self._asked.pop(message.number, None)
                if asked is not None and message.later:
                    asked.close()
                elif asked is not None:
                    asked.send_nowait(None if message.home is None else Found(message.home, message.record))
            case Leave():
                self.linger, self.drain_within = message.linger, message.drain_time
                self.leaving.set()
            case Assignment():
                log.warning("assigned_twice", worker=self.worker.label)

    async def _show(self, asked: Show | ActionWanted) -> None:
        try:
            if self.view is not None:
                self._control.say(Shown(asked.number, msgspec.Raw(await _seen(self.view, asked))))
        except Exception as error:  # a fault in a view must not end the worker, as the end of this link would
            log.warning("view_failed", failure=failure_text(error), where=where(error))

    # The book of sessions, which the parent keeps.

    def keep(self, key: str, record: bytes) -> None:
        self._control.note(key, Keep(key, record), is_all=True)

    def drop(self, key: str) -> None:
        self._control.note(key, Release(key) if self.is_draining else Drop(key), is_all=not self.is_draining)

    def release(self, key: str) -> None:
        self._control.note(key, Release(key), is_all=False)

    async def take(self, key: str) -> Found | None:
        number = next(self._numbers)
        send, receive = trio.open_memory_channel[Found | None](1)
        if not self._control.say(Take(key, number)):
            raise Overloaded("where this session is cannot be said now", for_all=True)
        self._asked[number] = send
        try:
            with trio.move_on_after(ANSWERED_WITHIN), suppress(trio.EndOfChannel):
                return await receive.receive()
            raise Overloaded("where this session is cannot be said now", for_all=True)
        finally:
            self._asked.pop(number, None)

    def _published(self, change: Change) -> None:
        self._control.tell(told_of(change))

    def facts(self) -> dict[str, Fact]:
        told = self.worker.assignment
        return {
            "worker": self.worker.label,
            "generation": told.generation,
            "forwarded": self.worker.homes.forwarded,
            "opened_again": self.worker.homes.opened_again,
        }


async def _seen(view: "ServerView", asked: Show | ActionWanted) -> bytes:
    if isinstance(asked, ActionWanted):
        return msgspec.json.encode(await view.act(asked.action, asked.subject))
    if asked.what == "stderr":
        return msgspec.json.encode(await view.stderr(asked.about))
    if asked.what == "metrics":
        return msgspec.json.encode(await view.families())
    return msgspec.json.encode(await view.view(with_history=asked.what == "history"))


def told_of(change: Change) -> Told:
    return Told(lists=[change.name]) if isinstance(change, ListChanged) else Told(resources=[change.uri])


def changes_of(told: Told) -> list[Change]:
    lists: list[Change] = [ListChanged(name) for name in LISTS if name in told.lists]
    return [*lists, *map(ResourceUpdated, told.resources)]
