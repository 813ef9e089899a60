"""The other side of `generator.py`: answers every call with the same few bytes and its id, as fast as Python can.

    python generator_peer.py PORT

HTTP and WebSocket on one port. It speaks no more of the protocol than a client needs to open a session; nothing is
checked. One thread, one loop, no framework: so that what is measured is the generator.
"""

import base64
import hashlib
import re
import select
import socket
import sys

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
READ_SIZE = 262_144
_KEY = re.compile(rb"sec-websocket-key: *(\S+)", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ID = re.compile(rb'"id":(\d+)')

MEETING = (
    b'{"jsonrpc":"2.0","id":%b,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",'
    b'"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
    b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"trivial echo","version":"0"}}}}'
)
ECHO = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":"hi"}],"resultType":"complete"}}'


def answer(message: bytes) -> bytes:
    found = _ID.search(message)
    assert found is not None, message
    return (MEETING if b'"server/discover"' in message else ECHO) % found[1]


class Peer:
    """One connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.rest = b""
        self.is_websocket = False

    def heard(self) -> bool:
        """Answer all that is whole. False at the end."""
        try:
            data = self.socket.recv(READ_SIZE)
        except OSError:
            return False
        if not data:
            return False
        self.rest += data
        said = b"".join(self.frames() if self.is_websocket else self.requests())
        if said:
            self.socket.sendall(said)  # blocks if the generator does not read: there is nobody else to serve
        return True

    def requests(self) -> list[bytes]:
        said = []
        while (end := self.rest.find(b"\r\n\r\n")) >= 0:
            if self.rest.startswith(b"GET "):
                said.append(self.upgrade(self.rest[:end]))
                self.rest = self.rest[end + 4 :]
                break
            length = _LENGTH.search(self.rest, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self.rest) < whole:
                break
            body = answer(self.rest[end + 4 : whole])
            said.append(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            self.rest = self.rest[whole:]
        return said

    def upgrade(self, head: bytes) -> bytes:
        self.is_websocket = True
        key = _KEY.search(head)
        assert key is not None
        accept = base64.b64encode(hashlib.sha1(key[1] + GUID).digest())  # noqa: S324  # RFC 6455 has it so
        return (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: %b\r\nsec-websocket-protocol: mcp\r\n\r\n" % accept
        )

    def frames(self) -> list[bytes]:
        said, at, data = [], 0, self.rest
        while len(data) - at >= 6:
            length, start = data[at + 1] & 0x7F, at + 2
            if length == 126:
                length, start = int.from_bytes(data[at + 2 : at + 4]), at + 4
            end = start + 4 + length
            if len(data) < end:
                break
            if data[at] == 0x81:
                # The id stands within the first 32 bytes, and who it is that asks within the first 64.
                seen = min(64, length)
                key = int.from_bytes(data[start : start + 4] * 16) >> 8 * (64 - seen)
                text = answer((int.from_bytes(data[start + 4 : start + 4 + seen]) ^ key).to_bytes(seen))
                size = len(text)
                head = bytes((0x81, size)) if size < 126 else bytes((0x81, 126)) + size.to_bytes(2)
                said.append(head + text)
            elif data[at] == 0x88:
                said.append(b"\x88\x00")
            at = end
        self.rest = data[at:]
        return said


def main() -> None:
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1024)
    poll, peers = select.epoll(), dict[int, Peer]()
    poll.register(listener, select.EPOLLIN)
    while True:
        for descriptor, _ in poll.poll():
            peer = peers.get(descriptor)
            if peer is None:
                connected, _ = listener.accept()
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[connected.fileno()] = Peer(connected)
                poll.register(connected, select.EPOLLIN)
            elif not peer.heard():
                poll.unregister(descriptor)
                del peers[descriptor]
                peer.socket.close()


if __name__ == "__main__":
    main()
