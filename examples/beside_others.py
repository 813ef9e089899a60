"""An MCP server in a trio-websocket application, which has paths of its own on the same port."""

from functools import partial

import trio
from trio_websocket import WebSocketRequest, open_websocket_url, serve_websocket

from callboard import Server, connect

server = Server("beside others")


@server.tool
async def greet(name: str) -> str:
    """Say hello."""
    return f"Hello {name}!"


async def handle(request: WebSocketRequest) -> None:
    """What the application does with a connection."""
    if request.path == "/mcp":
        await server.serve_websocket(request)
        return
    echo = await request.accept()
    await echo.send_message((await echo.get_message()).upper())


async def main() -> None:
    async with server.websockets(), trio.open_nursery() as nursery:
        serve = partial(serve_websocket, handle, "127.0.0.1", 0, ssl_context=None)
        port = (await nursery.start(serve)).port
        async with connect(f"ws://127.0.0.1:{port}/mcp") as client:
            print("tool:", (await client.call("greet", name="Ada")).content)
        async with open_websocket_url(f"ws://127.0.0.1:{port}/echo") as echo:
            await echo.send_message("hello")
            print("echo:", await echo.get_message())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
