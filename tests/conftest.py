"""What every test of the project is held to: leaving it leaves nothing behind."""

import functools
import gc
import inspect
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings

from callboard.supervisor import live_trees
from callboard.supervisor.logs import LINES
from tests import fork_server

# No deadline per example: the machine is shared, and a slow example is not a wrong one.
settings.register_profile("callboard", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
# `make check` draws fewer examples, `make fuzz` many.
settings.register_profile("quick", settings.get_profile("callboard"), max_examples=20)
settings.register_profile("long", settings.get_profile("callboard"), max_examples=2000)
settings.load_profile("callboard")


def _descriptors() -> set[str]:
    """What each open descriptor points at; the listing's own descriptor is gone when it is read."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} -> {entry.readlink()}")
        except OSError:
            continue
    return found


def _children() -> set[str]:
    """The process ids of all direct children, whichever thread started them."""
    tasks = Path("/proc/self/task")
    if not (tasks / str(os.getpid()) / "children").is_file():
        return {str(child.pid) for child in psutil.Process(os.getpid()).children()}
    # psutil reads the state of every process of the machine: 60 times as long, twice in each of 11,000 tests.
    found = set()
    for task in tasks.iterdir():
        with suppress(OSError):  # the thread has ended since the listing
            found.update((task / "children").read_text().split())
    return found


def _leftovers() -> dict[str, set[str]]:
    return {
        "child processes": _children() - fork_server.PIDS,
        "descriptors": _descriptors() if Path("/proc/self/fd").is_dir() else set(),
        "supervision trees": {root.path for root in live_trees()},
        "threads": {thread.name for thread in threading.enumerate() if not thread.daemon},
    }


@pytest.fixture(autouse=True)
def nothing_is_left_over() -> Iterator[None]:
    """Fail a test that leaves an actor, task, descriptor, thread or child process behind."""
    before = _leftovers()
    LINES.forget()  # the same line in another test is not a repetition
    yield
    after = _leftovers()
    if any(after[kind] - before[kind] for kind in after):
        gc.collect()  # a descriptor owned by garbage is not a leak
        after = _leftovers()
    assert {kind: after[kind] - before[kind] for kind in after if after[kind] - before[kind]} == {}


def _system_tasks() -> set[trio.lowlevel.Task]:
    """Tasks that no block of the test's own waits for; all others end with the nursery they are in."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return {task for nursery in root.child_nurseries for task in nursery.child_tasks}


def leaving_no_task(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Have *test* fail if a task is left over that would only end with the whole run."""

    @functools.wraps(test)
    async def watched(*args: Any, **kwargs: Any) -> None:
        before = _system_tasks()
        await test(*args, **kwargs)
        if _system_tasks() - before:
            await trio.testing.wait_all_tasks_blocked()  # it may be on its way out
        assert {task.name for task in _system_tasks() - before} == set()

    return watched


def pytest_configure() -> None:
    """Hear Ctrl-C: a shell has what it runs in the background ignore SIGINT, and so would every process of a test."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Set aside what collecting made: with two million objects each full collection would take a third of a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Look at the tasks from inside the run, before pytest-trio wraps the test into one."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = leaving_no_task(item.obj)
    return (yield)
