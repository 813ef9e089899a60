"""A small HTTP server for tests: real sockets, and a function for each path."""

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import attrs
import msgspec
import trio

from callboard.codecs.http.head import Head
from callboard.codecs.http.request_parser import RequestParser
from callboard.codecs.http.writer import write_answer
from callboard.transports.wire import SocketWire

Headers: TypeAlias = Mapping[str, str]


@attrs.frozen
class Asked:
    """One request, as it came."""

    head: Head
    body: bytes

    @property
    def path(self) -> str:
        return self.head.path.decode()

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.head.query.decode(), keep_blank_values=True))

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.json.decode(self.body)
        return value

    def header(self, name: str) -> str | None:
        value = self.head.get(name.encode())
        return None if value is None else value.decode()


@attrs.frozen
class Said:
    """One answer."""

    status: int = 200
    body: bytes = b""
    headers: Headers = attrs.field(factory=dict)

    @classmethod
    def json(cls, value: object, status: int = 200, **headers: str) -> "Said":
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return cls(status, msgspec.json.encode(value), {"content-type": "application/json", **named})


Answer: TypeAlias = Callable[[Asked], Said]


@attrs.define(eq=False)
class House:
    """Answers by path, and remembers what was asked."""

    rooms: dict[str, Answer] = attrs.field(factory=dict)
    asked: list[Asked] = attrs.field(factory=list)
    url: str = ""
    connections: int = 0

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def serve(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.connections += 1
        wire = SocketWire(connected, 5)
        parser = RequestParser(lambda _: None, max_body=1 << 20, max_header=1 << 16, max_headers=100)
        try:
            while data := await wire.receive():
                for head, body, _ in parser.feed(data):
                    asked = Asked(head, body)
                    self.asked.append(asked)
                    answer = self.rooms.get(asked.path)
                    said = Said(404) if answer is None else answer(asked)
                    headers = [(name.encode(), value.encode()) for name, value in said.headers.items()]
                    await wire.send(write_answer(said.status, headers, said.body, closes=not head.keeps_alive))
                    if not head.keeps_alive:
                        return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            wire.close()


@asynccontextmanager
async def open_house(house: House) -> AsyncIterator[House]:
    """*house* on a port of this machine, for as long as the block lasts."""
    listener = trio.socket.socket()
    with listener:
        await listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        house.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_accept, listener, house)
            yield house
            nursery.cancel_scope.cancel()


async def _accept(listener: trio.socket.SocketType, house: House) -> None:
    async with trio.open_nursery() as nursery:
        while True:
            connected, _ = await listener.accept()
            nursery.start_soon(house.serve, socket.socket(fileno=connected.detach()))
