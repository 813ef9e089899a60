"""Numbers of cards never leave the server, in whatever a tool returns.

callboard call examples/middleware/redaction.py customer name=ann
"""

import re
from typing import Any, Final

import attrs

from callboard import Context, Server
from callboard.codecs.revisions import UNSET, CallToolResult, Model, TextContent
from callboard.server import GoOn

CARD: Final = re.compile(r"\b(?:\d[ -]?){12,18}\d\b")

server = Server("redaction")


@server.middleware
async def redacted(ctx: Context, go_on: GoOn) -> Model:
    result = await go_on()
    if not isinstance(result, CallToolResult):
        return result
    content = [
        attrs.evolve(block, text=CARD.sub("[card]", block.text)) if isinstance(block, TextContent) else block
        for block in result.content
    ]
    data = result.structured_content
    return attrs.evolve(result, content=content, structured_content=data if data is UNSET else without_cards(data))


def without_cards(value: Any) -> Any:
    match value:
        case str():
            return CARD.sub("[card]", value)
        case list():
            return [without_cards(inner) for inner in value]
        case dict():
            return {key: without_cards(inner) for key, inner in value.items()}
    return value


@server.tool
async def customer(name: str) -> dict[str, str]:
    """What is known of a customer."""
    return {"name": name, "card": "4111 1111 1111 1111"}


if __name__ == "__main__":
    server.run()
