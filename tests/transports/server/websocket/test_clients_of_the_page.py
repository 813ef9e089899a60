"""The clients that the specification prints: they run as they stand there."""

import gc
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio

from callboard import Server
from callboard.codecs.http.access import Access
from callboard.supervisor import Supervisor
from callboard.transports.limits import DEFAULTS
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.server.http.endpoint import Endpoint
from callboard.transports.server.http.listener import http_edge
from callboard.transports.server.websocket.upgrade import WebSocketUpgrade
from tests.browser import browser
from tests.transports.server.websocket.company import Seen, company

PAGE: Final = Path(__file__).resolve().parents[4] / "docs" / "reference" / "websocket.md"
LINES: Final = 27
"""Of each listing, as its heading says."""

PATIENCE: Final = 60.0


def listing(language: str) -> str:
    """The client in *language*, as it is printed."""
    page = PAGE.read_text()
    assert f"A client in {LINES} lines" in page
    [found] = re.findall(rf"```{language} client\n(.*?)```", page, re.DOTALL)
    assert len(found.splitlines()) == LINES
    return str(found)


@attrs.frozen
class Place:
    """A server on a port, and its connections."""

    port: int
    seen: Seen
    edge: Supervisor

    async def cut_once_begun(self) -> None:
        """Wait for the call, cut its connection, and let it be answered."""
        while not self.seen.begun:  # noqa: ASYNC110 - a client in another process, or in another library
            await trio.sleep(0.02)
        for _, actor in self.edge.supervisor_of("connections").actors():
            assert isinstance(actor, HttpConnection)
            actor.wire.close()
        self.seen.go.set()


@asynccontextmanager
async def serving(server: Server, seen: Seen, *origins: str) -> AsyncIterator[Place]:
    with trio.fail_after(PATIENCE), socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        port = listening.getsockname()[1]
        async with server.host() as host:
            door = WebSocketUpgrade(host, DEFAULTS)
            access = Access.of("127.0.0.1", port, origins=origins)
            endpoint = Endpoint(host, access, DEFAULTS, on_upgrade=door.serve)
            edge = await host.root.add(http_edge("http", endpoint, [listening]))
            yield Place(port, seen, edge)
            await edge.address.stop()


# trio-websocket leaves the socket of a client open that the server has closed.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_client_in_python_comes_back_for_its_answer() -> None:
    names: dict[str, Any] = {}
    exec(compile(listing("python"), PAGE, "exec"), names)  # noqa: S102 - our own page
    server, seen = company()
    async with serving(server, seen) as place, trio.open_nursery() as nursery:
        nursery.start_soon(place.cut_once_begun)
        result = await names["call"](f"ws://127.0.0.1:{place.port}/mcp", "wait", name="a")
    assert result["content"][0]["text"] == "a waited"
    assert seen.begun == ["a"]
    gc.collect()  # what was left open is noticed here, and by no other test


async def serve_page(stream: trio.SocketStream, html: bytes) -> None:
    """Answer one request of a browser with the page."""
    async with stream:
        await stream.receive_some()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        await stream.send_all(head % len(html) + html)


async def test_the_client_in_a_browser_comes_back_for_its_answer() -> None:
    server, seen = company()
    async with trio.open_nursery() as nursery:
        [pages] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        origin = f"http://127.0.0.1:{pages.socket.getsockname()[1]}"
        async with serving(server, seen, origin) as place:
            html = listing("html").replace("127.0.0.1:8000", f"127.0.0.1:{place.port}").encode()
            nursery.start_soon(trio.serve_listeners, lambda stream: serve_page(stream, html), [pages])
            nursery.start_soon(place.cut_once_begun)
            async with browser(is_offline=False) as page:
                await page.open(origin)
                await page.wait("document.querySelector('#answer').textContent")
                assert await page.value("document.querySelector('#answer').textContent") == "browser waited"
        assert seen.begun == ["browser"]
        nursery.cancel_scope.cancel()
