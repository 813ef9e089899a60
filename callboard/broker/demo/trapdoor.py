"""The trapdoor: a server of an old revision, in a process of its own, with a tool that ends that process.

It asks its questions as requests, which clients of 2026-07-28 do not take: the broker parks the call and hands the
question over in a result. When the process ends, the broker starts another.
"""

import os
import time
from typing import Annotated, Final, Literal

import attrs
from msgspec import Meta

from callboard.codecs.revisions import Revision, ToolAnnotations
from callboard.server import Context, Server

OLD: Final = Revision("2025-06-18")

server = Server("trapdoor", version="1.0", revisions=frozenset({OLD}))

_SINCE: Final = time.monotonic()


@attrs.frozen
class Candidate:
    """The form of an audition."""

    name: Annotated[str, Meta(title="Your name", min_length=1, max_length=60)]


@attrs.frozen
class Performance:
    """The second form."""

    mood: Annotated[Literal["tragic", "comic"], Meta(title="How will you play it")]


@attrs.frozen
class Casting:
    """The end of an audition."""

    role: str
    actor: str
    mood: str
    asked_in: str
    """The revision in which the server asked."""


@attrs.frozen
class Standing:
    """The process that answers."""

    process: int
    seconds: float


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
async def audition(role: str, *, ctx: Context) -> Casting:
    """Audition for a role: asks two questions, one after the other, in the way of 2025-06-18."""
    actor = await ctx.elicit(f"An audition for {role}: who is there?", Candidate)
    piece = await ctx.elicit(f"Go on, {actor.name}.", Performance)
    return Casting(role, actor.name, piece.mood, ctx.revision.value)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
async def standing() -> Standing:
    """Which process stands on the trapdoor, and for how long."""
    return Standing(os.getpid(), round(time.monotonic() - _SINCE, 1))


@server.tool(annotations=ToolAnnotations(destructive_hint=False, open_world_hint=False))
async def fall() -> None:
    """Open the trapdoor: the process ends in the middle of this call, and the broker starts another."""
    os._exit(1)
