"""Another project's client drives tasks: of a hosted server, and through the broker of servers of both protocols."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.clients.libraries import HERE
from tests.conformance.doors import EVERYTHING
from tests.node import installed, needs_npm, node
from tests.served import brokered, served
from tests.servers.running import fastmcp_with_tasks
from tests.shared import ROOT

OLDER = {
    "task": [True, "computed x in 1 s"],
    "asks": [True, "deleted x"],
    "asks twice at once": [True, "Your name? and Your pet's name?"],
    "fails": [True, "MCP error -32603: Task failed"],
    "cancelled": "cancelled",
}

HEARD = {
    "revision": "2026-07-28",
    "plain": "Hello, Ada!",
    "task": "computed x in 1 s",
    "asks": "deleted x",
    "asks twice at once": "Your name? and Your pet's name?",
    "fails": "error: the job failed",
    "begun": True,
    "cancelled": "cancelled",
}


@contextmanager
def reached(how: str) -> Iterator[str]:
    if how == "hosted":
        with served(EVERYTHING) as at:
            yield at.http
    else:
        revisions = ("--revisions", how.removeprefix("in front of ")) if how.startswith("in front of") else ()
        with brokered(EVERYTHING, "http", *revisions) as at:
            yield at.http


@pytest.mark.parametrize("how", ["hosted", "brokered", "in front of 2025-11-25"])
def test_the_client_of_fastmcp_drives_tasks(how: str) -> None:
    with reached(how) as url:
        command = [str(fastmcp_with_tasks()), "-m", "tests.clients.fast_tasks", url]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == HEARD


@needs_npm
@pytest.mark.parametrize("how", ["hosted", "in front of 2026-07-28", "in front of 2025-11-25"])
def test_the_typescript_sdk_drives_tasks_of_2025_11_25(how: str) -> None:
    with reached(how) as url:
        command = [str(node()), str(HERE / "node" / "tasks.mjs"), url]
        folder = installed(HERE / "node")
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == OLDER
