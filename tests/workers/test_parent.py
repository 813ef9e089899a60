"""The parent of workers that do not do what they should. They are small programs which say what workers say."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from callboard import tree
from callboard.cluster.node import ClusterNode
from callboard.serve import parent as parent_module
from callboard.serve.options import ServePlan
from callboard.serve.parent import MAX_LINGERING, Parent, keep_telling
from callboard.supervisor import Actor, Intensity, open_tree
from callboard.transports.limits import Settings
from callboard.workers import process as process_module
from callboard.workers.fair_share import LoadPage
from callboard.workers.messages import VARIABLE
from callboard.workers.process import Equipment, WorkerProcess
from callboard.workers.shared_rate import create_meters
from tests.process import PATIENCE

WORKER = """
import json, os, socket, sys, time
mode = sys.argv[1]
end = socket.socket(fileno=int(os.environ["%s"]))
lines = end.makefile()
say = lambda kind, **more: end.sendall(json.dumps({"kind": kind, **more}).encode() + b"\\n")
lines.readline()
if mode == "exits":
    sys.exit(3)
if mode == "hangs":
    time.sleep(1000)
if mode == "notes":
    for number in range(40):
        say("keep", key=str(number), record="AAAA" * 100)
    say("drop", key="0")
    sys.exit(0)
say("reachable")
for line in lines:
    said = json.loads(line)
    if said["kind"] == "known":
        say("started", server="small", version="1", warnings=[])
        if mode == "crashes":
            sys.exit(4)
    elif said["kind"] == "areyouthere":
        say("stillthere", number=said["number"], is_ready=True)
    elif said["kind"] == "leave" and mode != "lingers":
        break
""" % (VARIABLE,)


@attrs.define(eq=False)
class Nursery:
    """A parent, and what its workers do: by their numbers, else *usually*."""

    parent: Parent
    logged: list[Any]
    usually: str = "serves"
    modes: dict[int, str] = attrs.field(factory=dict)
    began: list[int] = attrs.field(factory=list)

    def states(self) -> dict[int, bool]:
        """The workers that the parent knows, and whether each serves."""
        return {worker.number: worker.is_serving for worker in self.parent.workers()}

    def events(self, name: str) -> list[Any]:
        return [line for line in self.logged if line["event"] == name]

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(0.01)


@asynccontextmanager
async def nursery_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int = 2, modes: dict[int, str] | None = None
) -> AsyncIterator[Nursery]:
    async def begin(self: WorkerProcess, theirs: socket.socket) -> trio.Process:
        nursery.began.append(self.number)
        mode = nursery.modes.get(self.number, nursery.usually)
        return await trio.lowlevel.open_process(
            [sys.executable, "-S", "-c", WORKER, mode],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, VARIABLE: str(theirs.fileno())},
        )

    monkeypatch.setattr(WorkerProcess, "_begin", begin)
    page, meters = LoadPage.create(), create_meters()
    plan = ServePlan(http="127.0.0.1:0", workers=workers, settings=Settings(drain_time=2, linger=60))
    try:
        with structlog.testing.capture_logs() as logged, trio.fail_after(PATIENCE):
            async with open_tree(tree.node()) as root:
                parent = Parent(plan, Equipment([], str(folder), [], page, meters), root, {}, None)
                nursery = Nursery(parent, logged, modes=dict(modes or {}))
                try:
                    yield nursery
                finally:
                    with trio.CancelScope(shield=True):
                        await parent._end_now(parent.workers())
    finally:
        page.close()
        os.close(meters)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are shorter for those that hang."""
    monkeypatch.setattr(process_module, "PING_EVERY", 0.05)
    monkeypatch.setattr(process_module, "STARTED_WITHIN", 0.5)


# Generations.


async def test_a_generation_whose_first_worker_does_not_start_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nursery_of(tmp_path, monkeypatch, modes={3: "exits"}) as nursery:
        assert await nursery.parent._start_generation()
        assert not await nursery.parent._start_generation()
        assert nursery.states() == {1: True, 2: True}
        assert await nursery.parent._start_generation()  # with the next numbers
        await nursery.wait_until(lambda: nursery.states() == {5: True, 6: True})
        assert nursery.began == [1, 2, 3, 5, 6]


async def test_a_generation_of_which_one_worker_does_not_start_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nursery_of(tmp_path, monkeypatch, 3, {5: "exits"}) as nursery:
        assert await nursery.parent._start_generation()
        assert not await nursery.parent._start_generation()
        await nursery.wait_until(lambda: nursery.states() == {1: True, 2: True, 3: True})
        assert not any(worker.is_leaving for worker in nursery.parent.workers())


@pytest.mark.usefixtures("quick")
async def test_a_worker_that_hangs_before_it_serves_is_ended_and_the_older_generation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nursery_of(tmp_path, monkeypatch, modes={3: "hangs"}) as nursery:
        assert await nursery.parent._start_generation()
        assert not await nursery.parent._start_generation()
        assert [line["worker"] for line in nursery.events("worker_not_started")] == ["worker-3"]
        assert nursery.states() == {1: True, 2: True}


async def test_the_oldest_of_too_many_generations_that_linger_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nursery_of(tmp_path, monkeypatch, 1) as nursery:
        nursery.usually = "lingers"
        for _ in range(MAX_LINGERING + 3):
            assert await nursery.parent._start_generation()
        assert sorted(nursery.states()) == [3, 4, 5, 6]
        assert [line["generation"] for line in nursery.events("generation_ended_early")] == [1, 2]


async def test_a_generation_waits_for_slots_of_those_that_linger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent_module, "SLOTS", 6)
    async with nursery_of(tmp_path, monkeypatch, 2) as nursery:
        nursery.usually = "lingers"
        for _ in range(4):
            assert await nursery.parent._start_generation()
        assert sorted(nursery.states()) == [5, 6, 7, 8]


# Crashes.


async def test_a_server_whose_workers_cannot_start_ends_with_a_word_and_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nursery_of(tmp_path, monkeypatch, modes={1: "exits"}) as nursery:
        assert await nursery.parent.run() == 3
        (line,) = nursery.events("server_not_started")
        assert line["ended"] == "with exit code 3"
        assert nursery.began == [1]


async def test_it_is_said_that_workers_crash_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent_module, "CRASH_LOOP", Intensity(3, per=30.0))
    async with nursery_of(tmp_path, monkeypatch, 1) as nursery:
        nursery.usually = "crashes"
        async with trio.open_nursery() as tasks:
            tasks.start_soon(nursery.parent._start_generation)
            await nursery.wait_until(lambda: bool(nursery.events("workers_crash")))
            tasks.cancel_scope.cancel()
        nursery.usually = "serves"
        assert len(nursery.began) == 4
        (line,) = nursery.events("workers_crash")
        assert (line["crashes"], line["ended"]) == (4, "with exit code 4")


class Crasher(Actor[None]):
    """A worker that serves for a while, and crashes."""

    mailbox = None
    began: ClassVar[list[float]] = []

    async def run(self) -> None:
        self.began.append(trio.current_time())
        await trio.sleep(5)
        raise RuntimeError("of its own")


async def test_workers_that_crash_again_and_again_are_started_after_longer_pauses(autojump_clock: MockClock) -> None:
    Crasher.began.clear()
    async with open_tree(tree.node()) as root:
        await root.supervisor_of(tree.WORKERS).add(tree.worker("worker-1", Crasher))
        await trio.sleep(300)
    pauses = [later - earlier - 5 for earlier, later in pairwise(Crasher.began)]
    assert pauses[0] < 0.2 < 9 < pauses[-1] < 13
    assert len(pauses) < 30


# What a worker says last, and what it shows.


async def test_what_a_worker_said_before_its_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = WorkerProcess._read

    async def read_later(self: WorkerProcess, *args: Any) -> None:
        assert self.process is not None
        await self.process.wait()  # as when the parent is busy
        await read(self, *args)

    monkeypatch.setattr(WorkerProcess, "_read", read_later)
    async with nursery_of(tmp_path, monkeypatch, 1, {1: "notes"}) as nursery:
        assert not await nursery.parent._start_generation()
        book = nursery.parent.book
        assert len(book) == 39
        entry = book.entry("39")
        assert entry is not None
        assert entry.home is None  # another worker may have it


async def test_a_fault_in_a_view_ends_no_node(autojump_clock: MockClock) -> None:
    calls = list[float]()

    async def tell(node: ClusterNode) -> None:
        calls.append(trio.current_time())
        raise KeyError("of a newer release")

    node: Any = None
    with structlog.testing.capture_logs() as logged, trio.move_on_after(10):
        await keep_telling(tell, node)
    assert len(calls) == 4
    assert [line["event"] for line in logged] == ["view_failed"]


# What a parent is.


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_parent_loads_nothing_that_serves(command: str) -> None:
    """Each of these takes megabytes, which a process that only looks after others does without."""
    code = f"import sys, callboard.cli.main, callboard.cli.{command}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60).stdout
    unwanted = {
        *("cryptography", "jsonschema_rs", "cattrs", "coredis", "httptools", "hypercorn", "h2", "wsproto"),
        *("callboard.actors.server.host", "callboard.codecs.revisions", "callboard.client", "callboard.server.server"),
        *("callboard.serve.run", "callboard.serve.admin", "callboard.observe", "callboard.broker", "callboard.oauth"),
    }
    assert unwanted.isdisjoint(loaded.split())
    assert "callboard.serve.parent" in loaded.split()
