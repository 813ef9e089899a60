"""What a backend's HTTP errors say in their own words is for the operator: it may name the broker's credentials."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import structlog
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Hear, Link, OutgoingRequest
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.envelope import ErrorResponse, ResultResponse
from callboard.codecs.revisions.revision import R4
from callboard.errors import HttpRefused
from callboard.testing import Peer, Refusal
from tests.broker.back import Back
from tests.broker.front import brokered, peer

CANARY = "sk-canary"


class Refusing(DuplexLink):
    """Has its calls refused by HTTP."""

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        if outgoing.method == "tools/call":
            raise HttpRefused(401, f"no such token: {CANARY}")
        return await super().ask(outgoing, hear)


@attrs.define
class Behind:
    """A backend behind a gateway which lets nobody in any more, or no calls."""

    back: Back = attrs.field(factory=lambda: Back(R4))
    is_shut: bool = False

    @property
    def ways(self) -> TransportRoutes:
        return TransportRoutes(None, (TransportRoute("http", self._open),))

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Link]:
        if self.is_shut:
            raise HttpRefused(401, f"no such token: {CANARY}")
        [way] = self.back.ways.ways
        async with way.open() as link:
            assert isinstance(link, DuplexLink)
            yield Refusing(link.connection)


async def refusal(client: Peer) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await client.request("tools/call", name="book", arguments={})
    return refused.value


async def test_a_client_hears_that_its_call_was_refused_and_not_in_which_words(autojump_clock: MockClock) -> None:
    async with brokered(Behind().ways) as host, peer(host, R4) as client:
        said = await refusal(client)
        assert "401" in said.message
        assert CANARY not in f"{said.message} {said.data}"


async def test_nor_in_which_words_a_backend_was_told_to_stay_away(autojump_clock: MockClock) -> None:
    behind = Behind()
    with structlog.testing.capture_logs() as logs:
        async with brokered(behind.ways) as host, peer(host, R4, capabilities={}) as client:
            behind.is_shut = True
            behind.back.lines[0].hang_up()
            await wait_all_tasks_blocked()
            said = await refusal(client)
            assert "401" in said.message
            assert CANARY not in f"{said.message} {said.data}"
            assert CANARY not in str(host.root.tree())
    assert any("401" in str(line) for line in logs)
    assert CANARY not in str(logs)
