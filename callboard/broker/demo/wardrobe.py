"""The wardrobe: a tool that takes its time, and says how far it is. It runs as a process of its own."""

from typing import Annotated, Final

import attrs
import trio
from msgspec import Meta

from callboard.codecs.revisions import ToolAnnotations
from callboard.server import Context, Server

server = Server("wardrobe", version="1.0")

STEPS: Final = ("measure", "cut", "pin", "sew", "hem", "press")
RACK: Final = {"hamlet": "a black doublet", "macbeth": "a borrowed robe", "malvolio": "yellow stockings"}


@attrs.frozen
class Costume:
    """A finished costume."""

    role: str
    made: str


@server.tool(annotations=ToolAnnotations(destructive_hint=False, open_world_hint=False))
async def sew_costume(role: str, pace: Annotated[float, Meta(ge=0, le=10)] = 0.5, *, ctx: Context) -> Costume:
    """Sew a costume. It takes a few seconds, and reports each step.

    Args:
        role: Who is to wear it.
        pace: Seconds for each step.
    """
    for number, step in enumerate(STEPS):
        await ctx.report(number, total=len(STEPS), message=step)
        await trio.sleep(pace)
    await ctx.report(len(STEPS), total=len(STEPS), message="done")
    return Costume(role, RACK.get(role.lower(), "a cloak that fits everybody"))


@server.resource("rack://{role}", mime_type="text/plain")
async def rack(role: str) -> str | None:
    """The costume of a role."""
    return RACK.get(role.lower())


@server.completion("rack://{role}", "role")
async def complete_role(value: str) -> list[str]:
    return [role for role in RACK if role.startswith(value.lower())]
