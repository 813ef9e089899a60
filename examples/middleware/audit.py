"""One line of JSON for each call: who, what, with which arguments, and how it ended. Secrets are left out.

callboard call examples/middleware/audit.py transfer to=ann amount=5 pin=1234
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TextIO

import msgspec

from callboard import Context, Server
from callboard.codecs.revisions import CallToolResult, Model
from callboard.server import GoOn

SECRET: Final = frozenset({"pin", "password", "token"})
LONGEST: Final = 200
"""Characters of an argument that are written: a client may send megabytes."""


@asynccontextmanager
async def lines(_: Server) -> AsyncIterator[TextIO]:
    yield sys.stderr  # or open("audit.jsonl", "a")


server = Server("audit", lifespan=lines)


@server.middleware
async def audited(ctx: Context, go_on: GoOn) -> Model:
    if ctx.method != "tools/call":
        return await go_on()
    outcome = "failed"
    try:
        result = await go_on()
        outcome = "error" if isinstance(result, CallToolResult) and result.is_error is True else "ok"
        return result
    finally:
        said = {name: "***" if name in SECRET else shortened(value) for name, value in ctx.arguments.items()}
        line = {"caller": ctx.principal, "tool": ctx.target, "arguments": said, "outcome": outcome}
        print(msgspec.json.encode(line).decode(), file=ctx.lifespan)


def shortened(value: Any) -> Any:
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= LONGEST else text[:LONGEST] + "…"


@server.tool
async def transfer(to: str, amount: int, pin: str) -> str:
    """Send money."""
    return f"{amount} to {to}"


if __name__ == "__main__":
    server.run()
