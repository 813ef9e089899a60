from callboard import Server

server = Server("orders", search=True)


@server.tool
async def open_ticket(customer: str, problem: str) -> str:
    """Open a ticket for a customer who has a problem."""
    return f"ticket for {customer}: {problem}"


@server.tool
async def send_invoice(customer: str, amount: float) -> str:
    """Send an invoice to a customer."""
    return f"{customer} pays {amount}"
