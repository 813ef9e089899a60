"""Clients of many workers that keep their connection: each of its requests is heard by the same worker."""

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import attrs
import trio

from tests.transports.server.http.stage import Answer, Client, Gone
from tests.workers.crowd import LEGACY, Crowd, CrowdSession, said


def p99(took: list[float]) -> float:
    """The 99th percentile; of few, the slowest."""
    return sorted(took)[int(len(took) * 0.99)]


@attrs.define(eq=False)
class KeptAlive:
    """A connection, and a legacy session if there is one. What is sent must be answered. Only between two requests the
    server may end the connection, or after an answer that said so: then there is another one."""

    many: Crowd
    client: Client
    session: CrowdSession | None = None
    reopened: int = attrs.field(default=0, init=False)
    _is_told: bool = attrs.field(default=False, init=False)

    @classmethod
    async def open(cls, many: Crowd, worker: int | None = None, session: CrowdSession | None = None) -> Self:
        """A connection to *worker*, or to any."""
        return cls(many, await (many.connect() if worker is None else many.connect_to(worker)), session)

    async def open_session(self) -> CrowdSession:
        """A new session: of the worker that has the connection."""
        about = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
        answer = await self.ask(self.client.post(opening))
        session = CrowdSession(self.many, answer.headers["mcp-session-id"])
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.ask(session.written(self.client, ready))).status == 202
        return session

    async def call(self, tool: str, **arguments: Any) -> Any:
        return said(await self.answer_to(tool, **arguments))

    async def answer_to(self, tool: str, **arguments: Any) -> Answer:
        if self.session is None:
            return await self.ask(self.client.modern("tools/call", name=tool, arguments=arguments))
        return await self.ask(self.session.written(self.client, self.session.message(tool, **arguments)))

    async def ask(self, request: bytes) -> Answer:
        if self._is_told or self._is_over():
            await self.reopen()
        await self.client.send(request)
        answer = await self.client.answer()
        self._is_told = answer.headers.get("connection") == "close"
        return answer

    async def reopen(self) -> None:
        await self.client.aclose()
        self.client = await self.many.connect()
        self._is_told = False
        self.reopened += 1

    def _is_over(self) -> bool:
        """Whether the server has closed it, as far as is known here."""
        bare = socket.socket(fileno=self.client.socket.fileno())
        try:
            return not bare.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            bare.detach()


@attrs.define(eq=False)
class SteadyLoad:
    """Clients that call one after the other until the block ends."""

    pause: float = 0.0
    """Seconds that each rests between two calls."""
    took: list[float] = attrs.field(factory=list, init=False)
    failed: list[object] = attrs.field(factory=list, init=False)
    workers: set[int] = attrs.field(factory=set, init=False)
    """Those that answered."""
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def calls(self) -> int:
        return len(self.took)

    @asynccontextmanager
    async def by(self, clients: list[KeptAlive]) -> AsyncIterator[Self]:
        """What was begun is finished at the end of the block, and the connections are closed."""
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(self._call_on, client)
            yield self
            self._over.set()
        for client in clients:
            await client.client.aclose()

    async def _call_on(self, client: KeptAlive) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            try:
                self.workers.add(await client.call("where"))
            except (AssertionError, Gone, OSError, trio.BrokenResourceError) as error:
                self.failed.append(error)
                with suppress(OSError):  # the next connection may be better
                    await client.reopen()
            self.took.append(time.monotonic() - began)
            await trio.sleep(self.pause)
