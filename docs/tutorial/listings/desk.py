"""The desk of the library: it lends books, and asks who takes them."""

import attrs

from callboard import Context, Server, ToolError

server = Server("desk", version="1.0")

LENT: dict[str, str] = {}


@attrs.frozen
class Reader:
    """The form that the borrower fills in."""

    name: str
    has_card: bool = False


@attrs.frozen
class Loan:
    """A book that was lent."""

    book: str
    reader: str
    weeks: int


@server.tool
async def borrow(book: str, weeks: int = 2, *, ctx: Context) -> Loan:
    """Lend a book.

    Args:
        book: Its short name, such as emma.
        weeks: For how long.
    """
    if book in LENT:
        raise ToolError(f"{LENT[book]} has it.")
    reader = await ctx.elicit(f"Who takes {book}?", Reader)
    if not reader.has_card:
        raise ToolError("Only readers with a card may borrow.")
    async for _ in ctx.progress(range(weeks)):
        LENT[book] = reader.name  # a stamp for each week
    return Loan(book, reader.name, weeks)
