"""A WebSocket is opened by an HTTP request, and that one proves who is there."""

import hashlib
import ssl
from base64 import b64encode

import pytest

from callboard.client.routes import ClientAccess
from callboard.codecs.http.response_parser import AnswerHead
from callboard.errors import HttpRefused
from callboard.oauth import OAuth
from callboard.oauth.authorizer import Authorizer
from callboard.transports.client.credentials import Proof
from callboard.transports.client.http import HttpLink
from callboard.transports.client.pool import Origin, Pool
from callboard.transports.client.websocket_socket import Door

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Scripted:
    """A server that opens a WebSocket for whoever shows the right token."""

    def __init__(self, shown: list[bytes | None]) -> None:
        self.shown = shown
        self.is_closed = False
        self._said = b""

    async def send(self, data: bytes) -> None:
        lines = dict(line.lower().split(b": ", 1) for line in data.split(b"\r\n")[1:] if b": " in line)
        key = next(
            line.split(b": ")[1] for line in data.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
        )
        self.shown.append(lines.get(b"authorization"))
        if self.shown[-1] != b"bearer two":
            self._said = b'HTTP/1.1 401 No\r\nwww-authenticate: Bearer scope="x"\r\ncontent-length: 2\r\n\r\nno'
            return
        accept = b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
        self._said = (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: " + accept + b"\r\nsec-websocket-protocol: mcp\r\n\r\n"
        )

    async def receive(self, size: int = 0) -> bytes:
        said, self._said = self._said, b""
        return said

    def send_soon(self, data: bytes) -> bool:
        return False

    def send_nowait(self, data: bytes) -> bool:
        return False

    def is_quiet(self) -> bool:
        return True

    def stop_probing(self) -> None:
        pass

    def say_if_slow(self, data: bytes) -> None:
        pass

    async def linger(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Wallet:
    """Has one token after the other."""

    def __init__(self, *tokens: bytes) -> None:
        self.tokens = list(tokens)

    async def prove(self, method: bytes) -> Proof:
        assert method == b"GET"
        return Proof(headers=[(b"authorization", b"Bearer " + self.tokens[0])])

    def helps(self, refusal: AnswerHead, used: Proof) -> bool:
        assert refusal.get(b"www-authenticate") == b'Bearer scope="x"'
        return len(self.tokens) > 1

    async def renew(self, method: bytes, refusal: AnswerHead, used: Proof) -> Proof:
        self.tokens.pop(0)
        return await self.prove(method)


async def test_a_token_that_is_refused_is_renewed_and_the_door_tried_again() -> None:
    shown: list[bytes | None] = []
    wires: list[Scripted] = []

    async def dial(origin: Origin, tls: ssl.SSLContext | None) -> Scripted:
        wires.append(Scripted(shown))
        return wires[-1]

    origin = Origin.of("ws://localhost/mcp")
    door = Door(origin, b"/mcp", dial=dial, credentials=Wallet(b"one", b"two"))
    socket = await door.open()
    assert shown == [b"bearer one", b"bearer two"]
    assert [wire.is_closed for wire in wires] == [True, False]
    socket.wire.close()
    with pytest.raises(HttpRefused, match="HTTP 401: no"):
        await Door(origin, b"/mcp", dial=dial, credentials=Wallet(b"one")).open()
    with pytest.raises(HttpRefused, match="HTTP 401: no"):
        await Door(origin, b"/mcp", dial=dial).open()
    assert all(wire.is_closed for wire in wires)


def test_what_is_said_at_a_door_is_not_shown() -> None:
    headers = [(b"authorization", b"s3cr3t")]
    assert "s3cr3t" not in repr(Door(Origin.of("ws://localhost/mcp"), b"/mcp", headers))
    assert "s3cr3t" not in repr(HttpLink(Pool(Origin.of("http://localhost/mcp")), b"/mcp", headers))
    assert "s3cr3t" not in repr(ClientAccess(headers={"authorization": "s3cr3t"}))


@pytest.mark.parametrize(
    ("url", "called"),
    [("wss://mcp.example/mcp", "https://mcp.example/mcp"), ("ws://localhost:1/mcp", "http://localhost:1/mcp")],
)
def test_a_websocket_goes_by_the_name_of_what_it_is_opened_by(url: str, called: str) -> None:
    credentials = OAuth().credentials(url)
    assert isinstance(credentials, Authorizer)
    assert credentials.url == called
