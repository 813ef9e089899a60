"""A worker takes clients when the others know of it, and not before."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

from callboard.codecs.home import new_worker_name
from callboard.codecs.seal import new_secret
from callboard.workers.control import Control
from callboard.workers.fair_share import LoadPage
from callboard.workers.messages import (
    VARIABLE,
    Assignment,
    FromWorker,
    Known,
    PeerWorkers,
    Reachable,
    Started,
    write_message,
)
from callboard.workers.shared_rate import create_meters
from tests.process import CALLBOARD, PATIENCE
from tests.workers.crowd import APP

_decoder = msgspec.json.Decoder[FromWorker](FromWorker)


@attrs.define(eq=False)
class LoneWorker:
    """A worker process whose parent is the test."""

    heard: AsyncIterator[FromWorker]
    end: trio.SocketStream
    port: int

    async def say(self, line: bytes) -> None:
        await self.end.send_all(line)

    async def answer(self) -> Any:
        """What it answers to a client."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
            head = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n" % self.port
            head += b"accept: application/json, text/event-stream\r\nconnection: close\r\n"
            await stream.send_all(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            answer = b""
            async for data in stream:
                answer += data
        return json.loads(answer.partition(b"\r\n\r\n")[2])


@asynccontextmanager
async def lone_worker(folder: Path) -> AsyncIterator[LoneWorker]:
    ours, theirs = socket.socketpair()
    page, meters = LoadPage.create(), create_meters()
    with socket.socket() as listening, trio.fail_after(PATIENCE), theirs:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        port = listening.getsockname()[1]
        shared = (theirs.fileno(), page.descriptor, meters, listening.fileno())
        process = await trio.lowlevel.open_process(
            [*CALLBOARD, "run", str(APP), "--http", f"127.0.0.1:{port}", "--workers", "2"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
            pass_fds=shared,
            env={**os.environ, VARIABLE: str(theirs.fileno())},
        )
        control, end = Control(ours, _decoder), trio.SocketStream(trio.socket.from_stdlib_socket(ours.dup()))
        try:
            keys, sockets = [new_secret()], [(port, [listening.fileno()])]
            page_, meters_ = page.descriptor, meters
            assignment = Assignment(new_worker_name(), 1, 1, 0, page_, meters_, keys, str(folder), sockets)
            await end.send_all(write_message(assignment))
            async with aclosing(aiter(control)) as heard:
                yield LoneWorker(heard, end, port)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                await control.close()
                await trio.aclose_forcefully(end)
            page.close()
            os.close(meters)


async def test_clients_wait_until_the_other_workers_know_of_it(tmp_path: Path) -> None:
    async with lone_worker(tmp_path) as worker:
        assert isinstance(await anext(worker.heard), Reachable)
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await worker.answer())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(0.3)
            assert answers == []
            await worker.say(write_message(PeerWorkers([])) + write_message(Known()))
            assert isinstance(await anext(worker.heard), Started)
        assert answers[0]["id"] == 1


async def test_what_a_newer_parent_says_beyond_what_is_known_here_is_ignored(tmp_path: Path) -> None:
    async with lone_worker(tmp_path) as worker:
        assert isinstance(await anext(worker.heard), Reachable)
        await worker.say(b'{"kind":"sometimes","of":["a newer release"]}\n')
        await worker.say(b'{"kind":"known","since":3}\n')
        assert isinstance(await anext(worker.heard), Started)
        assert (await worker.answer())["id"] == 1
