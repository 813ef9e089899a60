"""What every test of the project is held to: leaving it leaves nothing behind."""

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

# No deadline per example: the machine is shared, and a slow example is not a wrong one.
settings.register_profile("callboard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


def _leftovers() -> dict[str, set[str]]:
    return {
        "child processes": {str(child.pid) for child in psutil.Process(os.getpid()).children()},
        "descriptors": _descriptors() if Path("/proc/self/fd").is_dir() else set(),
        "threads": {thread.name for thread in threading.enumerate() if not thread.daemon},
    }


@pytest.fixture(autouse=True)
def nothing_is_left_over() -> Iterator[None]:
    """Fail a test that leaves an actor, task, descriptor, thread or child process behind."""
    before = _leftovers()
    yield
    after = _leftovers()
    if any(after[kind] - before[kind] for kind in after):
        gc.collect()  # a descriptor owned by garbage is not a leak
        after = _leftovers()
    assert {kind: after[kind] - before[kind] for kind in after if after[kind] - before[kind]} == {}
