"""A server with a page at the URI that another server's page has, too."""

from pathlib import Path

from callboard import Server

server = Server("other")
server.app("ui://view/page.html", Path(__file__).with_name("page.html"))


@server.tool(ui="ui://view/page.html")
async def show() -> str:
    return "the other page"
