"""A server for callers with different scopes. callboard run tests/apps/scoped.py --authorization FILE"""

import json
from pathlib import Path
from typing import Final

import attrs
import trio

from callboard import Context, Server

FILES: Final = ["files:read", "files:write"]

server = Server("scoped")


@attrs.frozen
class Name:
    name: str


@server.tool
async def who(ctx: Context) -> str:
    """Say who calls."""
    caller = ctx.caller
    return json.dumps([caller.principal, caller.tenant, caller.issuer, caller.client_id])


@server.tool
async def secret() -> str:
    """Be hidden by a rule, in some tests."""
    return "seen"


@server.tool
async def sign_up(ctx: Context) -> str:
    """Ask the client a question: a call that is parked."""
    return (await ctx.elicit("Who are you?", Name)).name


@server.tool
async def hold(file: str) -> str:
    """Run until *file* is there, in whichever worker."""
    Path(f"{file}.begun").touch()  # noqa: ASYNC240
    while not Path(file).exists():  # noqa: ASYNC110, ASYNC240  # workers share nothing else
        await trio.sleep(0.02)
    return "held"


@server.tool(scopes=FILES)
async def write() -> str:
    """Need two scopes more than the least."""
    return "written"


@server.resource("doc://one", scopes=FILES)
async def one() -> str:
    """Need two scopes."""
    return "one"


@server.resource("doc://{name}/text", scopes=FILES)
async def any_text(name: str) -> str:
    """Need two scopes, whichever it is."""
    return name


@server.prompt(scopes=FILES)
async def draft() -> str:
    """Need two scopes."""
    return "write"
