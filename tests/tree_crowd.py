"""Clients of all kinds at one server, and the history of what each of them did: what it began and has not ended."""

import os
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
import msgspec
import trio

from callboard import Context, Server
from callboard.actors.server.drain import drain
from callboard.broker import Broker
from callboard.codecs.lines import LineDecoder
from callboard.codecs.revisions.revision import R4, R5
from callboard.serve import Ready, serve
from callboard.serve.options import Options
from callboard.server.served import Hosted
from callboard.supervisor import Supervisor, live_trees
from callboard.transports.limits import Settings
from callboard.transports.server.stdio import Pipes
from tests.broker.front import backend, ways_in
from tests.serve.lines import Era, HttpLine, Json, Line, WebSocketLine
from tests.tree_things import Claim, Difference, Thing, Things, difference, expected, found, without_passing

Place: TypeAlias = Literal["hosted", "brokered, modern behind", "brokered, legacy behind"]
PLACES: Final[tuple[Place, ...]] = get_args(Place)
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
NOTE: Final = "truth://note"
THREADS: Final = 30
"""Most calls in threads at once; of more, some would wait for a thread."""
AT_ONCE: Final = 40
"""Moves of clients that are made at once."""
SOON: Final = 10.0
"""Seconds in which the tree comes to agree with the history, once no client moves."""


@attrs.frozen
class Name:
    name: str


@attrs.define(eq=False)
class House:
    """The server, whose calls wait until they are released."""

    server: Server
    started: set[str] = attrs.field(factory=set, init=False)
    gates: defaultdict[str, trio.Event] = attrs.field(factory=lambda: defaultdict(trio.Event), init=False)
    threads: defaultdict[str, threading.Event] = attrs.field(factory=lambda: defaultdict(threading.Event), init=False)
    _stirred: trio.Event = attrs.field(factory=trio.Event, init=False)

    token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token, init=False)

    def begin(self, label: str) -> None:
        self.started.add(label)
        self._stirred.set()
        self._stirred = trio.Event()

    async def wait(self, label: str) -> str:
        self.begin(label)
        await self.gates[label].wait()
        return label

    async def wait_started(self, label: str) -> None:
        while label not in self.started:
            await self._stirred.wait()

    def release(self, label: str) -> None:
        self.gates[label].set()
        self.threads[label].set()

    def release_all(self) -> None:
        for label in self.started:
            self.release(label)


def open_house() -> House:
    server = Server("truth", version="1")
    house = House(server)

    @server.tool
    async def plain(label: str) -> str:
        return await house.wait(label)

    @server.tool
    async def ctx(label: str, *, ctx: Context) -> str:
        return await house.wait(label)

    @server.tool
    async def reports(label: str, *, ctx: Context) -> str:
        await ctx.report(1)
        return await house.wait(label)

    @server.tool
    def sync(label: str) -> str:
        house.token.run_sync_soon(house.begin, label)
        house.threads[label].wait()
        return label

    @server.tool
    async def parked(label: str, *, ctx: Context) -> str:
        await ctx.elicit(f"Who? ({label})", Name)
        return label

    @server.resource("truth://{label}/wait")
    async def wait(label: str) -> str:
        return await house.wait(label)

    @server.resource(NOTE)
    async def note() -> str:
        return "a note"

    @server.prompt
    async def brief(label: str) -> str:
        return await house.wait(label)

    return house


@attrs.define(eq=False)
class PipeLine(Line):
    """The other end of what the server takes for its standard input and output."""

    pipes: "PipePair"
    other: Line | None = None
    """A client of the other era at the same end: it hears all, too."""

    async def say(self, message: Json) -> None:
        async with self.pipes.turn:
            await self.pipes.outgoing.send_all(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")

    async def open(self) -> None:
        if self.other is not None:
            self.nursery.start_soon(self._read, [self, self.other])
        await super().open()

    async def drop(self) -> None:
        await self.pipes.outgoing.aclose()

    async def _read(self, hearing: Sequence[Line]) -> None:
        decoder = LineDecoder(1 << 24)
        async for data in self.pipes.incoming:
            for text in decoder.feed(bytes(data)):
                assert isinstance(text, bytes)
                for line in hearing:
                    line.note(msgspec.json.decode(text))


# What clients do.

CALLS: Final = ("plain", "ctx", "reports", "token", "sync", "asks", "read", "prompt")
"""Kinds of requests in flight. `asks` waits for the answer to a question; a modern one of these is parked."""


@attrs.define(eq=False)
class Guest:
    """A client."""

    line: Line
    transport: str
    has_session: bool
    deeds: set["Deed"] = attrs.field(factory=set, init=False)
    is_gone: bool = attrs.field(default=False, init=False)
    is_deaf: bool = attrs.field(default=False, init=False)
    """Whether the connections are closed on which it would have been answered."""

    @property
    def revision(self) -> str:
        return R5.value if self.line.era == "modern" else R4.value

    @property
    def name(self) -> str:
        return self.line.name


@attrs.define(eq=False)
class Deed:
    """What a client began, and has not ended. It is certain unless it is on its way, in or out."""

    guest: Guest
    kind: str
    id: str
    claims: tuple[Claim, ...]
    is_certain: bool = attrs.field(default=False, init=False)

    @property
    def is_parked(self) -> bool:
        return self.kind == "asks" and self.guest.line.era == "modern"


@attrs.define(eq=False)
class Crowd:
    """All clients of one server, and their history."""

    place: Place
    house: House
    root: Supervisor
    urls: dict[str, str]
    nursery: trio.Nursery
    guests: list[Guest] = attrs.field(factory=list, init=False)
    deeds: set[Deed] = attrs.field(factory=set, init=False)
    snapshots: int = attrs.field(default=0, init=False)
    faults: list[Difference] = attrs.field(factory=list, init=False)
    """Differences that no order of what was on its way explains."""
    _leaving: list[Claim] = attrs.field(factory=list, init=False)
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _turns: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(AT_ONCE), init=False)

    # Coming and going.

    async def join(self, transport: str, era: Era) -> None:
        """A client connects, and shakes hands if it is of the legacy era."""
        make = HttpLine if transport == "http" else WebSocketLine
        line = make(era, self.nursery, self.urls[transport], name=f"c-{next(self._names)}")
        await self.take_in(Guest(line, transport, has_session=transport != "http" or era == "legacy"))

    async def take_in(self, guest: Guest) -> None:
        session = self._claim(guest, "session")
        deed = self._deed(guest, "session", "", *([session] if guest.has_session else []))
        self._leaving.append(
            attrs.evolve(session, thing=attrs.evolve(session.thing, revision="none"))
        )  # before it agreed
        await guest.line.open()
        deed.is_certain = True
        self.guests.append(guest)

    async def leave(self, guest: Guest) -> None:
        """A client is done. What it had parked stays: another connection may bring the retry."""
        guest.is_gone = True
        self.guests.remove(guest)
        ending = [deed for deed in guest.deeds if not deed.is_parked]
        for deed in ending:
            deed.is_certain = False
        await guest.line.leave()
        for deed in ending:
            self.house.release(deed.id)  # a thread ends by itself alone
            self._forget(deed)

    async def drop(self, guest: Guest) -> None:
        """The connections of a legacy client break, and it comes back: nothing has changed."""
        await guest.line.drop()
        await guest.line.come_back()
        guest.is_deaf = guest.transport == "http"

    # Beginning and ending.

    async def begin(self, guest: Guest, kind: str) -> None:
        """Have one more request in flight, or parked, or one more subscription."""
        key = f"{kind}-{next(self._names)}"
        line = guest.line
        if kind == "follow":
            deed = self._deed(guest, kind, key, *self._claims(guest, kind, key))
            self._passes(guest, "resources/subscribe")
            await line.wait_answer(await line.ask("resources/subscribe", id=key, uri=_followed(key)))
        elif kind == "listen":
            deed = self._deed(guest, kind, key, *self._claims(guest, kind, key))
            wanted = {"toolsListChanged": True, "resourceSubscriptions": [NOTE]}
            await line.ask("subscriptions/listen", id=key, notifications=wanted)
            await line.wait_heard(lambda message: message.get("method") == ACKNOWLEDGED and _about(message) == key)
        else:
            deed = self._deed(guest, kind, key, *self._claims(guest, kind, key))
            await self._call(guest, kind, key)
        deed.is_certain = True

    async def _call(self, guest: Guest, kind: str, key: str) -> None:
        line, token = guest.line, f"t-{key}" if kind in ("reports", "token") else None
        if kind == "read":
            await line.ask("resources/read", id=key, uri=f"truth://{key}/wait")
        elif kind == "prompt":
            await line.ask("prompts/get", id=key, name="brief", arguments={"label": key})
        else:
            await line.ask("tools/call", id=key, token=token, name=_tool(kind), arguments={"label": key})
        if kind != "asks":
            await self.house.wait_started(key)
        elif line.era == "modern":
            self._passes(guest, "tools/call")
            await line.wait_answer(key)
        else:
            await line.wait_question(key)
        if kind == "reports":
            await line.wait_heard(
                lambda message: (
                    message.get("method") == "notifications/progress" and message["params"]["progressToken"] == token
                )
            )

    async def end(self, deed: Deed, *, by_cancelling: bool = False) -> None:
        """Let a request have its answer; or cancel it; or end a subscription."""
        guest, line, key = deed.guest, deed.guest.line, deed.id
        deed.is_certain = False
        if deed.kind == "follow":
            await line.wait_answer(await line.ask("resources/unsubscribe", uri=_followed(key)))
        elif deed.is_parked:
            by = self.guests[0].line if guest.is_gone else None
            self._passes(guest, "tools/call")
            assert "result" in await line.retry(key, key, by=by)
        elif by_cancelling or deed.kind == "listen":
            await line.cancel(key)
            self.house.release(key)
        elif deed.kind == "asks":
            await line.answer_question(key)
        else:
            self.house.release(key)
        if not (by_cancelling or deed.is_parked or guest.is_deaf or deed.kind in ("follow", "listen")):
            assert "result" in await line.wait_answer(key)
        self._forget(deed)

    async def all_at_once(self, moves: Iterable[Callable[[], Awaitable[object]]]) -> None:
        """Make many moves, a few at a time, while snapshots are taken."""

        async def make(move: Callable[[], Awaitable[object]]) -> None:
            async with self._turns:
                await move()

        async with trio.open_nursery() as watching:
            watching.start_soon(self._watch)
            async with trio.open_nursery() as moving:
                for move in moves:
                    moving.start_soon(make, move)
            watching.cancel_scope.cancel()

    # What follows from it.

    @property
    def is_bridged(self) -> bool:
        return self.place == "brokered, legacy behind"

    def _claims(self, guest: Guest, kind: str, key: str) -> list[Claim]:
        """What a deed puts into the tree."""
        if kind == "follow":
            return [self._claim(guest, "subscription", "resources/subscribe", _followed(key))]
        if kind == "listen":
            return [self._claim(guest, "subscription", "subscriptions/listen")]
        method, target = _asked_for(kind, key)
        is_brokered, is_parked = self.place != "hosted", kind == "asks" and guest.line.era == "modern"
        if is_parked and self.place == "brokered, modern behind":
            return []  # the client holds the state, and the backend the call
        claims = [self._claim(guest, "parked" if is_parked else "request", method, target)]
        claims[0] = attrs.evolve(claims[0], is_inline=kind == "plain")
        if kind in ("reports", "token"):
            token = self._claim(guest, "progress", target=f"t-{key}")
            claims.append(attrs.evolve(token, has_reported=kind == "reports"))
        if kind == "asks" and not is_parked:
            claims.append(self._claim(guest, "outbound", "elicitation/create"))
        if kind == "asks" and self.is_bridged:
            claims.append(self._claim(guest, "question", "elicitation/create"))
        if is_brokered and (kind != "asks" or self.is_bridged):
            behind = R4.value if self.is_bridged else R5.value
            outbound = Thing("outbound", method, target, "backend", behind)
            claims.append(Claim(outbound, "memory", is_brokered))
        return claims

    def _claim(self, guest: Guest, kind: str, method: str = "", target: str = "") -> Claim:
        revision = "none" if kind == "session" and guest.line.era == "modern" else guest.revision
        return Claim(Thing(kind, method, target, guest.name, revision), guest.transport, self.place != "hosted")

    def _deed(self, guest: Guest, kind: str, key: str, *claims: Claim) -> Deed:
        deed = Deed(guest, kind, key, claims)
        guest.deeds.add(deed)
        self.deeds.add(deed)
        return deed

    def _forget(self, deed: Deed) -> None:
        self._leaving += deed.claims
        deed.guest.deeds.discard(deed)
        self.deeds.discard(deed)

    def _passes(self, guest: Guest, method: str) -> None:
        """A request that is in flight for a moment."""
        self._leaving.append(self._claim(guest, "request", method))

    # The comparison.

    def certain(self) -> Things:
        return expected(claim for deed in self.deeds if deed.is_certain for claim in deed.claims)

    def possible(self) -> Things:
        return expected([*self._leaving, *(claim for deed in self.deeds for claim in deed.claims)])

    async def _watch(self) -> None:
        """Compare all the time: what is certain is there, and nothing is that is not possible."""
        while True:
            seen = without_passing(found(self.root.tree()))
            self.snapshots += 1
            if unlike := difference(seen, self.certain(), self.possible()):
                self.faults.append(unlike)
            await trio.sleep(0.02)

    async def settled(self) -> Difference:
        """Wait until the tree agrees with the history; what is different if it does not."""
        with trio.move_on_after(SOON):
            while self._unlike():  # noqa: ASYNC110 -- no event tells that a server has dealt with all that was sent
                await trio.sleep(0.01)
        self._leaving.clear()
        return self._unlike()

    def _unlike(self) -> Difference:
        self.snapshots += 1
        certain = self.certain()
        return difference(found(self.root.tree()), certain, certain)


def _tool(kind: str) -> str:
    return {"token": "ctx", "asks": "parked"}.get(kind, kind)


def _asked_for(kind: str, key: str) -> tuple[str, str]:
    """The method of a call, and what it is of."""
    if kind == "read":
        return "resources/read", f"truth://{key}/wait"
    return ("prompts/get", "brief") if kind == "prompt" else ("tools/call", _tool(kind))


def _followed(key: str) -> str:
    return f"truth://{key}/wait"


def _about(message: Json) -> Any:
    return message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]


# Where they are.


@asynccontextmanager
async def crowd(place: Place) -> AsyncIterator[Crowd]:
    """A server that listens, with a client of each era at its standard input and output."""
    house = open_house()
    async with AsyncExitStack() as stack:
        served: Hosted = house.server
        if place != "hosted":
            host = await stack.enter_async_context(house.server.host())
            host.most_in_flight = 10_000  # the broker is one client of it
            # What a legacy client cancels may be parked there, and is not waited for.
            stack.push_async_callback(drain, host, within=0.1, spread=0)
            behind = R4 if place == "brokered, legacy behind" else None
            spec = backend(ways_in(host), max_in_flight=10_000, max_connections=10_000, share="all", revision=behind)
            served = Broker([spec], name="broker")
        pipes = await stack.enter_async_context(_pipes())
        nursery = await stack.enter_async_context(trio.open_nursery())
        enough = trio.Event()
        options = Options(http=0, ws=0, stdio=pipes.theirs, settings=Settings(drain_time=1))
        ready: Ready = await nursery.start(partial(serve, served, until=enough.wait, **options))
        urls = {one.transport: one.url or "" for one in ready.listening}
        (root,) = [root for root in live_trees() if root.path == served.info.name]
        async with trio.open_nursery() as clients:
            here = Crowd(place, house, root, {"http": urls["http"], "websocket": urls["ws"]}, clients)
            modern = PipeLine("modern", clients, pipes, name="stdio-modern")
            legacy = PipeLine("legacy", clients, pipes, modern, name="stdio-legacy")
            await here.take_in(Guest(modern, "stdio", has_session=False))
            await here.take_in(Guest(legacy, "stdio", has_session=True))
            # The first call over stdio that waits may run in the task that reads; those after it do not.
            await here.begin(here.guests[0], "plain")
            await here.end(next(deed for deed in here.deeds if deed.kind == "plain"))
            try:
                yield here
            finally:
                house.release_all()
                clients.cancel_scope.cancel()
        enough.set()


@attrs.frozen
class PipePair:
    """Both ends of what the server takes for its standard input and output."""

    theirs: Pipes
    incoming: trio.abc.ReceiveStream
    outgoing: trio.abc.SendStream
    turn: trio.Lock = attrs.field(factory=trio.Lock)


@asynccontextmanager
async def _pipes() -> AsyncIterator[PipePair]:
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    try:
        async with trio.lowlevel.FdStream(our_in) as incoming, trio.lowlevel.FdStream(our_out) as outgoing:
            yield PipePair(Pipes(their_in, their_out), incoming, outgoing)
    finally:
        os.close(their_in)
        os.close(their_out)
