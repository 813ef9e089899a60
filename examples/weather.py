"""A server in one file: a tool that may ask first, a resource, a prompt, and a client to try it with.

python examples/weather.py
"""

import attrs
import trio

from callboard import Context, Server, ToolError
from callboard.testing import connect

server = Server("weather", version="1.2.0")


@attrs.frozen
class Consent:
    """The form for the user."""

    agreed: bool


@attrs.frozen
class Forecast:
    """The result of the tool: its schema is published, its value is structured content."""

    city: str
    degrees: list[int]


@server.tool
async def forecast(city: str, days: int = 3, *, ctx: Context) -> Forecast:
    """Weather for the coming days."""
    if days > 14 and not (await ctx.elicit(f"{days} days cost 1 credit each. Go on?", Consent)).agreed:
        raise ToolError("Then ask for fewer days.")
    return Forecast(city, [20 - day async for day in ctx.progress(range(days))])


@server.resource("weather://{city}/now")
async def now(city: str) -> str:
    """The weather at this moment."""
    return f"Sunny in {city}."


@server.prompt
def briefing(city: str) -> str:
    """Ask for a briefing."""
    return f"Brief me about the weather in {city}."


async def main() -> None:
    answers = {"elicitation/create": lambda params: {"action": "accept", "content": {"agreed": True}}}
    async with connect(server, answers=answers) as client:
        for days in (3, 15):
            result = await client.call("forecast", city="Oslo", days=days)
            print(days, "days:", result["structuredContent"]["degrees"][:3], "...")
        read = await client.request("resources/read", uri="weather://oslo/now")
        print(read["contents"][0]["text"])


if __name__ == "__main__":
    trio.run(main)
