"""Promise 14: peers that send a byte a second are cut off in time, weigh little, and are not noticed by others."""

import time
from pathlib import Path
from typing import Final

import attrs
import trio

from tests.figures import BUSY, LONG, figure
from tests.soak.clients import connect, some
from tests.soak.probing import probing
from tests.soak.stage import scene

COUNT: Final = 1000 if LONG else 40
HEADER_TIME, BODY_TIME = (5.0, 30.0) if LONG else (0.5, 1.0)
BETWEEN: Final = 1.0 if LONG else 0.1
"""Seconds between two bytes."""
KIB_EACH: Final = 64
MORE: Final = 0.1
"""Part by which the p99 of others may grow."""
NOISE: Final = 0.001
"""Seconds that a p99 of two milliseconds moves by itself, from one run to the next."""


@attrs.define(eq=False)
class Slow:
    """One peer. *cut* is how long it was borne with."""

    is_body: bool
    cut: float = 0.0
    answer: bytes = b""

    async def drip(self, url: str) -> None:
        head = b"POST /mcp HTTP/1.1\r\nHost: %s\r\n" % url.split("/")[2].encode()
        whole = head + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n" if self.is_body else head
        async with await connect(url) as stream, trio.open_nursery() as nursery:
            began = time.monotonic()
            nursery.start_soon(self._send, stream, whole)
            while data := await some(stream):
                self.answer += data
            self.cut = time.monotonic() - began
            nursery.cancel_scope.cancel()

    async def _send(self, stream: trio.SocketStream, first: bytes) -> None:
        try:
            await stream.send_all(first)
            while True:
                await trio.sleep(BETWEEN)
                await stream.send_all(b"x")
        except trio.BrokenResourceError:
            return


async def test_14_slow_peers_are_cut_off_and_others_do_not_notice(tmp_path: Path) -> None:
    options = ("--header-time", str(HEADER_TIME), "--body-time", str(BODY_TIME), "--max-connections", "4000")
    slow = [Slow(is_body=number % 2 == 0) for number in range(COUNT)]
    async with scene(("b0",), *options) as here:
        stand = here.run.stand
        await here.run.wait_up("b0")
        async with probing(tmp_path, stand.http, tool="b0__echo") as probe:
            await probe.wait_samples(1500 if LONG else 50)
            before, memory, began = probe.p99(), stand.state()["memory"], time.monotonic()
            async with trio.open_nursery() as nursery:
                for one in slow:
                    nursery.start_soon(one.drip, stand.http)
                await trio.sleep(0.8 * HEADER_TIME)
                each = (stand.state()["memory"] - memory) / COUNT / 1024
            during = probe.p99(began, time.monotonic())
            assert not probe.wrong()
    heads = [one.cut for one in slow if not one.is_body]
    bodies = [one.cut for one in slow if one.is_body]
    figure(
        "promise 14",
        f"{COUNT} slow peers: heads cut after {min(heads):.1f} to {max(heads):.1f} s, bodies after {min(bodies):.1f} "
        f"to {max(bodies):.1f} s, {each:.1f} KiB each, others' p99 {before * 1000:.1f} -> {during * 1000:.1f} ms",
        f"{HEADER_TIME:g} s, {BODY_TIME:g} s, <= {KIB_EACH} KiB, p99 + 10 % (and 1 ms)",
    )
    assert all(b" 408 " in one.answer for one in slow)
    assert max(heads) <= HEADER_TIME + 1 * BUSY
    assert max(bodies) <= BODY_TIME + 1 * BUSY
    assert each <= KIB_EACH * (1 if LONG else 4)  # what comes with the first few is not theirs
    assert during <= before * (1 + MORE) + NOISE or not LONG
