"""Other people's servers and ours, put under load as somebody would who has read `--help` and nothing else."""

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import pytest
import trio

from tests.fork_server import forked
from tests.node import needs_npm, node
from tests.process import callboard
from tests.served import served
from tests.servers.running import EVERYTHING, LIBRARIES, listening, packages
from tests.shared import ROOT

SHORT: Final = ("--duration", "500ms", "--warmup", "100ms")
LOADS: Final = (
    ("--concurrency", "4", *SHORT),
    ("--sessions", "2", "--rate", "40", "--duration", "1s", "--warmup", "100ms"),
)
PATIENCE: Final = 120.0
"""Seconds for one server over one way. Each takes about six, installed."""

APP: Final = "tests/apps/steady.py"


async def measured(target: Sequence[str], work: Sequence[str], *flags: str) -> Any:
    url = [] if len(target) > 1 else target
    command = ["--", *target] if len(target) > 1 else []
    done = await trio.to_thread.run_sync(partial(callboard, "bench", *url, "--json", *work, *flags, *command))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


async def put_under_load(target: Sequence[str], arguments: dict[str, str], server: str) -> None:
    """A tool and the list of tools, in a closed loop and an open one: all of it is answered, and nothing is wrong."""
    work = ("--tool", "echo", "--args", json.dumps(arguments), "--list")
    for flags in LOADS:
        told = await measured(target, work, *flags)
        assert told["errors"] == {}
        assert server in told["server"]
        assert told["work"] == "call echo, list tools"
        assert told["settings"]["generator"] == "prepared requests"
        assert told["requests"] >= (30 if "--rate" in flags else 8)
        assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]


@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize("name", ["mcp-2.3.0", "fastmcp-4.1.4"])
async def test_servers_of_other_libraries_are(name: str, way: str) -> None:
    library = next(library for library in LIBRARIES if library.name == name)
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        target = library.command(way)
        if way == "http":
            target = [await stack.enter_async_context(listening([*target, "PORT"], library.cwd(), "/mcp"))]
        await put_under_load(target, {"text": "hi"}, "stage")


@needs_npm
@pytest.mark.parametrize("way", ["stdio", "streamableHttp"])
async def test_the_reference_server_is(way: str) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        target = [str(node()), str(packages() / EVERYTHING), way]
        if way != "stdio":
            target = [await stack.enter_async_context(listening(target, packages(), "/mcp"))]
        await put_under_load(target, {"message": "hi"}, "everything")


@pytest.mark.parametrize("way", ["stdio", "http", "ws"])
async def test_ours_is(way: str) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        target = [*forked(), "run", str(ROOT / APP)]
        if way != "stdio":
            target = [getattr(stack.enter_context(served(f"{APP}:server", ws=True)), way)]
        await put_under_load(target, {"text": "hi"}, "steady")


async def test_a_file_with_a_server_is_all_that_need_be_named() -> None:
    with trio.fail_after(PATIENCE):
        told = await measured([str(ROOT / APP)], (), *SHORT)
    assert told["work"] == "call now"
    assert told["errors"] == {}
