"""Fast lanes: requests that callboard's client has made once, sent again and again with another id.

The client opens the session and makes each request, so that a lane knows nothing of revisions, headers or sessions.
What it does itself is little: write bytes, read an answer, see whether it is one.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from callboard.actors.client.link import Link
from callboard.bench.around import WireAround
from callboard.bench.by_http import PreparedLane
from callboard.bench.engine import Lane, OpenLane
from callboard.bench.hub import Hub
from callboard.bench.lanes import ClientLane
from callboard.bench.requests import Template
from callboard.bench.sharing import SharedLane, share
from callboard.bench.work import Act, Work
from callboard.client.client import Client, Common, connect
from callboard.client.routes import ClientAccess, Target, TransportRoute, TransportRoutes, ways_to
from callboard.errors import CallboardError
from callboard.transports.client.http import HttpLink
from callboard.transports.client.pool import Origin, Pool, reach
from callboard.transports.wire import Wire

TRIAL: Final = 2.0
"""Seconds for the first answer on the fast lane. A server that leaves streams open has none, and gets the slow one."""


@attrs.define(eq=False)
class Tap:
    """Notes the requests that a link writes, for as long as that is wanted."""

    hub: Hub
    sent: list[bytes] = attrs.field(factory=list, init=False)
    is_on: bool = attrs.field(default=True, init=False)
    pool: Pool | None = attrs.field(default=None, init=False)
    """The connections of the link, if it is one over HTTP."""
    shared: SharedLane | None = attrs.field(default=None, init=False)
    """A lane on its one connection, if it has one."""

    def of(self, way: TransportRoute) -> TransportRoute:
        @asynccontextmanager
        async def open_link() -> AsyncIterator[Link]:
            async with way.open() as link:
                self.pool = None
                if isinstance(link, HttpLink):
                    self.pool, link.pool.dial = link.pool, self._dial
                self.shared = share(link, self.hub, self.note)
                try:
                    yield link
                finally:
                    if self.shared is not None:
                        self.shared.close()

        return attrs.evolve(way, open=open_link)

    def note(self, sent: bytes) -> None:
        if self.is_on:
            self.sent.append(sent)

    async def _dial(self, origin: Origin, tls: ssl.SSLContext | None) -> Wire:
        return _Tapped(await reach(origin, tls), self)


@attrs.define(eq=False)
class _Tapped(WireAround):
    """A wire, and its listener."""

    tap: Tap

    async def send(self, data: bytes) -> None:
        if data.startswith(b"POST "):
            self.tap.note(data)
        await self.wire.send(data)


def by_requests(
    target: Target, options: Common, work: Work, on_open: Callable[[Client, bool], None], hub: Hub
) -> OpenLane:
    """Sessions at *target*, each of them fast if it can be; *on_open* is given the client, and whether it is. The *hub*
    is running."""
    access = ClientAccess(
        headers=options.get("headers") or {},
        tls=options.get("tls"),
        auth=options.get("auth"),
        on_stderr=options.get("on_stderr"),
    )

    @asynccontextmanager
    async def open_lane() -> AsyncIterator[Lane]:
        tap, ways = Tap(hub), ways_to(target, access)
        tapped = TransportRoutes(ways.key, tuple(tap.of(way) for way in ways.ways))
        async with connect(tapped, **options) as client:
            fast = await _prepared(client, tap, work)
            tap.is_on = False
            on_open(client, fast is not None)
            try:
                yield ClientLane(client) if fast is None else fast
            finally:
                if fast is not None:
                    fast.close()

    return open_lane


async def _prepared(client: Client, tap: Tap, work: Work) -> PreparedLane | SharedLane | None:
    """The fast lane, once each request has been answered on it; None if there is none to this server."""
    templates: dict[Act, Template] = {}
    for act in work.acts:
        tap.sent.clear()
        try:
            await act.do(client)
        except CallboardError:
            return None  # it is told, at the next try
        template = Template.of(tap.sent[0]) if len(tap.sent) == 1 else None
        if template is None:
            return None
        templates[act] = template
    lane: PreparedLane | SharedLane
    if tap.shared is not None:
        lane, tap.shared.templates = tap.shared, templates
    elif tap.pool is not None:
        lane = PreparedLane(tap.hub, tap.pool.origin, tap.pool.tls, templates)
    else:
        return None
    return lane if await _works(lane, work) else None


async def _works(lane: PreparedLane | SharedLane, work: Work) -> bool:
    with trio.move_on_after(TRIAL):
        try:
            for act in work.acts:
                await lane.do(act)
        except CallboardError:
            pass
        else:
            return True
    if isinstance(lane, PreparedLane):
        lane.close()  # the other is the client's way, too
    return False
