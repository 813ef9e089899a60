"""A legacy server has a process for each client: what an operator hears of one that dies, and of one that is ended."""

import os
import signal
import sys
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio
from structlog.testing import capture_logs

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.leases import SHARED
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.testing import Peer, Refusal
from callboard.transports.client.process import Command
from tests.broker.front import backend, peer
from tests.client.stage import Json

SERVER: Final = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("id") is None:
        continue
    result = {}
    if asked["method"] == "initialize":
        info = {"name": "fragile", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("die", "live")]}
    elif asked["method"] == "tools/call":
        if asked["params"]["name"] == "die":
            print("FATAL: disk full", file=sys.stderr, flush=True)
            os._exit(7)
        result = {"content": []}
    elif asked["method"] == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


LIVE: Final[Json] = {"name": "live", "arguments": {}}
DIE: Final[Json] = {"name": "die", "arguments": {}}


@asynccontextmanager
async def client_of_one() -> AsyncIterator[tuple[Backend, Peer]]:
    broker = Broker([backend(Command.of([sys.executable, "-c", SERVER]))])
    with trio.fail_after(20):
        async with broker.host(parking=Parking("broker")) as host, peer(host) as client:
            yield broker.backends["back"], client


def of_process(back: Backend) -> BackendConnection:
    """The connection of the only client."""
    [connection] = [one for one in back.pool if one.key != SHARED]
    return connection


def told(logs: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in logs if line["log_level"] == "warning" and str(line["event"]).startswith("backend_")]


async def test_a_process_that_dies_in_a_call_is_in_the_log_and_counted() -> None:
    with capture_logs() as logs:
        async with client_of_one() as (back, client):
            await client.request("tools/call", **LIVE)
            dying = of_process(back)
            with pytest.raises(Refusal) as refused:
                await client.request("tools/call", **DIE)
            await dying.address.wait_ended()
            assert (refused.value.code, back.is_up, back.circuit.restarted) == (-31001, True, 1)
            await client.request("tools/call", **LIVE)
    assert told(logs) == [
        {
            "event": "backend_process_lost",
            "log_level": "warning",
            "backend": "back",
            "why": "the server exited with 7",
            "said": ["FATAL: disk full"],
        }
    ]


async def test_a_process_that_is_not_needed_any_more_is_no_loss() -> None:
    with capture_logs() as logs:
        async with client_of_one() as (back, client):
            await client.request("tools/call", **LIVE)
            ended = of_process(back)
            ended.retire()
            await ended.address.wait_ended()
            assert ended.exit_code is not None
            await client.request("tools/call", **LIVE)
            back.restart()
            await client.request("tools/call", **LIVE)
            assert back.circuit.restarted == 1
    assert [line["event"] for line in told(logs)] == ["backend_lost"]


async def test_a_process_that_is_killed_while_it_is_idle_is_in_the_log() -> None:
    with capture_logs() as logs:
        async with client_of_one() as (back, client):
            await client.request("tools/call", **LIVE)
            dying = of_process(back)
            assert dying.pid is not None
            os.kill(dying.pid, signal.SIGKILL)
            await dying.address.wait_ended()
            assert back.circuit.restarted == 1
    assert [(line["event"], line["why"]) for line in told(logs)] == [
        ("backend_process_lost", "the server was killed by SIGKILL")
    ]
