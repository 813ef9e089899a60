"""An MCP App: a page that a host shows beside the result of a tool, and that calls a tool of its own server.

For a host: callboard run examples/app.py
"""

import secrets
from pathlib import Path

import trio

from callboard import Server, connect

server = Server("dice")
server.app("ui://dice/view", Path(__file__).with_name("app.html"))


@server.tool(ui="ui://dice/view")
async def roll(sides: int = 6) -> str:
    """Roll the dice."""
    return str(secrets.randbelow(sides) + 1)


@server.tool(ui="ui://dice/view", visibility=["app"])
async def again(sides: int = 6) -> str:
    """Roll once more: for the page, not for the model."""
    return str(secrets.randbelow(sides) + 1)


async def main() -> None:
    async with connect(server) as host:
        [tool, _] = await host.tools()
        about = tool.meta["ui"] if tool.meta else {}
        print("page:", about)
        [page] = (await host.read("ui://dice/view")).contents
        print("type:", page.mime_type)


if __name__ == "__main__":
    trio.run(main)
