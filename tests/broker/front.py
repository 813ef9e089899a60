"""A broker in the test's own process, and clients in front of it over memory."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final, cast

import trio

from callboard.actors.broker.policy import BackendSettings
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.server.session_tree import open_session
from callboard.broker import Broker
from callboard.client.routes import Target, TransportRoute, TransportRoutes
from callboard.codecs.caller import ANYBODY, Caller
from callboard.codecs.revisions import LATEST, LEGACY, Revision
from callboard.config import BackendSpec
from callboard.server import Server
from callboard.testing import EVERYTHING, Answer, Peer
from callboard.transports.memory import memory_pair

_NAMES: Final = count(1)

STUCK: Final = 7200.0
"""Seconds after which nothing will happen any more. In virtual time they pass in no time."""


def ways_in(host: Host, principal: str = ANYBODY) -> TransportRoutes:
    """How `callboard.connect` reaches a host of this process."""

    @asynccontextmanager
    async def open_way() -> AsyncIterator[Link]:
        near, far = memory_pair()
        session = await open_session(host, far, f"s-{next(_NAMES)}", principal)
        try:
            yield DuplexLink(near)
        finally:
            near.close()
            await session.address.stop()

    return TransportRoutes(None, (TransportRoute("memory", open_way),))


def backend(target: Target, name: str = "back", settings: BackendSettings | None = None, **said: Any) -> BackendSpec:
    """A backend of a broker: also a `Server`, or one that is played, which no file could name."""
    return BackendSpec(
        name=name, target=cast("Any", target), settings=settings or BackendSettings(**{"prefix": "", **said})
    )


@asynccontextmanager
async def brokered(*backends: BackendSpec | Server | TransportRoutes, **said: Any) -> AsyncIterator[Host]:
    """A broker in front of *backends*, whose clocks are Trio's."""
    specs = [one if isinstance(one, BackendSpec) else backend(one) for one in backends]
    broker = Broker(specs, **said)
    with trio.fail_after(STUCK):
        async with broker.host(parking=Parking("broker")) as host:
            yield host


@asynccontextmanager
async def peer(
    host: Host,
    revision: Revision = LATEST,
    *,
    answers: Mapping[str, Answer] | None = None,
    capabilities: dict[str, Any] | None = None,
    log_level: str | None = None,
    principal: Caller | str = ANYBODY,
) -> AsyncIterator[Peer]:
    """A client made of JSON in front of *host*."""
    near, far = memory_pair()
    session = await open_session(host, far, f"s-{next(_NAMES)}", principal)
    client = Peer(near, revision, dict(EVERYTHING) if capabilities is None else capabilities, answers or {}, log_level)
    try:
        if revision in LEGACY:
            await client.initialize()
        yield client
    finally:
        near.close()
        await session.address.stop()


def texts(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The words of some results, each of one text."""
    return [result["content"][0]["text"] for result in results]
