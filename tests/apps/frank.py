"""A server for tests of logs: a tool that answers, and one that fails."""

from callboard import Server

server = Server("frank")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def fail() -> str:
    raise ValueError("it went wrong")
