"""A backend whose tool is not what it was, when somebody says so."""

import os
from typing import Final

from callboard import Server

server = Server("changing")

FIRST: Final = os.environ.get("FORECAST", "Weather for the coming days.")


async def forecast(city: str) -> str:
    return f"sunny in {city}"


server.tool(name="forecast", description=FIRST)(forecast)


@server.tool
async def change(description: str) -> str:
    """Changes what the other tool says of itself."""
    server.remove_tool("forecast")
    server.tool(name="forecast", description=description)(forecast)
    return "changed"


@server.tool
async def add(name: str) -> str:
    """One more tool."""
    server.tool(name=name)(forecast)
    return "added"
