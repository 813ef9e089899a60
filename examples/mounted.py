"""A page of your own and an MCP server in one application: Quart and callboard, side by side on hypercorn.

python examples/mounted.py
"""

import json
from typing import Any
from urllib.request import Request, urlopen

import trio
from hypercorn.config import Config
from hypercorn.middleware.dispatcher import TrioDispatcherMiddleware
from hypercorn.trio import serve
from quart_trio import QuartTrio

from callboard import Server

server = Server("guestbook", version="1.0.0")
pages = QuartTrio(__name__)
guests: list[str] = []


@server.tool
async def sign(name: str) -> str:
    """Signs the guest book."""
    guests.append(name)
    return f"Welcome, {name}!"


@pages.get("/")
async def read() -> str:
    """The page: the names in the guest book."""
    return ", ".join(guests) or "Nobody was here yet."


# Paths are tried in order, so the page comes last. The server starts and stops together with the application.
app = TrioDispatcherMiddleware({"/mcp": server.asgi(), "": pages})


def ask(base: str) -> None:
    """Call the tool as an MCP client would, and then look at the page."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params: dict[str, Any] = {"name": "sign", "arguments": {"name": "Ada"}, "_meta": meta}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "sign",
    }
    with urlopen(Request(base + "/mcp", json.dumps(call).encode(), headers)) as answer:
        print("tool:", json.load(answer)["result"]["content"][0]["text"])
    with urlopen(base + "/") as page:
        print("page:", page.read().decode())


async def main() -> None:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    done = trio.Event()
    async with trio.open_nursery() as nursery:
        [base] = await nursery.start(
            lambda task_status: serve(app, config, shutdown_trigger=done.wait, task_status=task_status)
        )
        await trio.to_thread.run_sync(ask, base)
        done.set()


if __name__ == "__main__":
    trio.run(main)
