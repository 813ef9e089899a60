"""A server with a page of an MCP App, which says what its client has declared."""

from pathlib import Path

from callboard import Context, Server
from callboard.codecs.revisions import UNSET

server = Server("pages")
server.app("ui://view", Path(__file__).with_name("page.html"))


@server.tool(ui="ui://view")
async def show() -> str:
    """Show the page."""
    return "shown"


@server.tool
async def seen(ctx: Context) -> str:
    """The extensions that the client has declared."""
    found = ctx.client_capabilities.extensions
    return "none" if found is UNSET else ", ".join(sorted(found))
