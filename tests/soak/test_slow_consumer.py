"""Promise 6: a subscriber that stops reading costs a bounded amount, and the others hear everything."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import attrs
import pytest
import trio
from trio_websocket import WebSocketConnection

from benchmarks.nemesis_acts import Run
from benchmarks.nemesis_fronts import ABOUT, post, websocket
from benchmarks.nemesis_stand import Stand
from tests.figures import LONG, figure
from tests.soak.stage import scene

FOLLOWED = "nemesis://b0"
BATCH = 500
"""Changes that are published in one go: fewer than wait for one subscriber."""
FEW = 20 * BATCH if LONG else 8 * BATCH
MANY = 100_000 if LONG else FEW
MOST = 1_000_000 if LONG else FEW
"""Changes in all. A million once, where all are different; what is held is the same after a hundred thousand, and
changes of the same few resources are one piece of news for those that wait together."""
CASES = [
    *((transport, FEW, BATCH) for transport in ("http", "ws", "stdio")),
    *((transport, MANY, MANY) for transport in ("http", "stdio")),
    ("ws", MOST, MOST),
]
MIB = 1 << 20
MOST_MIB = 16
"""What the broker may grow by."""
WAIT = 1200.0 if LONG else 60.0


def listen() -> bytes:
    chosen = {"notifications": {"resourceSubscriptions": [FOLLOWED]}, "_meta": ABOUT}
    return json.dumps({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": chosen}).encode()


async def receive_until(stream: trio.abc.ReceiveStream, words: bytes) -> None:
    data = b""
    while words not in data:
        more = await stream.receive_some(4096)
        assert more
        data += more


@asynccontextmanager
async def deaf_over(transport: str, stand: Stand) -> AsyncIterator[None]:
    """A subscriber that has heard that it is one, and reads nothing from then on."""
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            assert stand.process.stdin is not None
            assert stand.process.stdout is not None
            await stand.process.stdin.send_all(listen() + b"\n")
            await receive_until(stand.process.stdout, b"acknowledged")
        elif transport == "ws":
            deaf = await stack.enter_async_context(websocket(stand.ws))
            await deaf.send_message(listen().decode())
            assert "acknowledged" in await deaf.get_message()
        else:
            parts = urlsplit(stand.http)
            stream = await stack.enter_async_context(await trio.open_tcp_stream(parts.hostname or "", parts.port or 0))
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await stream.send_all(post(stand.http, listen(), "subscriptions/listen", ""))
            await receive_until(stream, b"acknowledged")
        yield


@attrs.define(eq=False)
class Reader:
    """A subscriber that reads: keeps the numbers of what changed, in order of arrival."""

    line: WebSocketConnection
    heard: list[int] = attrs.field(factory=list)
    _news: trio.Event = attrs.field(factory=trio.Event)

    async def read(self) -> None:
        while True:
            message = json.loads(await self.line.get_message())
            assert message["method"] == "notifications/resources/updated"
            self.heard.append(int(message["params"]["uri"].rpartition("/")[2]))
            self._news.set()

    async def wait_heard(self, number: int) -> None:
        """Wait until the latest news are that *number* changed."""
        while not self.heard or self.heard[-1] != number:
            self._news = trio.Event()
            await self._news.wait()


async def publish(run: Run, reader: Reader, count: int, different: int) -> float:
    """Publish all, no faster than the one who reads can hear. Returns the most that the broker held meanwhile."""
    most = 0.0
    for start in range(0, count, BATCH):
        outcome = await run.ask("b0", "tell", start=start, count=BATCH, different=different)
        assert outcome is not None
        assert outcome.is_result
        await reader.wait_heard((start + BATCH - 1) % different)
        if start % (count // 20) == 0:
            most = max(most, run.stand.state()["memory"])
    return most


@pytest.mark.parametrize(("transport", "count", "different"), CASES)
async def test_6_a_subscriber_that_does_not_read_costs_little_and_others_lose_nothing(
    transport: str, count: int, different: int
) -> None:
    async with scene(("b0",), "--write-time", "3", stdio=transport == "stdio") as here:
        run, stand = here.run, here.run.stand
        await run.wait_up("b0")
        async with websocket(stand.ws) as line, deaf_over(transport, stand):
            await line.send_message(listen().decode())
            assert "acknowledged" in await line.get_message()
            reader, began = Reader(line), trio.current_time()
            with trio.fail_after(WAIT):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(reader.read)
                    await run.ask("b0", "tell", count=BATCH, different=BATCH)
                    await reader.wait_heard(BATCH - 1)
                    reader.heard.clear()
                    before = stand.state()["memory"]
                    grown = (await publish(run, reader, count, different) - before) / MIB
                    nursery.cancel_scope.cancel()
            rate = count / (trio.current_time() - began)
    figure(
        "promise 6",
        f"{transport}: {count} changes, {different} different, {grown:+.1f} MiB, {rate:.0f} a second",
        "<= 16 MiB",
    )
    if different == count:
        assert reader.heard == list(range(count))  # each once, in order
    else:  # what waits together is one piece of news
        assert len(reader.heard) >= count // BATCH
        assert set(reader.heard) == set(range(different))
    assert grown <= MOST_MIB
