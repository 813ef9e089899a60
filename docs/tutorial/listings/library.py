"""A lending library with three books."""

from callboard import Server

server = Server("library", version="1.0")

BOOKS = {
    "emma": "Jane Austen: Emma",
    "moby-dick": "Herman Melville: Moby-Dick",
    "dracula": "Bram Stoker: Dracula",
}


@server.tool(read_only=True)
async def shelf() -> list[str]:
    """The books that can be borrowed."""
    return sorted(BOOKS)


@server.resource("book://{name}", mime_type="text/plain")
async def book(name: str) -> str | None:
    """Who wrote a book, and what it is called."""
    return BOOKS.get(name)
