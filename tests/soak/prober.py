"""A client in a process of its own, which asks one thing over and over and writes down how long each answer took.

    python -I -S prober.py URL METHOD BODY PAUSE FILE

In a process of its own, because a test that is busy with ten thousand connections would count its own delays as those
of the server. Each line of the file: when it asked (monotonic), seconds, status. Nothing but the standard library.
"""

import contextlib
import socket
import sys
import time
from typing import Final
from urllib.parse import urlsplit

PATIENCE: Final = 10.0
"""Seconds for one answer. Then its status is 0, and the next request goes over another connection."""


class Probe:
    def __init__(self, url: str, method: str, body: str) -> None:
        at = urlsplit(url)
        self.at = at.hostname, at.port
        lines = [f"{method} {at.path} HTTP/1.1", f"Host: {at.netloc}"]
        if body:
            name = body.partition('"name":"')[2].partition('"')[0]
            lines += ["Content-Type: application/json", "Accept: application/json, text/event-stream"]
            lines += ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", f"Mcp-Name: {name}"]
            lines += [f"Content-Length: {len(body)}"]
        self.request = "\r\n".join([*lines, "", body]).encode()
        self.line: socket.socket | None = None

    def ask(self) -> int:
        """One request; the status of its answer, or 0."""
        try:
            if self.line is None:
                self.line = socket.create_connection(self.at, timeout=PATIENCE)
            self.line.sendall(self.request)
            return self._read(self.line)
        except OSError:
            self._close()
            return 0

    def _read(self, line: socket.socket) -> int:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more(line)
        head, _, body = data.partition(b"\r\n\r\n")
        fields = head.lower()
        length = int(fields.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        while len(body) < length:
            body += self._more(line)
        if b"connection: close" in fields:
            self._close()
        status = int(head.split()[1])
        return -1 if status == 200 and b'"error":' in body else status

    def _more(self, line: socket.socket) -> bytes:
        data = line.recv(65_536)
        if not data:
            raise ConnectionError
        return data

    def _close(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None


def main(url: str, method: str, body: str, pause: str, file: str) -> None:
    probe = Probe(url, method, body)
    with open(file, "w", buffering=1) as written:  # noqa: PTH123 -- nothing but what starts fast
        while True:
            began = time.monotonic()
            status = probe.ask()
            written.write(f"{began:.6f} {time.monotonic() - began:.6f} {status}\n")
            time.sleep(float(pause))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
