from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from callboard import Context, Server


@asynccontextmanager
async def stock(_: Server) -> AsyncIterator[dict[str, int]]:
    yield {"pen": 3, "cup": 1}


shop = Server("shop", lifespan=stock)


@shop.tool
async def buy(item: str, ctx: Context) -> str:
    """Buy one of an item."""
    if not ctx.lifespan.get(item):
        return f"no {item} left"
    ctx.lifespan[item] -= 1
    return f"one {item}, {ctx.lifespan[item]} left"


clock = Server("clock")


@clock.tool
async def opening_hours() -> str:
    """When the mall is open."""
    return "9 to 5"


@clock.tool
async def set_hours(hours: str) -> str:
    """Change when the mall is open."""
    return hours


server = Server("mall")
server.mount(shop, prefix="shop")  # shop__buy
server.include(clock, tools=["opening_hours"])
