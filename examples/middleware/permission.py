"""Tools that only some callers may use: others do not see them in the list, and cannot call them.

A broker, or a server with `--authorization FILE`, has rules for this (docs/reference/rules.md); here it is code.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from callboard import Context, Server
from callboard.codecs.revisions import ListToolsResult, Model
from callboard.errors import InvalidParams
from callboard.server import GoOn

NEEDED: Final[Mapping[str, str]] = {"delete_account": "accounts:write"}
"""The scope that a caller's token must have, by tool. A peer at standard input has no token: it sees the others."""

server = Server("permission")


@server.middleware
async def permitted(ctx: Context, go_on: GoOn) -> Model:
    if ctx.method == "tools/call" and not may_use(ctx, ctx.target):
        raise InvalidParams(f"Unknown tool: {ctx.target[:128]}")  # the same as for a tool that does not exist
    result = await go_on()
    if isinstance(result, ListToolsResult):
        return attrs.evolve(result, tools=[tool for tool in result.tools if may_use(ctx, tool.name)])
    return result


def may_use(ctx: Context, tool: str) -> bool:
    return tool not in NEEDED or NEEDED[tool] in ctx.caller.scopes


@server.tool
async def account(name: str) -> str:
    """What is known of an account."""
    return f"{name}: open"


@server.tool
async def delete_account(name: str) -> str:
    """Delete an account, for good."""
    return f"{name}: deleted"


if __name__ == "__main__":
    server.run()
