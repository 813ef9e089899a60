"""A backend with one part for each thing that can cross a broker; and it remembers what was done to it.

Whoever wants to know whether something has happened asks, and is answered when it has: nobody need look twice.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import attrs
import trio

from callboard import Context, Header, Server, ToolError
from callboard.actors.changes import Hear
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.subscribers import Following, HostedAudience


@attrs.define(eq=False)
class Diary:
    """What has happened, by what it happened to."""

    _entries: dict[str, str] = attrs.field(factory=dict, init=False)
    _written: trio.Event = attrs.field(factory=trio.Event, init=False)

    def note(self, key: str, what: str) -> None:
        self._entries[key] = self._entries.get(key, "") + what
        self._written.set()
        self._written = trio.Event()

    async def wait(self, key: str, length: int) -> str:
        """All that has happened, once that is as much."""
        while len(self._entries.get(key, "")) < length:
            await self._written.wait()
        return self._entries.get(key, "")


diary = Diary()


@attrs.frozen(eq=False)
class Watched(HostedAudience):
    """An audience that may follow whatever it names, and is counted."""

    async def follow(self, uris: Sequence[str], principal: str, hear: Hear) -> Following:
        following = await super().follow(uris, principal, hear)
        for uri in following:
            diary.note(uri, "+")
        return following

    def unfollow(self, following: Following, hear: Hear) -> None:
        super().unfollow(following, hear)
        for uri in following:
            diary.note(uri, "-")


class Cast(Server):
    """A server that knows who follows what."""

    @asynccontextmanager
    async def host(self, *, parking: Parking | None = None) -> AsyncIterator[Host]:
        async with super().host(parking=parking) as host:
            host.audience = Watched(host.topics)
            yield host


server = Cast("cast", version="1.0", instructions="Each part plays one thing.")


@attrs.frozen
class Line:
    words: str
    length: int


@attrs.frozen
class Name:
    name: str


@server.tool
async def say(words: str) -> Line:
    """Says it."""
    return Line(words, len(words))


@server.tool
async def travel(to: Annotated[str, Header("Place")]) -> str:
    """Takes an argument that is repeated in a header, over modern HTTP."""
    return f"in {to}"


@server.tool
async def count_up(*, ctx: Context) -> str:
    """Counts to three, slowly enough to be heard."""
    for number in (1, 2, 3):
        await ctx.report(number, total=3, message=f"step {number}")
        await trio.sleep(0.02)  # a report is sent at most every ten milliseconds
    return "three"


@server.tool
async def wait_for_ever(key: str, *, ctx: Context) -> str:
    """Waits until it is cancelled, and remembers that."""
    try:
        await ctx.report(1)
        await trio.sleep_forever()
    finally:
        diary.note(key, "x")


@server.tool
async def happened(key: str, length: int) -> str:
    """What has happened to *key*, once that is so much: `+` followed, `-` no longer, `x` cancelled."""
    return await diary.wait(key, length)


@server.tool
async def ask_user(*, ctx: Context) -> str:
    """Asks the user."""
    given = await ctx.elicit("Who are you?", Name)
    return f"user {given.name}"


@server.tool
async def ask_model(*, ctx: Context) -> str:
    """Asks the client's model."""
    reply = await ctx.sample("Who are you?", max_tokens=9)
    return f"model {reply.text}"


@server.tool
async def ask_roots(*, ctx: Context) -> str:
    """Asks for the client's folders."""
    return " ".join(root.uri for root in await ctx.roots())


@server.tool
async def note_it(*, ctx: Context) -> str:
    """Logs."""
    await ctx.log("debug", "too quiet")
    await ctx.log("warning", {"said": "loud"}, logger="cast")
    return "noted"


@server.tool
async def fail() -> str:
    """Fails, and says so."""
    raise ToolError("not today")


@server.tool
async def touch(uri: str, *, ctx: Context) -> str:
    """Changes a resource."""
    ctx.notify_updated(uri)
    return "touched"


@server.tool
async def hire(name: str) -> str:
    """One more tool."""

    async def hired() -> str:
        return f"{name} at your service"

    server.tool(name=name)(hired)
    return "hired"


@server.tool
async def dismiss(name: str) -> str:
    """One tool less."""
    server.remove_tool(name)
    return "dismissed"


@server.resource("cast://script", mime_type="text/plain")
async def script() -> str:
    """What is to be said."""
    return "to be, or not to be"


@server.resource("cast://notes/{key}")
async def notes(key: str) -> str:
    return f"notes of {key}"


@server.prompt
def greet(who: str) -> str:
    """Greets."""
    return f"Say hello to {who}."


@server.completion("greet", "who")
async def complete_who(value: str) -> list[str]:
    return [name for name in ("hamlet", "horatio", "ophelia") if name.startswith(value)]
