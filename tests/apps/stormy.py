"""A server with a tool for every way that a call can end."""

import trio

from callboard import Context, Rate, Server, ToolError

server = Server("stormy", rates={"completion/complete": Rate(5, per=3600)})


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def fail() -> str:
    raise ToolError("no")


@server.tool
async def hold(ctx: Context) -> str:
    """Runs until it is cancelled; its first report says that it runs."""
    await ctx.report(1)
    await trio.sleep_forever()


@server.tool
async def sleep() -> str:
    await trio.sleep_forever()


@server.prompt
async def brief(topic: str) -> str:
    return topic


@server.completion("brief", "topic")
async def topics(value: str) -> list[str]:
    return [value]
