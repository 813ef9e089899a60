"""A server with scopes. callboard run tests/apps/guarded.py --authorization FILE"""

from callboard import Context, Server

server = Server("guarded")
principals: dict[str, int] = {}


@server.tool
async def who(ctx: Context) -> str:
    """Say who calls."""
    principals[ctx.caller.principal] = principals.get(ctx.caller.principal, 0) + 1
    return f"{ctx.caller.principal} of {ctx.caller.tenant}"


@server.tool(scopes=["files:write"])
async def write() -> str:
    """Need another scope than the least."""
    return "written"


@server.tool
async def seen() -> dict[str, int]:
    """How often each has asked who it is."""
    return principals
