"""Clients that make a hosted server hold as much as it lets them. Each says what it did."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import attrs
import trio

from benchmarks.nemesis_fronts import websocket
from tests.soak.clients import HELLO, ask, connect, frame_of, head_of, modern, session_at, whole_answer

LARGEST: Final = 3_900_000
"""Bytes of what is just small enough to be one message."""
AT_ONCE: Final = 100
CAPABLE: Final[dict[str, Any]] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


@attrs.frozen
class Aim:
    """What is aimed at, and how much is tried. What is entered into the *stack* is held until memory was read."""

    url: str
    ws: str
    stack: AsyncExitStack
    few: int = 150
    """Large things: several times what the bounds allow."""
    many: int = 5_000
    """Small things."""


@attrs.frozen
class Did:
    """What an act did. *count* is how many small things it left there, if they are all alike."""

    words: str
    count: int = 0


Act = Callable[[Aim], Awaitable[Did]]


async def in_turns(count: int, one: Callable[[int], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """Do it *count* times, some at the same time."""
    room = trio.CapacityLimiter(at_once)

    async def limited(number: int) -> None:
        async with room:
            await one(number)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(limited, number)


def called(tool: str, **arguments: Any) -> bytes:
    return modern("tools/call", name=tool, arguments=arguments)


@asynccontextmanager
async def held(url: str, data: bytes) -> AsyncIterator[trio.SocketStream]:
    """A connection that has sent *data*, and reads nothing."""
    async with await connect(url) as stream:
        with trio.move_on_after(10), suppress(trio.BrokenResourceError):  # it was refused in the middle
            await stream.send_all(data)
        yield stream


async def heads(aim: Aim) -> Did:
    url, stack = aim.url, aim.stack
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 600) for n in range(50))

    async def one(_: int) -> None:
        await stack.enter_async_context(held(url, head))

    await in_turns(aim.many, one)
    return Did(f"{aim.many:,} connections, a head of {len(head) // 1024} KiB each", aim.many)


async def bodies(aim: Aim) -> Did:
    url, stack = aim.url, aim.stack
    frame = called("noop", text="x" * LARGEST)

    async def one(_: int) -> None:
        await stack.enter_async_context(held(url, (head_of(url, frame) + frame)[:-1]))

    await in_turns(aim.few, one)
    return Did(f"{aim.few} bodies of 3.9 MB without their last byte")


async def requests(aim: Aim) -> Did:
    url, stack = aim.url, aim.stack
    small, big = called("wait", text="x" * 1000), called("wait", text="x" * LARGEST)

    async def one(number: int) -> None:
        frame = big if number < aim.few else small
        await stack.enter_async_context(held(url, head_of(url, frame) + frame))

    await in_turns(aim.many, one)
    return Did(f"{aim.many:,} calls that wait, {aim.few} of them of 3.9 MB")


async def failures(aim: Aim) -> Did:
    url = aim.url
    frame = called("no_such_tool", text="x" * LARGEST)
    async with await connect(url) as stream:
        for _number in range(aim.few):
            await stream.send_all(head_of(url, frame) + frame)
            await whole_answer(stream)
    return Did(f"{aim.few} calls of 3.9 MB to an unknown tool")


async def sessions(aim: Aim) -> Did:
    url = aim.url
    opened = 0
    frame = frame_of("initialize", **HELLO)

    async def one(_: int) -> None:
        nonlocal opened
        async with await connect(url) as stream:
            for _number in range(200):
                await stream.send_all(head_of(url, frame) + frame)
                answer = await whole_answer(stream)
                opened += answer.status == 200

    await in_turns(100, one, 8)
    return Did(f"{opened:,} of 20,000 `initialize`", opened)


async def events(aim: Aim) -> Did:
    """A call whose answer is large, in a session whose client then leaves."""
    url = aim.url

    async def one(number: int) -> None:
        session = await session_at(url)
        params = {"name": "large", "arguments": {"size": LARGEST}, "_meta": {"progressToken": "t"}}
        await ask(url, frame_of("tools/call", **params), session=session)

    await in_turns(aim.few, one, 4)
    return Did(f"{aim.few} sessions, an answer of 3.9 MB in each")


async def outboxes(aim: Aim) -> Did:
    url, stack = aim.url, aim.stack
    frame = called("large", size=LARGEST)

    async def one(_: int) -> None:
        await stack.enter_async_context(held(url, head_of(url, frame) + frame))

    await in_turns(aim.few, one)
    await trio.sleep(2)
    return Did(f"{aim.few} answers of 3.9 MB that are not read")


async def replay(aim: Aim) -> Did:
    ws = aim.ws

    async def one(_: int) -> None:
        async with websocket(ws) as line:
            await line.send_message(called("large", size=LARGEST).decode())
            await line.get_message()  # it is on its way: the client leaves

    await in_turns(aim.few, one, 4)
    return Did(f"{aim.few} WebSockets dropped during an answer of 3.9 MB")


async def followed(aim: Aim) -> Did:
    """By streams that stay, and in sessions whose clients leave."""
    url, stack, taken = aim.url, aim.stack, 0

    async def stream(number: int) -> None:
        uris = [f"memory://{number}-{n}-{'x' * 8000}" for n in range(480)]
        frame = modern("subscriptions/listen", "l", notifications={"resourceSubscriptions": uris})
        opened = await stack.enter_async_context(held(url, head_of(url, frame) + frame))
        with trio.move_on_after(5), suppress(trio.BrokenResourceError):
            await opened.receive_some(4096)

    async def session(number: int) -> None:
        nonlocal taken
        mine = await session_at(url)
        async with await connect(url) as line:
            for n in range(aim.many // 8):
                frame = frame_of("resources/subscribe", uri=f"memory://{number}-{n}-{'x' * 8000}")
                await line.send_all(head_of(url, frame, session=mine) + frame)
                answer = await whole_answer(line)
                taken += "result" in answer.message()

    await in_turns(aim.few // 2, stream, 4)
    await in_turns(8, session)
    return Did(
        f"{aim.few // 2} streams that follow 480 URIs of 8 kB, and {taken:,} of {aim.many:,} such URIs in 8 sessions"
    )


async def parked(aim: Aim) -> Did:
    url = aim.url
    statuses: list[int] = []

    async def one(number: int) -> None:
        text = "x" * (LARGEST if number < aim.few else 100)
        answer = await ask(url, modern("tools/call", name="ask", arguments={"text": text}, meta=CAPABLE))
        statuses.append(answer.status)

    await in_turns(aim.many, one, 8)
    return Did(f"{statuses.count(200):,} of {aim.many:,} calls parked, {aim.few} of them of 3.9 MB")


async def spent(aim: Aim) -> Did:
    url = aim.url

    async def one(_: int) -> None:
        async with await connect(url) as stream:
            for _number in range(aim.many // 8):
                more: dict[str, Any] = {}
                for _round in range(2):
                    frame = modern("tools/call", name="ask", arguments={}, meta=CAPABLE, **more)
                    await stream.send_all(head_of(url, frame) + frame)
                    result = (await whole_answer(stream)).message().get("result", {})
                    answer = {"action": "accept", "content": {"sure": True}}
                    answers = dict.fromkeys(result.get("inputRequests", {}), answer)
                    more = {"requestState": result.get("requestState", ""), "inputResponses": answers}

    await in_turns(8, one)
    return Did(f"{aim.many:,} rounds that were answered", aim.many)


async def streams(aim: Aim) -> Did:
    url, stack = aim.url, aim.stack
    frame = modern("subscriptions/listen", "l", notifications={"toolsListChanged": True})

    async def one(_: int) -> None:
        stream = await stack.enter_async_context(held(url, head_of(url, frame) + frame))
        await stream.receive_some(4096)

    await in_turns(aim.many, one)
    return Did(f"{aim.many:,} streams", aim.many)


async def sockets(aim: Aim) -> Did:
    url, stack = aim.url, aim.stack
    key = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\n"
    at = url.split("/")[2]

    async def one(_: int) -> None:
        nonce = f"Sec-WebSocket-Key: {os.urandom(12).hex()[:22]}==\r\n"
        head = f"GET /mcp HTTP/1.1\r\nHost: {at}\r\n{key}{nonce}\r\n".encode()
        stream = await stack.enter_async_context(held(url, head))
        hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()
        await stream.receive_some(4096)
        await stream.send_all(b"\x81\xfe" + len(hello).to_bytes(2, "big") + bytes(4) + hello)
        await stream.receive_some(4096)

    await in_turns(aim.many, one)
    return Did(f"{aim.many:,} sessions", aim.many)


async def memos(aim: Aim) -> Did:
    url = aim.url

    async def one(number: int) -> None:
        async with await connect(url) as stream:
            for again in range(500):
                name = f"{number}-{again}-{'x' * 1500}"
                info = {"io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
                frame = modern("tools/call", name="noop", arguments={}, meta=info)
                head = head_of(url, frame).replace(b"Accept:", b"X-Name: %s\r\nAccept:" % name[:1000].encode())
                await stream.send_all(head + frame)
                await whole_answer(stream)

    await in_turns(20, one, 4)
    return Did("10,000 requests, no two alike")


async def letters(aim: Aim) -> Did:
    ws = aim.ws
    async with websocket(ws) as line:
        for number in range(10_000):
            about = {"requestId": number, "reason": "x" * 2000}
            await line.send_message(frame_of("notifications/cancelled", None, **about).decode())
        await line.send_message(called("noop").decode())
        await line.get_message()
    return Did("10,000 cancellations of nothing")


ACTS: Final[Mapping[str, Act]] = {
    act.__name__: act
    for act in (heads, bodies, requests, failures, sessions, events, outboxes, replay, followed, parked, spent, streams)
} | {act.__name__: act for act in (sockets, memos, letters)}
