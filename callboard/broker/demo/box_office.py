"""The box office: a tool that asks before it goes on, a template, and a prompt that completes what is typed."""

from typing import Annotated, Final, Literal

import attrs
from msgspec import Meta

from callboard.codecs.revisions import ToolAnnotations
from callboard.server import Context, Server, ToolError

server = Server("box office", version="1.0", instructions="Ask what is on, then book seats.")

PLAYS: Final = {
    "hamlet": "Hamlet. A prince who cannot decide is visited by a ghost who can.",
    "macbeth": "Macbeth. Three strangers make a promise; a wood goes for a walk.",
    "the-tempest": "The Tempest. A storm, an island, and a duke with a library.",
    "twelfth-night": "Twelfth Night. Yellow stockings are worn, for the wrong reasons.",
}
PRICES: Final = {"stalls": 40, "circle": 25, "gods": 10}

_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)


@attrs.frozen
class Order:
    """The form for a booking."""

    name: Annotated[str, Meta(title="Your name", min_length=1, max_length=60)]
    place: Annotated[Literal["stalls", "circle", "gods"], Meta(title="Where to sit")] = "circle"
    programme: Annotated[bool, Meta(title="A programme for 3, too?")] = False


@attrs.frozen
class Ticket:
    """A booking."""

    play: str
    name: str
    place: str
    seats: int
    price: int


@server.tool(annotations=_READS)
async def whats_on() -> dict[str, str]:
    """Tonight's plays, and a word about each."""
    return PLAYS


@server.tool
async def book_seats(play: str, seats: Annotated[int, Meta(ge=1, le=8)] = 2, *, ctx: Context) -> Ticket:
    """Book seats for a play: asks for a name and where to sit, and goes on from there.

    Args:
        play: One of those that are on, such as hamlet.
        seats: How many.
    """
    play = play.strip().lower().replace(" ", "-")  # people write titles as titles
    if play not in PLAYS:
        raise ToolError(f"{play[:60]!r} is not on. These are: {', '.join(PLAYS)}.")
    order = await ctx.elicit(f"{seats} for {play}: in whose name, and where?", Order)
    price = seats * PRICES[order.place] + (3 if order.programme else 0)
    return Ticket(play, order.name, order.place, seats, price)


@server.resource("programme://{play}", mime_type="text/plain")
async def programme(play: str) -> str | None:
    """The plot of a play."""
    return PLAYS.get(play)


@server.prompt
def review(play: str, mood: str = "generous") -> str:
    """Have a review written.

    Args:
        play: Of which play.
        mood: How the critic slept.
    """
    about = PLAYS.get(play, play)
    return f"You are a {mood} theatre critic. Review tonight's performance in three sentences. {about}"


@server.completion("review", "play")
async def complete_play(value: str) -> list[str]:
    return _beginning(value, PLAYS)


@server.completion("review", "mood")
async def complete_mood(value: str) -> list[str]:
    return _beginning(value, ("acid", "bored", "enchanted", "generous"))


@server.completion("programme://{play}", "play")
async def complete_programme(value: str) -> list[str]:
    return _beginning(value, PLAYS)


def _beginning(value: str, words: "dict[str, str] | tuple[str, ...]") -> list[str]:
    return [word for word in words if word.startswith(value.lower())]
