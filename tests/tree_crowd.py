"""Clients of all kinds at one server, and the history of what each of them did: what it began and has not ended."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import attrs
import msgspec
import trio

from callboard.codecs.lines import LineDecoder
from callboard.codecs.revisions.revision import R4, R5
from callboard.supervisor import Supervisor
from tests.serve.lines import Era, HttpLine, Json, Line, WebSocketLine
from tests.tree_server import NOTE, PipePair, Place, WaitingServer, serving
from tests.tree_things import Claim, Difference, Thing, Things, difference, expected, found, without_passing

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

CALLS: Final = ("plain", "ctx", "reports", "token", "sync", "asks", "read", "prompt")
"""Kinds of requests in flight. `asks` waits for the answer to a question; a modern one of these is parked."""

THREADS: Final = 30
"""Most calls in threads at once; of more, some would wait for a thread."""

AT_ONCE: Final = 40
"""Moves of clients that are made at once."""

SOON: Final = 10.0
"""Seconds in which the tree comes to agree with the history, once no client moves."""

WATCHED: Final = 8
"""A snapshot of thousands of nodes takes its time. This many times as long is for what it is taken of."""


@attrs.define(eq=False)
class PipeLine(Line):
    """The other end of what the server takes for its standard input and output."""

    pipes: PipePair
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


@attrs.define(eq=False)
class Client:
    """A client."""

    line: Line
    transport: str
    has_session: bool
    activities: set["Activity"] = attrs.field(factory=set, init=False)
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
class Activity:
    """What a client began, and has not ended. It is certain unless it is on its way, in or out."""

    client: Client
    kind: str
    id: str
    claims: tuple[Claim, ...]
    is_certain: bool = attrs.field(default=False, init=False)

    @property
    def is_parked(self) -> bool:
        return self.kind == "asks" and self.client.line.era == "modern"


@attrs.define(eq=False)
class Crowd:
    """All clients of one server, and their history."""

    place: Place
    server: WaitingServer
    root: Supervisor
    urls: dict[str, str]
    nursery: trio.Nursery
    clients: list[Client] = attrs.field(factory=list, init=False)
    activities: set[Activity] = attrs.field(factory=set, init=False)
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
        await self.take_in(Client(line, transport, has_session=transport != "http" or era == "legacy"))

    async def take_in(self, client: Client) -> None:
        session = self._claim(client, "session")
        activity = self._activity(client, "session", "", *([session] if client.has_session else []))
        # A session has no revision before its client has shaken hands.
        self._leaving.append(attrs.evolve(session, thing=attrs.evolve(session.thing, revision="none")))
        await client.line.open()
        activity.is_certain = True
        self.clients.append(client)

    async def leave(self, client: Client) -> None:
        """A client is done. What it had parked stays: another connection may bring the retry."""
        client.is_gone = True
        self.clients.remove(client)
        ending = [activity for activity in client.activities if not activity.is_parked]
        for activity in ending:
            activity.is_certain = False
        await client.line.leave()
        for activity in ending:
            self.server.release(activity.id)  # a thread ends by itself alone
            self._forget(activity)

    async def drop(self, client: Client) -> None:
        """The connections of a legacy client break, and it comes back: nothing has changed."""
        await client.line.drop()
        await client.line.come_back()
        client.is_deaf = client.transport == "http"

    # Beginning and ending.

    async def begin(self, client: Client, kind: str) -> None:
        """Have one more request in flight, or parked, or one more subscription."""
        key, line = f"{kind}-{next(self._names)}", client.line
        activity = self._activity(client, kind, key, *self._claims(client, kind, key))
        if kind == "follow":
            self._passes(client, "resources/subscribe", _followed(key))
            assert "result" in await line.wait_answer(await line.ask("resources/subscribe", id=key, uri=_followed(key)))
        elif kind == "listen":
            wanted = {"toolsListChanged": True, "resourceSubscriptions": [NOTE]}
            await line.ask("subscriptions/listen", id=key, notifications=wanted)
            await line.wait_heard(lambda message: message.get("method") == ACKNOWLEDGED and _about(message) == key)
        else:
            await self._call(client, kind, key)
        activity.is_certain = True

    async def _call(self, client: Client, kind: str, key: str) -> None:
        line, token = client.line, f"t-{key}" if kind in ("reports", "token") else None
        if kind == "asks":
            self._passes(client, "tools/call", _tool(kind))  # until it is parked, or the client is asked
        if kind == "read":
            await line.ask("resources/read", id=key, uri=f"truth://{key}/wait")
        elif kind == "prompt":
            await line.ask("prompts/get", id=key, name="brief", arguments={"label": key})
        else:
            await line.ask("tools/call", id=key, token=token, name=_tool(kind), arguments={"label": key})
        if kind != "asks":
            await self.server.wait_started(key)
        elif line.era == "modern":
            assert (await line.wait_answer(key))["result"]["resultType"] == "input_required"
        else:
            await line.wait_question(key)
        if kind == "reports":
            await line.wait_heard(
                lambda message: (
                    message.get("method") == "notifications/progress" and message["params"]["progressToken"] == token
                )
            )

    async def end(self, activity: Activity, *, by_cancelling: bool = False) -> None:
        """Let a request have its answer; or cancel it; or end a subscription."""
        client, line, key = activity.client, activity.client.line, activity.id
        activity.is_certain = False
        if activity.kind == "follow":
            await line.wait_answer(await line.ask("resources/unsubscribe", uri=_followed(key)))
        elif activity.is_parked:
            by = self.clients[0].line if client.is_gone else None
            self._passes(client, "tools/call", _tool(activity.kind))
            assert "result" in await line.retry(key, key, by=by)
        elif by_cancelling or activity.kind == "listen":
            await line.cancel(key)
            self.server.release(key)
        elif activity.kind == "asks":
            self._passes(client, "tools/call", _tool(activity.kind))
            await line.answer_question(key)
        else:
            self.server.release(key)
        if not (by_cancelling or activity.is_parked or client.is_deaf or activity.kind in ("follow", "listen")):
            assert "result" in await line.wait_answer(key)
        self._forget(activity)

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

    def _claims(self, client: Client, kind: str, key: str) -> list[Claim]:
        """What an activity puts into the tree."""
        if kind == "follow":
            return [self._claim(client, "subscription", "resources/subscribe", _followed(key))]
        if kind == "listen":
            return [self._claim(client, "subscription", "subscriptions/listen")]
        method, target = _asked_for(kind, key)
        is_brokered, is_parked = self.place != "hosted", kind == "asks" and client.line.era == "modern"
        if is_parked and self.place == "brokered, modern behind":
            return []  # the client holds the state, and the backend the call
        claims = [self._claim(client, "parked" if is_parked else "request", method, target)]
        claims[0] = attrs.evolve(claims[0], is_inline=kind == "plain")
        if kind in ("reports", "token"):
            token = self._claim(client, "progress", target=f"t-{key}")
            claims.append(attrs.evolve(token, has_reported=kind == "reports"))
        if kind == "asks" and not is_parked:
            claims.append(self._claim(client, "outbound", "elicitation/create"))
        if kind == "asks" and self.is_bridged:
            claims.append(self._claim(client, "question", "elicitation/create"))
        if is_brokered and (kind != "asks" or self.is_bridged):
            behind = R4.value if self.is_bridged else R5.value
            outbound = Thing("outbound", method, target, "backend", behind)
            claims.append(Claim(outbound, "memory", is_brokered))
        return claims

    def _claim(self, client: Client, kind: str, method: str = "", target: str = "") -> Claim:
        revision = "none" if kind == "session" and client.line.era == "modern" else client.revision
        return Claim(Thing(kind, method, target, client.name, revision), client.transport, self.place != "hosted")

    def _activity(self, client: Client, kind: str, key: str, *claims: Claim) -> Activity:
        activity = Activity(client, kind, key, claims)
        client.activities.add(activity)
        self.activities.add(activity)
        return activity

    def _forget(self, activity: Activity) -> None:
        self._leaving += activity.claims
        activity.client.activities.discard(activity)
        self.activities.discard(activity)

    def _passes(self, client: Client, method: str, target: str) -> None:
        """A request that is in flight for a moment, and so is what a broker asks for it."""
        self._leaving.append(self._claim(client, "request", method, target))
        if self.place != "hosted":
            self._leaving.append(Claim(Thing("outbound", method), "memory", True))

    # The comparison.

    def certain(self) -> Things:
        return expected(claim for activity in self.activities if activity.is_certain for claim in activity.claims)

    def possible(self) -> Things:
        return expected([*self._leaving, *(claim for activity in self.activities for claim in activity.claims)])

    async def _watch(self) -> None:
        """Compare all the time: what is certain is there, and nothing is that is not possible."""
        while True:
            began = time.perf_counter()
            seen = without_passing(found(self.root.tree()))
            self.snapshots += 1
            if unlike := difference(seen, self.certain(), self.possible()):
                self.faults.append(unlike)
            await trio.sleep(WATCHED * (time.perf_counter() - began))

    async def settled(self) -> Difference:
        """Wait until the tree agrees with the history; what is different if it does not."""
        with trio.move_on_after(SOON):
            while self._unlike():  # noqa: ASYNC110 -- no event tells that a server has dealt with all that was sent
                await trio.sleep(0.02)
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


@asynccontextmanager
async def crowd(place: Place) -> AsyncIterator[Crowd]:
    """A server, with a client of each era at its standard input and output: the first is modern."""
    async with serving(place) as here, trio.open_nursery() as nursery:
        found = Crowd(place, here.server, here.root, here.urls, nursery)
        modern = PipeLine("modern", nursery, here.pipes, name="stdio-modern")
        legacy = PipeLine("legacy", nursery, here.pipes, modern, name="stdio-legacy")
        await found.take_in(Client(modern, "stdio", has_session=False))
        await found.take_in(Client(legacy, "stdio", has_session=True))
        # The first call over stdio that waits may run in the task that reads; those after it do not.
        await found.begin(found.clients[0], "plain")
        await found.end(next(activity for activity in found.activities if activity.kind == "plain"))
        yield found
        nursery.cancel_scope.cancel()
