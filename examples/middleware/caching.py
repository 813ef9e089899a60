"""Results of slow tools, kept for a minute. Each caller has its own: what one may see need not be for another.

callboard call examples/middleware/caching.py rate currency=NOK
"""

from collections import OrderedDict
from typing import Final

import msgspec
import trio

from callboard import Context, Server
from callboard.codecs.revisions import CallToolResult, Model
from callboard.server import GoOn

CACHED: Final = {"rate": 60.0}
"""Seconds for which the result of a tool is kept."""

MOST: Final = 1000
"""Results that are kept at once; one more, and the oldest is dropped."""

LONGEST: Final = 10_000
"""Bytes of arguments up to which a result is kept: a client chooses them."""

server = Server("caching")
kept: OrderedDict[tuple[str, str, bytes], tuple[float, Model]] = OrderedDict()


@server.middleware
async def cached(ctx: Context, go_on: GoOn) -> Model:
    if ctx.method != "tools/call" or ctx.target not in CACHED:
        return await go_on()
    arguments = msgspec.json.encode(ctx.arguments, order="sorted")
    key = ctx.principal, ctx.target, arguments
    until, result = kept.get(key, (0.0, None))
    if result is not None and trio.current_time() < until:
        return result  # the tool does not run
    result = await go_on()
    # A failure is not kept, and neither is a question to the user.
    if isinstance(result, CallToolResult) and result.is_error is not True and len(arguments) <= LONGEST:
        kept[key] = trio.current_time() + CACHED[ctx.target], result
        kept.move_to_end(key)
        if len(kept) > MOST:
            kept.popitem(last=False)
    return result


@server.tool
async def rate(currency: str) -> float:
    """What a euro costs."""
    await trio.sleep(2)
    return 11.5 if currency == "NOK" else 1.1


if __name__ == "__main__":
    server.run()
