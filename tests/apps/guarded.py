"""A server with scopes. callboard run tests/apps/guarded.py --authorization FILE"""

from callboard import Context, Server

server = Server("guarded")


@server.tool
async def who(ctx: Context) -> str:
    """Say who calls."""
    return f"{ctx.caller.principal} of {ctx.caller.tenant}"


@server.tool(scopes=["files:write"])
async def write() -> str:
    """Need another scope than the least."""
    return "written"
