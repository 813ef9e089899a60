"""How long each request takes, and how it ends.

callboard call examples/middleware/timing.py add a=1 b=2
"""

import sys

import trio

from callboard import Context, Server
from callboard.codecs.revisions import CallToolResult, Model
from callboard.server import GoOn

server = Server("timing")


@server.middleware
async def timed(ctx: Context, go_on: GoOn) -> Model:
    started, outcome = trio.current_time(), "failed"
    try:
        result = await go_on()
        is_error = isinstance(result, CallToolResult) and result.is_error is True
        outcome = "tool error" if is_error else "ok"
        return result
    finally:  # also if it was cancelled
        took = (trio.current_time() - started) * 1000
        print(f"{ctx.method} {ctx.target} {outcome} {took:.0f} ms", file=sys.stderr)


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
