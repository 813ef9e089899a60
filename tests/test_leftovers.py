"""The fixture that every test is held to, held to something itself."""
# ruff: noqa: PT012  # the block is what a test would do

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from callboard.supervisor import SupervisorSpec, open_tree
from tests.conftest import leaving_no_task, nothing_is_left_over


@contextmanager
def held_to_it() -> Iterator[None]:
    """The fixture around a block, as pytest puts it around a test."""
    fixture = nothing_is_left_over.__wrapped__()  # type: ignore[attr-defined]  # pytest keeps the function there
    next(fixture)
    yield
    with pytest.raises(StopIteration):
        next(fixture)


async def test_an_open_tree_is_a_leftover() -> None:
    with pytest.raises(AssertionError, match=r"supervision trees.*forgotten"), held_to_it():
        tree = open_tree(SupervisorSpec("forgotten"))
        await tree.__aenter__()
    await tree.__aexit__(None, None, None)


async def test_a_closed_tree_is_none() -> None:
    with held_to_it():
        async with open_tree(SupervisorSpec("top")):
            pass


def test_an_open_descriptor_is_a_leftover() -> None:
    with pytest.raises(AssertionError, match="descriptors"), held_to_it():
        reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)


def test_a_child_process_is_a_leftover() -> None:
    with pytest.raises(AssertionError, match="child processes"), held_to_it():
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    child.communicate()


def test_a_thread_is_a_leftover() -> None:
    release = threading.Event()
    with pytest.raises(AssertionError, match="threads"), held_to_it():
        thread = threading.Thread(target=release.wait)
        thread.start()
    release.set()
    thread.join()


async def test_a_task_outside_of_every_nursery_is_a_leftover() -> None:
    stop = trio.Event()

    async def careless() -> None:
        trio.lowlevel.spawn_system_task(stop.wait, name="forgotten")

    with pytest.raises(AssertionError, match="forgotten"):
        await leaving_no_task(careless)()
    stop.set()


async def test_a_task_on_its_way_out_is_none() -> None:
    async def tidy() -> None:
        trio.lowlevel.spawn_system_task(trio.lowlevel.checkpoint)

    await leaving_no_task(tidy)()
