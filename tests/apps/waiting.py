"""A server whose calls wait until they are released, and say on standard error how they end: `call LABEL EVENT`.

`server` is as any other. `capped` gives a request `CAP` seconds, and a parked one `PARKED` until its retry.
"""

import json
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from callboard import Context, Server
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.supervisor import live_trees

CAP: Final = 0.5
PARKED: Final = 1.0


@attrs.frozen
class Name:
    name: str


@attrs.frozen
class Gate:
    """What the calls of one label wait for, in a task or in a thread."""

    tasks: trio.Event = attrs.field(factory=trio.Event)
    threads: threading.Event = attrs.field(factory=threading.Event)


class Capped(Server):
    """A server with deadlines of its own. There is no option for them, so they are set where the server is run."""

    @asynccontextmanager
    async def host(self, *, parking: Parking | None = None) -> AsyncIterator[Host]:
        if parking is not None:
            parking.ttl = PARKED
        async with super().host(parking=parking) as host:
            host.cap = CAP
            yield host


gates: defaultdict[str, Gate] = defaultdict(Gate)


def note(label: str, event: str) -> None:
    sys.stderr.write(f"call {label} {event}\n")


async def wait(label: str) -> str:
    note(label, "started")
    try:
        await gates[label].tasks.wait()
    except trio.Cancelled:
        note(label, "cancelled")
        raise
    note(label, "finished")
    return label


def offer_tools(server: Server) -> Server:
    """Give *server* a tool of each kind, and those by which a test holds the strings."""

    @server.tool
    async def plain(label: str) -> str:
        return await wait(label)

    @server.tool
    async def ctx(label: str, *, ctx: Context) -> str:
        return await wait(label)

    @server.tool
    def sync(label: str) -> str:
        note(label, "started")
        gates[label].threads.wait()
        note(label, "finished")
        return label

    @server.tool
    async def parked(label: str, *, ctx: Context) -> str:
        note(label, "started")
        try:
            await ctx.elicit("Who?", Name)
        except trio.Cancelled:
            note(label, "cancelled")
            raise
        note(label, "finished")
        return label

    @server.tool
    async def release(labels: list[str]) -> str:
        for label in labels:
            gates[label].tasks.set()
            gates[label].threads.set()
        return "released"

    @server.resource("waiting://running", mime_type="application/json")
    async def running() -> str:
        """How many calls are in flight, as the supervision tree has it, those not counted that are parked."""
        (root,) = live_trees()
        requests = [node for node in root.tree().walk() if node.kind == "RequestActor"]
        calls = [node for node in requests if node.facts.get("method") == "tools/call"]
        return json.dumps(sum(node.state != "parked" for node in calls))

    return server


server = offer_tools(Server("waiting", version="1"))
capped = offer_tools(Capped("waiting", version="1"))
