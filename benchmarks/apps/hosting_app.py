"""What callboard hosts in `hosting.py` and `listeners.py`: the tools that every peer offers, and what only we have.

Its folder is no package: another checkout that runs it has a `benchmarks` of its own.

callboard run benchmarks/apps/hosting_app.py:server --http 0 --json
"""

import attrs

from callboard import Context, Server

server = Server("bench")


@attrs.frozen
class Said:
    """What was said."""

    text: str


@server.tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
async def noop_streamed(ctx: Context) -> str:
    """Report progress once, so that the answer is a stream."""
    await ctx.report(1)
    return "ok"


@server.tool
async def echo_streamed(text: str, ctx: Context) -> str:
    """Say it again, after progress."""
    await ctx.report(1)
    return text


@server.tool
async def echo_ctx(text: str, *, ctx: Context) -> str:
    """Say it again, with a context that is not used: such a tool might have to wait for an answer."""
    return text


@server.tool
async def echo_model(text: str) -> Said:
    """Say it again, as structured content, too."""
    return Said(text)


@server.tool
def echo_def(text: str) -> str:
    """Say it again, from a thread: a plain function may block."""
    return text


@server.tool
async def publish(ctx: Context) -> str:
    """Tell everybody who listens that the list of tools has changed."""
    ctx.notify_changed("tools")
    return "ok"
