"""Hostile messages of up to 4 MiB, at a hosted server and at a broker: none keeps the event loop for long.

The probe counts whole turns of the loop, so that a message which starts thousands of tasks is caught, too.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel

from callboard import Server
from callboard.actors.server.host import Host
from callboard.actors.server.session_tree import open_session
from callboard.codecs.lines import MAX_FRAME
from callboard.codecs.revisions import meta
from callboard.codecs.revisions.revision import R4, R5
from callboard.transports.memory import memory_pair
from tests.broker.back import Back
from tests.broker.front import backend, brokered
from tests.lag import STALL, lag

SHARED = 2
"""How much slower than promised it may be here: tests share the machine, its caches and its cores with others."""

MODERN = {
    meta.PROTOCOL_VERSION: R5.value,
    meta.CLIENT_CAPABILITIES: {},
    meta.CLIENT_INFO: {"name": "stranger", "version": "1"},
}


def asks(method: str, said: dict[str, Any] | None = None, **params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": {**MODERN, **(said or {})}}}
    return json.dumps(message).encode()


def tells(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def call(arguments: bytes, **more: Any) -> bytes:
    return asks("tools/call", name="take", arguments={"n": "HERE"}, **more).replace(b'"HERE"', arguments)


def members(count: int, value: object = 1) -> dict[str, object]:
    return {f"k{number}": value for number in range(count)}


def listen(count: int, more: str = "") -> bytes:
    uris = [f"notes://one/{number}/{more}" for number in range(count)]
    return asks("subscriptions/listen", notifications={"resourceSubscriptions": uris})


FLOATS = b"[" + b",".join([b"1.5e-9"] * 99_000) + b"]"

MESSAGES: dict[str, Callable[[], bytes]] = {
    "floats": lambda: call(FLOATS),
    "floats beside a forged state": lambda: call(FLOATS, requestState="AAAA"),
    "escapes": lambda: call(b'"' + b'\\"[{\\\\' * 580_000 + b'"'),
    "escaped letters": lambda: call(b'"' + b"\\u00e9" * 650_000 + b'"'),
    "subscriptions": lambda: listen(99_000),
    "long subscriptions": lambda: listen(4000, "y" * 900),
    "capabilities": lambda: asks("tools/list", {meta.CLIENT_CAPABILITIES: {"experimental": members(90_000, {})}}),
    "unknown capabilities": lambda: asks("tools/list", {meta.CLIENT_CAPABILITIES: members(90_000, {})}),
    "icons of the client": lambda: asks(
        "tools/list", {meta.CLIENT_INFO: {"name": "x", "version": "1", "icons": [{"src": "https://x"}] * 50_000}}
    ),
    "name of the client": lambda: asks("tools/list", {meta.CLIENT_INFO: {"name": "x" * 3_900_000, "version": "1"}}),
    "meta": lambda: asks("tools/list", members(90_000)),
    "inputs": lambda: call(b"[1]", inputResponses=members(49_000, {"action": "accept"})),
    "arguments of a prompt": lambda: asks("prompts/get", name="greet", arguments=members(90_000, "v")),
    "what is completed": lambda: asks(
        "completion/complete",
        ref={"type": "ref/prompt", "name": "greet"},
        argument={"name": "who", "value": "x" * 2_900_000},
        context={"arguments": members(40_000, "v")},
    ),
    "slashes": lambda: asks("resources/read", uri="notes://" + "a/" * 1_900_000),
    "cursor": lambda: asks("tools/list", cursor="x" * 3_900_000),
    "progress token": lambda: asks("tools/list", {"progressToken": "x" * 3_900_000}),
    "initialize": lambda: asks(
        "initialize",
        protocolVersion="2025-06-18",
        clientInfo={"name": "x", "version": "1"},
        capabilities={"experimental": members(90_000, {})},
    ).replace(meta.PROTOCOL_VERSION.encode(), b"x"),
    "reason": lambda: tells("notifications/cancelled", requestId=7, reason="\x1b" * 600_000),
    "told too much": lambda: tells("notifications/progress", progressToken=7, progress=1, x=members(90_000)),
    "answer to nothing": lambda: json.dumps({"jsonrpc": "2.0", "id": 7, "result": members(90_000)}).encode(),
}


def server() -> Server:
    made = Server("hosted")

    @made.tool
    async def take(n: list[float]) -> str:
        return str(len(n))

    @made.prompt
    async def greet(who: str) -> str:
        return who

    @made.resource("notes://{+rest}")
    async def read(rest: str) -> str:
        return rest

    return made


@asynccontextmanager
async def hosted() -> AsyncIterator[Host]:
    async with server().host() as host:
        yield host


@asynccontextmanager
async def brokering(back: Back) -> AsyncIterator[Host]:
    async with brokered(backend(back.ways, timeout=1)) as host:
        yield host


HOUSES: dict[str, Callable[[], AbstractAsyncContextManager[Host]]] = {
    "hosted": hosted,
    "modern": lambda: brokering(Back(R5)),
    "legacy": lambda: brokering(Back(R4)),
}


async def longest_turn(host: Host, name: str, message: bytes) -> tuple[float, str]:
    near, far = memory_pair()
    with lag() as watched:
        session = await open_session(host, far, name)
        await near.send(message)
        with trio.move_on_after(0.05):
            await near.receive()
        near.close()
        await session.address.stop()
        await trio.lowlevel.checkpoint()
    return watched.longest, watched.culprit


@pytest.fixture(scope="module")
def messages() -> dict[str, bytes]:
    return {kind: make() for kind, make in MESSAGES.items()}


@pytest.mark.finding("security-12", "security-3", "security-19")
@pytest.mark.parametrize("house", HOUSES)
async def test_no_message_of_a_stranger_keeps_the_loop(house: str, messages: dict[str, bytes]) -> None:
    slow = {}
    async with HOUSES[house]() as host:
        for kind, message in messages.items():
            assert len(message) <= MAX_FRAME
            for again in range(3):  # the best of three: a collection may fall into one
                took, culprit = await longest_turn(host, f"{kind}-{again}".replace(" ", "-"), message)
                if took < SHARED * STALL:
                    break
            else:
                slow[kind] = f"{took:.3f} s in {culprit}"
    assert slow == {}
