"""One worker process, as its parent sees it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, Literal, Protocol

import attrs
import msgspec
import trio

from callboard.codecs.home import new_worker_name
from callboard.supervisor import Actor, Fact, get_logger
from callboard.supervisor.groups import own_nursery
from callboard.workers.control import Control
from callboard.workers.fair_share import LoadPage
from callboard.workers.messages import (
    VARIABLE,
    ActionWanted,
    AllSessions,
    AreYouThere,
    Assignment,
    Drop,
    FromWorker,
    Keep,
    Known,
    Leave,
    Message,
    PeerWorker,
    PeerWorkers,
    Reachable,
    Release,
    Show,
    Shown,
    Started,
    StillThere,
    Take,
    Told,
)

PING_EVERY: Final = 1.0
"""Seconds between two questions whether a worker is alive."""

HANGS_AFTER: Final = 5.0
"""Seconds without an answer after which nothing is forwarded to it."""

STARTED_WITHIN: Final = 120.0
"""Seconds for a process to load its server and to serve; then it is ended, as one that hangs."""

ENDED_AFTER: Final = 30.0
"""Seconds after which it is ended: not earlier, for a busy one is not a dead one."""

SHOWN_WITHIN: Final = 2.0
"""Seconds for a worker to tell what is to be seen of it: longer, and an operator sees the others."""

READ_WITHIN: Final = 2.0
"""Seconds to read what a worker said before it ended: which sessions it had begun or ended."""

KILLED_WITHIN: Final = 5.0
"""Seconds for the system to end a process that was killed."""

log = get_logger("callboard.workers")

_decoder: Final = msgspec.json.Decoder[FromWorker](FromWorker)


class WorkerEnded(Exception):
    """A worker process ended by itself."""


@attrs.define
class Equipment:
    """What all workers of one parent are given."""

    keys: list[bytes] = attrs.field(repr=False)
    folder: str
    listening: list[tuple[int, list[int]]]
    page: LoadPage
    meters: int
    has_keeper: bool = False

    def descriptors(self, listening: list[tuple[int, list[int]]]) -> list[int]:
        return [self.page.descriptor, self.meters, *(one for _, some in listening for one in some)]


class Listener(Protocol):
    """The parent, as its workers' actors need it."""

    def started(self, worker: "WorkerProcess", first: Started) -> None: ...

    def told(self, worker: "WorkerProcess", news: Told) -> None: ...

    def noted(self, worker: "WorkerProcess", note: Keep | Drop | Release | AllSessions | Take) -> None: ...

    def peers(self) -> list[PeerWorker]:
        """The workers that can be reached now."""

    async def wait_known(self, worker: "WorkerProcess") -> None:
        """Wait until the others have heard of it, but not for long."""

    def changed(self) -> None:
        """One worker is there now, or no longer, or hangs."""

    def ended(self, worker: "WorkerProcess", code: int) -> None: ...


@attrs.define(eq=False)
class WorkerProcess(Actor[None]):
    """Runs one process until it ends. Always a new program, never a copy of this one: a copy would share its locks."""

    mailbox = None

    number: int
    generation: int
    slot: int
    equipment: Equipment
    listener: Listener
    is_keeper: bool = False
    """Whether it serves no clients, but owns the backends that workers share."""
    identity: bytes = attrs.field(factory=new_worker_name, init=False)
    is_reachable: bool = attrs.field(default=False, init=False)
    """Whether other workers can forward to it. It takes clients when they know."""
    is_serving: bool = attrs.field(default=False, init=False)
    is_ready: bool = attrs.field(default=False, init=False)
    is_leaving: bool = attrs.field(default=False, init=False)
    is_trial: bool = attrs.field(default=False, init=False)
    """Whether it is not started again if it ends before it serves."""
    is_over: bool = attrs.field(default=False, init=False)
    port: int = attrs.field(default=0, init=False)
    """Where workers of other nodes reach it."""
    hangs: bool = attrs.field(default=False, init=False)
    process: trio.Process | None = attrs.field(default=None, init=False)
    _control: Control[FromWorker] | None = attrs.field(default=None, init=False)
    _heard: float = attrs.field(default=0.0, init=False)
    _questions: dict[int, trio.MemorySendChannel[bytes]] = attrs.field(factory=dict, init=False)
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _asked: int = attrs.field(default=0, init=False)  # how often it was asked whether it is alive
    _answered: int = attrs.field(default=0, init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)  # it answered, or can be reached

    async def run(self) -> None:
        if self.is_leaving:  # the end has begun before it could begin
            self.is_over = True
            self.listener.changed()
        else:
            await self._run_process()

    async def _run_process(self) -> None:
        ours, theirs = socket.socketpair()
        process, code = None, -signal.SIGKILL
        try:
            with theirs:
                process = self.process = await self._begin(theirs)
            if self.is_leaving:  # the end has begun meanwhile
                process.terminate()
            self._control = Control(ours, _decoder)
            self._control.say(self._assignment())
            self._control.say(PeerWorkers(self.listener.peers()))
            self._heard = trio.current_time()
            async with own_nursery() as nursery:
                is_read = trio.Event()
                nursery.start_soon(self._write, self._control)
                nursery.start_soon(self._read, self._control, is_read)
                nursery.start_soon(self._watch)
                nursery.start_soon(self._introduce)
                code = await process.wait()
                with trio.move_on_after(READ_WITHIN):
                    await is_read.wait()
                nursery.cancel_scope.cancel()
        finally:
            was_trial, self.is_over = self.is_trial and not self.is_serving, True
            self.is_reachable = self.is_serving = self.is_ready = False
            ours.close()
            if process is not None:
                with suppress(ProcessLookupError):
                    process.kill()
                with trio.CancelScope(shield=True, deadline=trio.current_time() + KILLED_WITHIN):
                    code = await process.wait()
                self.listener.ended(self, code)
            self.equipment.page.release(self.slot)
            _remove(Path(self.equipment.folder, self.identity.hex()))
            self.listener.changed()
        if not self.is_leaving and not was_trial:
            raise WorkerEnded(f"{self.label} ended {how_ended(code)}")

    @property
    def label(self) -> str:
        return "keeper" if self.is_keeper else f"worker-{self.number}"

    async def _begin(self, theirs: socket.socket) -> trio.Process:
        environment = {**os.environ, VARIABLE: str(theirs.fileno())}
        return await trio.lowlevel.open_process(
            [sys.executable, *sys.orig_argv[1:]],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), *self.equipment.descriptors(self._listening)],
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its workers in order
        )

    def _assignment(self) -> Assignment:
        given = self.equipment
        return Assignment(
            name=self.identity,
            number=self.number,
            generation=self.generation,
            slot=self.slot,
            page=given.page.descriptor,
            meters=given.meters,
            keys=[] if self.is_keeper else given.keys,
            folder=given.folder,
            listening=self._listening,
            is_keeper=self.is_keeper,
            has_keeper=given.has_keeper,
        )

    @property
    def _listening(self) -> list[tuple[int, list[int]]]:
        return [] if self.is_keeper else self.equipment.listening

    # What is said to it.

    def say(self, message: Message) -> bool:
        """False if it is a question, and the worker does not read those that wait."""
        return self._control is not None and self._control.say(message)

    def tell(self, news: Told) -> None:
        if self._control is not None:
            self._control.tell(news)

    def leave(self, linger: float, drain_time: float | None = None) -> None:
        """Others serve: let it finish, hand over what it can, and end."""
        self.is_leaving = True
        self.say(Leave(linger, drain_time))

    def end(self, number: int = signal.SIGTERM) -> None:
        """Have it drain (SIGTERM), or end at once."""
        self.is_leaving = True
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def read_anew(self) -> None:
        """Have it read its configuration again."""
        if self.process is not None and self.is_serving:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGHUP)

    async def _write(self, control: Control[FromWorker]) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await control.write()

    async def show(self, what: Literal["view", "history", "metrics", "stderr"], about: str = "") -> bytes | None:
        """What is to be seen of it, as JSON; None if it does not say in time."""
        return await self._question(lambda number: Show(number, what, about))

    async def act(self, action: str, subject: str) -> bool | None:
        """Have it do what the operator wants. Whether there was such a server, tool or client; None if it does not say
        in time."""
        said = await self._question(lambda number: ActionWanted(number, action, subject))
        return None if said is None else said == b"true"

    async def _question(self, question: Callable[[int], Message]) -> bytes | None:
        number = next(self._numbers)
        send, receive = trio.open_memory_channel[bytes](1)
        self._questions[number] = send
        try:
            if self.say(question(number)):
                with trio.move_on_after(SHOWN_WITHIN):
                    return await receive.receive()
            return None
        finally:
            del self._questions[number]

    # What it says.

    async def _read(self, control: Control[FromWorker], is_read: trio.Event) -> None:
        async for message in control:
            self._heard = trio.current_time()
            match message:
                case Reachable():
                    self.is_reachable, self.port = True, message.port
                    self.listener.changed()
                    self._move()
                case Started():
                    self.is_reachable = True
                    self.is_serving, self.is_ready, self.is_trial = True, message.is_ready, False
                    self.port = message.port
                    if not self.is_keeper:
                        self.equipment.page.say(self.slot, 0)
                    self.listener.started(self, message)
                    self.listener.changed()
                case StillThere():
                    self.is_ready, self._answered = message.is_ready, message.number
                    self._move()
                case Told():
                    self.listener.told(self, message)
                case Shown():
                    if (asked := self._questions.get(message.number)) is not None:
                        asked.send_nowait(bytes(message.said))
                case Keep() | Drop() | Release() | AllSessions() | Take():
                    self.listener.noted(self, message)
        is_read.set()

    # How the others hear of it, and it of others.

    async def _introduce(self) -> None:
        while not self.is_reachable:
            await self._moved.wait()
        await self.listener.wait_known(self)
        self.say(Known())

    async def wait_read(self) -> None:
        """Wait until it has read all that was said to it so far."""
        number = self._ask()
        while self._answered < number:
            await self._moved.wait()

    def _ask(self) -> int:
        self._asked += 1
        self.say(AreYouThere(self._asked))
        return self._asked

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    async def _watch(self) -> None:
        """Ask it whether it is alive. One that does not answer gets nothing more; and after long, a successor."""
        until = trio.current_time() + STARTED_WITHIN
        while True:
            asked = trio.current_time()
            await trio.sleep(PING_EVERY)
            # While this process was paused, the worker may have answered: that is read after this.
            self._heard += trio.current_time() - asked - PING_EVERY
            self._ask()
            silent = trio.current_time() - self._heard
            if self.is_serving and (hangs := silent > HANGS_AFTER) != self.hangs:
                self.hangs = hangs
                log.warning("worker_hangs" if hangs else "worker_answers", worker=self.number, silent=round(silent, 1))
                self.listener.changed()
            if self.is_serving and silent > ENDED_AFTER and self.process is not None:
                log.error("worker_killed", worker=self.number, silent=round(silent, 1))
                self.process.kill()
            elif not (self.is_serving or self.is_leaving) and trio.current_time() > until and self.process is not None:
                log.error("worker_not_started", worker=self.label, within=STARTED_WITHIN)
                self.process.kill()

    def peer(self) -> PeerWorker:
        return PeerWorker(self.identity, self.number, self.generation, self.hangs, is_leaving=self.is_leaving)

    def facts(self) -> Mapping[str, Fact]:
        state = "serving" if self.is_serving else "starting"
        load = self.equipment.page.load(self.slot)
        return {
            "state": "hangs" if self.hangs else "leaving" if self.is_leaving else state,
            "pid": 0 if self.process is None else self.process.pid,
            "generation": self.generation,
            "load": -1 if load is None else load,
        }


def _remove(path: Path) -> None:
    """The socket of a worker that could not do it itself."""
    with suppress(OSError):
        path.unlink()


def how_ended(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
