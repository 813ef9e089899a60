"""The other end of `listeners.py`: thousands of clients in one process, which only listen. Sockets and a selector."""

import base64
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import attrs

from benchmarks.hosting_calls import CLIENT, LEGACY, META, MODERN, tool_call

WINDOW: Final = 256
"""Clients that are on their way in at the same time: fewer than a listener lets wait."""
EACH_ADDRESS: Final = 8000
"""Connections from one address of this machine: its ports are not endless."""
READ_SIZE: Final = 65_536
PATIENCE: Final = 120.0
"""Seconds until something must have happened that everybody waits for."""

NEWS: Final = b'"notifications/tools/list_changed"'
_NO_PORT_YET: Final = 24
"""Linux's IP_BIND_ADDRESS_NO_PORT: choose a port when it is known where to, so that more of them are free."""
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


class Missing(AssertionError):
    """A client was turned away, lost, or not told."""


@attrs.define(eq=False)
class Client:
    """What every client has: whether it is in, and when it heard the news."""

    port: int
    is_ready: bool = attrs.field(default=False, init=False)
    heard: list[float] = attrs.field(factory=list, init=False)
    _rest: bytes = attrs.field(default=b"", init=False)


class Listener(Protocol):
    """A client that does no I/O: bytes in, bytes out."""

    is_ready: bool
    heard: list[float]

    def greet(self) -> bytes: ...
    def feed(self, data: bytes, now: float) -> bytes: ...


Kind: TypeAlias = Callable[[int], Listener]
"""Takes the port."""


@attrs.define(eq=False)
class Stream(Client):
    """A `subscriptions/listen` over HTTP. It is in when it is acknowledged."""

    def greet(self) -> bytes:
        about = {"protocolVersion": MODERN, "clientInfo": CLIENT, "clientCapabilities": {}}
        meta = {META + name: value for name, value in about.items()}
        params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        body = _json(id=1, method="subscriptions/listen", params=params)
        return (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\n"
            f"Mcp-Method: subscriptions/listen\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def feed(self, data: bytes, now: float) -> bytes:
        whole, _, self._rest = (self._rest + data).rpartition(b"\n")
        if not self.is_ready and whole.startswith(b"HTTP/1.1 ") and not whole.startswith(b"HTTP/1.1 200 "):
            raise Missing(f"a stream was refused: {whole[:300]!r}")
        self.is_ready = self.is_ready or b'"notifications/subscriptions/acknowledged"' in whole
        self.heard += [now] * whole.count(NEWS)
        return b""


@attrs.define(eq=False)
class Socket(Client):
    """A legacy session over WebSocket. It is in when a ping after its handshake is answered."""

    _is_open: bool = attrs.field(default=False, init=False)

    def greet(self) -> bytes:
        return (
            f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
            "Sec-WebSocket-Protocol: mcp\r\n\r\n"
        ).encode()

    def feed(self, data: bytes, now: float) -> bytes:
        self._rest += data
        answer = b""
        if not self._is_open:
            head, gap, rest = self._rest.partition(b"\r\n\r\n")
            if not gap:
                return b""
            if not head.startswith(b"HTTP/1.1 101 "):
                raise Missing(f"a WebSocket was refused: {self._rest[:300]!r}")
            self._is_open, self._rest = True, rest
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
            answer = _frame(_TEXT, _json(id=1, method="initialize", params=hello))
        while (frame := self._next_frame()) is not None:
            answer += self._take(*frame, now)
        return answer

    def _take(self, kind: int, payload: bytes, now: float) -> bytes:
        if kind == _PING:
            return _frame(_PONG, payload)
        if kind == _CLOSE:
            raise Missing(f"a WebSocket was closed: {payload!r}")
        if NEWS in payload:
            self.heard.append(now)
            return b""
        answered = json.loads(payload).get("id")
        if answered == 1:
            return _frame(_TEXT, _json(method="notifications/initialized")) + _frame(_TEXT, _json(id=2, method="ping"))
        self.is_ready = self.is_ready or answered == 2
        return b""

    def _next_frame(self) -> tuple[int, bytes] | None:
        """A whole frame, unmasked and unfragmented as this server's are."""
        if len(self._rest) < 2:
            return None
        kind, length, start = self._rest[0] & 15, self._rest[1], 2
        if length == 126:
            if len(self._rest) < 4:
                return None
            length, start = int(struct.unpack_from("!H", self._rest, 2)[0]), 4
        if len(self._rest) < start + length:
            return None
        payload, self._rest = self._rest[start : start + length], self._rest[start + length :]
        return kind, payload


@attrs.define(eq=False)
class Publisher(Client):
    """Calls the tool that publishes. It is done when it is answered."""

    def greet(self) -> bytes:
        return tool_call("publish", session=None, is_streamed=False).raw(self.port)

    def feed(self, data: bytes, now: float) -> bytes:
        self._rest += data
        self.is_ready = b'"ok"' in self._rest
        return b""


def _json(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()


def _frame(kind: int, payload: bytes) -> bytes:
    """A frame with a mask of zeros, which changes nothing."""
    length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack("!H", len(payload))
    return bytes([0x80 | kind]) + length + bytes(4) + payload


def own_address(number: int) -> str:
    """An address of this machine that nothing else uses: 127.0.0.2 and on."""
    return f"127.0.{number // 200}.{2 + number % 200}"


@attrs.define(eq=False)
class Crowd:
    """All clients, and the one loop that reads for them."""

    port: int
    each_address: int = EACH_ADDRESS
    first_address: int = 0
    """How many addresses other crowds use."""
    window: int = WINDOW
    patience: float = PATIENCE
    listeners: list[Listener] = attrs.field(factory=list, init=False)
    is_called: bool = attrs.field(default=False, init=False)
    """Whether something came by the pipe that is watched, since this was last set to False."""
    _selector: selectors.BaseSelector = attrs.field(factory=selectors.DefaultSelector, init=False)

    def watch(self, descriptor: int) -> None:
        """Set `is_called` when there is something to read at *descriptor*, which is not this crowd's to read."""
        self._selector.register(descriptor, selectors.EVENT_READ, None)

    def gather(self, kind: Kind, count: int, on_progress: Callable[[int], None] = lambda _: None) -> float:
        """Let *count* more clients in; return the seconds that it took. Raises `Missing`."""
        started = time.perf_counter()
        coming: list[Listener] = []
        left = count
        while left or coming:
            while left and len(coming) < self.window:
                coming.append(self._enter(kind(self.port)))
                self.listeners.append(coming[-1])
                left -= 1
            self.read(0.1)
            coming = [one for one in coming if not one.is_ready]
            on_progress(count - left - len(coming))
            if time.perf_counter() - started > self.patience:
                raise Missing(f"{left + len(coming)} of {count} are not in after {self.patience:g} s")
        return time.perf_counter() - started

    def rest(self, seconds: float) -> None:
        """Do nothing but read."""
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            self.read(left)

    def publish(self) -> list[float]:
        """Have the news published once; return the seconds until each client heard it. Raises `Missing`."""
        self.forget()
        started = time.perf_counter()
        self.ask_to_publish()
        self.wait_told()
        self.rest(1.0)
        self.check_once()
        return sorted(one.heard[0] - started for one in self.listeners)

    def ask_to_publish(self) -> None:
        """Call the tool that publishes, and read until it is answered. Raises `Missing`."""
        started = time.perf_counter()
        publisher = self._enter(Publisher(self.port))
        while not publisher.is_ready:
            self.read(0.1)
            if time.perf_counter() - started > self.patience:
                raise Missing(f"the call that publishes was not answered in {self.patience:g} s")

    def forget(self) -> None:
        """What was heard until now does not count."""
        for one in self.listeners:
            one.heard.clear()

    def wait_told(self) -> None:
        """Read until every client has heard the news. Raises `Missing`."""
        started, told = time.perf_counter(), 0
        while told < len(self.listeners):
            self.read(0.1)
            while told < len(self.listeners) and self.listeners[told].heard:
                told += 1
            if time.perf_counter() - started > self.patience:
                deaf = sum(not one.heard for one in self.listeners)
                raise Missing(f"{deaf} of {len(self.listeners)} heard nothing in {self.patience:g} s")

    def check_once(self) -> None:
        """Raises `Missing` if a client heard the news more than once."""
        twice = sum(len(one.heard) > 1 for one in self.listeners)
        if twice:
            raise Missing(f"{twice} heard it more than once")

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                key.data[0].close()
        self._selector.close()

    def _enter(self, listener: Listener) -> Listener:
        client = socket.socket()
        if sys.platform == "linux":
            client.setsockopt(socket.IPPROTO_IP, _NO_PORT_YET, 1)
            client.bind((own_address(self.first_address + len(self.listeners) // self.each_address), 0))
        client.settimeout(self.patience)
        client.connect(("127.0.0.1", self.port))
        client.setblocking(False)
        client.sendall(listener.greet())
        self._selector.register(client, selectors.EVENT_READ, (client, listener))
        return listener

    def read(self, timeout: float) -> None:
        """Read what has come; wait for it if there is nothing."""
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self.is_called = True
                continue
            client, listener = key.data
            data = client.recv(READ_SIZE)
            if not data:
                raise Missing(f"a {type(listener).__name__} was hung up on")
            answer = listener.feed(data, time.perf_counter())
            if answer:
                client.sendall(answer)  # it is short: an idle connection takes it
