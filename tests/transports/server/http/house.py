"""A server whose tools wait for the test, and tell when they were cut off."""

from collections import defaultdict
from typing import Annotated, Any

import attrs
import trio

from callboard import Context, Header, Server


@attrs.frozen
class Name:
    name: str


@attrs.define(eq=False)
class House:
    """The server, and what happens in it."""

    server: Server
    started: list[str] = attrs.field(factory=list)
    cut: dict[str, float] = attrs.field(factory=dict)
    """When the handler of a call was cancelled, by the name that the call gave itself."""
    done: list[str] = attrs.field(factory=list)
    gates: defaultdict[str, trio.Event] = attrs.field(factory=lambda: defaultdict(trio.Event))
    _stirred: trio.Event = attrs.field(factory=trio.Event)

    async def pass_gate(self, name: str) -> None:
        """What a handler does: say that it runs, wait for its gate, and say how that ended."""
        self._stir(self.started, name)
        try:
            await self.gates[name].wait()
        except BaseException:
            self.cut[name] = trio.current_time()
            self._stir()
            raise
        self._stir(self.done, name)

    def _stir(self, shelf: list[str] | None = None, name: str = "") -> None:
        if shelf is not None:
            shelf.append(name)
        self._stirred.set()
        self._stirred = trio.Event()

    async def wait_started(self, *names: str) -> None:
        while not set(names) <= set(self.started):
            await self._stirred.wait()

    async def wait_cut(self, name: str) -> float:
        """When the handler was cancelled."""
        while name not in self.cut:
            await self._stirred.wait()
        return self.cut[name]


def open_house(**options: Any) -> House:
    server = Server("house", version="1", offers=["prompts", "resources"], **options)
    house = House(server)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def errand(name: str) -> str:
        """Nobody can speak to it while it runs."""
        await house.pass_gate(name)
        return name

    @server.tool
    async def work(name: str, *, ctx: Context) -> str:
        """It could say something, and does not."""
        await house.pass_gate(name)
        return name

    @server.tool
    async def chat(words: list[str], name: str = "", *, ctx: Context) -> str:
        """Says all words, and then waits."""
        for word in words:
            await ctx.log("info", word)
        if name:
            await house.pass_gate(name)
        return "done"

    @server.tool
    async def steps(number: int, name: str, *, ctx: Context) -> str:
        """Says one word each time that its gate is opened."""
        for step in range(1, number + 1):
            await ctx.log("info", str(step))
            await house.pass_gate(f"{name}{step}")
        return "done"

    @server.tool
    async def ask(*, ctx: Context) -> str:
        return "hello " + (await ctx.elicit("Who?", Name)).name

    @server.tool
    async def folders(*, ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.roots())

    @server.tool
    async def poll(name: str, words: list[str], retry: float = 0.25, *, ctx: Context) -> str:
        """Says some words and lets its client go; the last word comes when the gate is opened."""
        for word in words:
            await ctx.log("info", word)
        await ctx.close_stream(retry=retry)
        await house.pass_gate(name)
        await ctx.log("info", "last")
        return "done"

    @server.tool
    async def route(
        city: Annotated[str, Header("City")],
        zone: Annotated[int, Header("Zone")] = 0,
        sure: Annotated[bool, Header("Sure")] = False,
    ) -> str:
        return city

    @server.tool
    async def who(*, ctx: Context) -> str:
        return ctx.principal

    @server.tool
    async def news(*, ctx: Context) -> str:
        """Tells all who listen."""
        server.notify_changed("tools")
        await ctx.log("info", "told")
        return "done"

    @server.tool
    async def large(size: int) -> str:
        return "x" * size

    @server.tool
    async def large_with_context(size: int, *, ctx: Context) -> str:
        return "x" * size

    @server.tool
    async def flood(size: int, count: int, name: str, *, ctx: Context) -> str:
        """Says more than a client that does not read can hold."""
        house.started.append(name)
        try:
            for _ in range(count):
                await ctx.log("info", "x" * size)
        except BaseException:
            house.cut[name] = trio.current_time()
            raise
        house.done.append(name)
        return "done"

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    return house
