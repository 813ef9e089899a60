"""The floor under `hosting.py`: Trio and httptools alone. Every body is sent back as it came; nothing is checked.

python hosting_floor.py PORT
"""

import sys

import httptools
import trio

READ_SIZE = 65_536


class Requests:
    """What httptools calls: keeps whole bodies."""

    def __init__(self) -> None:
        self.whole: list[bytes] = []
        self._body = b""

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.whole.append(self._body)


async def serve(connected: trio.SocketStream) -> None:
    """Answer in the connection's own task, on the bare socket."""
    requests, client = Requests(), connected.socket
    parser = httptools.HttpRequestParser(requests)
    while data := await client.recv(READ_SIZE):
        parser.feed_data(data)
        for body in requests.whole:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            left = memoryview(head + body)
            while left:
                left = left[await client.send(left) :]
        requests.whole.clear()


async def serve_or_lose(connected: trio.SocketStream) -> None:
    try:
        async with connected:
            await serve(connected)
    except OSError:  # the generator leaves when its time is up
        pass


async def main() -> None:
    await trio.serve_tcp(serve_or_lose, int(sys.argv[1]), host="127.0.0.1")


trio.run(main)
