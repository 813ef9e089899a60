"""A client over WebSocket, and servers that say something else than messages."""

import base64
import hashlib
import ssl
from typing import Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard.client import connect
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.websocket.client import mask
from callboard.codecs.websocket.frames import Close, Code, write_close, write_ping, write_text
from callboard.errors import CannotConnect
from callboard.transports.client.pool import Origin
from callboard.transports.client.websocket import open_websocket
from callboard.transports.client.websocket_socket import Door
from callboard.transports.wire import Wire

HERE: Final = Origin("ws", "127.0.0.1", 8000)


@attrs.define(eq=False)
class Impostor:
    """Answers the handshake by the book, and then says what the test wants."""

    says: bytes
    answer: bytes = b""

    async def dial(self, origin: Origin, tls: ssl.SSLContext | None) -> Wire:
        return ScriptedWire(self)


@attrs.define(eq=False)
class ScriptedWire:
    impostor: Impostor
    sent: bytearray = attrs.field(factory=bytearray)
    _left: list[bytes] = attrs.field(factory=list)
    _is_closed: bool = False

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if not self.sent:
            key = next(line for line in data.split(b"\r\n") if line.startswith(b"sec-websocket-key"))[19:]
            accept = generate_accept(key)
            self._left.append(self.impostor.answer or accepted(accept))
        elif self.impostor.says:
            self._left.append(self.impostor.says)
            self.impostor.says = b""
        self.sent += data

    def send_soon(self, data: bytes) -> bool:
        return False

    def send_nowait(self, data: bytes) -> bool:
        self.sent += data
        return True

    async def receive(self, size: int = 0) -> bytes:
        while not self._left:
            if self._is_closed:
                raise trio.ClosedResourceError
            await trio.sleep(0.1)
        return self._left.pop(0)

    def is_quiet(self) -> bool:
        return not self._left

    def stop_probing(self) -> None:
        pass

    def say_if_slow(self, data: bytes) -> None:
        pass

    async def linger(self) -> None:
        pass

    def close(self) -> None:
        self._is_closed = True


def generate_accept(key: bytes) -> bytes:
    return base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())  # noqa: S324


def accepted(accept: bytes, more: bytes = b"") -> bytes:
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: %b\r\n%b\r\n" % (accept, more)
    )


def by(impostor: Impostor) -> TransportRoutes:
    return TransportRoutes(
        None, (TransportRoute("websocket", lambda: open_websocket(Door(HERE, b"/mcp", (), None, impostor.dial))),)
    )


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (write_close(Close(Code.GOING_AWAY, "tea time")), r"1001 \(going away\): tea time"),
        (write_close(Close(Code.POLICY, "")), r"1008 \(policy\)"),
        (write_close(Close(Code.TOO_BIG)), r"1009 \(too big\)"),
        (write_close(Close(4321)), r"4321 \(unknown code\)"),
        (write_close(Close(Code.NO_CODE)), r"1005 \(no code\)"),
        (mask(write_text(b"{}"), b"abcd"), "invalid WebSocket frame"),
        (b"\x82\x01x", "invalid WebSocket frame: messages must be text"),
        (
            b"\x81\x7f" + (1 << 30).to_bytes(8, "big") + b"x" * (MAX_ANSWER + 1),
            "invalid WebSocket frame: message larger than",
        ),
        (b"\x81\x02\xff\xff", "invalid WebSocket frame: text must be UTF-8"),
        (b"GET / HTTP/1.1\r\n\r\n", "invalid WebSocket frame"),
    ],
)
async def test_what_is_no_message_ends_the_link_and_says_why(says: bytes, why: str, autojump_clock: MockClock) -> None:
    with pytest.raises(CannotConnect, match=why):
        async with connect(by(Impostor(says))):
            pass


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnope", "HTTP 404: nope"),
        (b"HTTP/1.1 301 Moved\r\nlocation: ws://elsewhere/\r\ncontent-length: 0\r\n\r\n", "HTTP 301"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "HTTP 200"),
        (accepted(b"bm90IHRoZSBrZXk="), "the response does not match the handshake"),
        (accepted(b"x").replace(b"websocket", b"h2c"), "another protocol than WebSocket"),
        (b"SSH-2.0-OpenSSH\r\n", "invalid HTTP"),
    ],
)
async def test_a_handshake_that_is_answered_by_something_else_is_refused(
    answer: bytes, why: str, autojump_clock: MockClock
) -> None:
    with pytest.raises(CannotConnect, match=why):
        async with connect(by(Impostor(b"", answer))):
            pass


async def test_a_server_that_never_answers_the_handshake_is_given_up(autojump_clock: MockClock) -> None:
    with pytest.raises(CannotConnect, match="timed out after 10 s"):
        async with connect(by(Impostor(b"", b"HTTP/1.1 101 "))):
            pass
    assert trio.current_time() < 30


async def test_pings_are_answered_with_what_they_carry(autojump_clock: MockClock) -> None:
    impostor = Impostor(write_ping(b"are you there?"))
    wires: list[ScriptedWire] = []

    async def dial(origin: Origin, tls: ssl.SSLContext | None) -> Wire:
        wires.append(ScriptedWire(impostor))
        return wires[-1]

    async with open_websocket(Door(HERE, b"/mcp", (), None, dial)) as link, trio.open_nursery() as nursery:

        async def nothing(_: object) -> None:
            raise AssertionError

        nursery.start_soon(link.listen, nothing)
        await link.tell(b"{}")
        await trio.sleep(1)
        frame = bytes(wires[0].sent)[-20:]
        assert frame[0] == 0x8A
        key = frame[2:6]
        assert bytes(byte ^ key[index % 4] for index, byte in enumerate(frame[6:])) == b"are you there?"
        nursery.cancel_scope.cancel()
