"""Spoiled requests to the real listener, by clients that leave when they like: nothing crashes, and nothing stays."""

import os
import random

import trio
from structlog.testing import capture_logs

from callboard import Revision
from callboard.actors.server.drain import drain
from callboard.transports.limits import Settings
from tests.fuzz.mutate import mutated
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import OpenSession, initialize
from tests.transports.server.http.stage import META, Client, Place, serving, settle

COUNT = int(os.environ.get("CALLBOARD_CHAOS_CLIENTS", "400"))
SEED = int(os.environ.get("CALLBOARD_FUZZ_SEED", "2026"))
IMPATIENT = Settings(
    header_time=0.2,
    body_idle=0.2,
    body_time=0.4,
    keep_alive=0.3,
    write_time=0.5,
    max_frame=20_000,
    max_header=8_000,
    max_streams=4,
    max_events=20,
    max_sessions=400,
)


def corpus(client: Client, session: OpenSession) -> list[bytes]:
    """What a client of either era may send."""
    log = {f"{META}logLevel": "info", "progressToken": 1}
    modern = [
        client.modern("server/discover"),
        client.modern("tools/list"),
        client.modern("tools/call", name="echo", arguments={"text": "x"}),
        client.modern("tools/call", "Mcp-Param-City: Oslo", name="route", arguments={"city": "Oslo"}),
        client.modern("tools/call", name="errand", arguments={"name": "shut"}),
        client.modern("tools/call", name="work", arguments={"name": "shut"}),
        client.modern("tools/call", name="chat", arguments={"words": ["a", "b"], "name": "shut"}, meta=log),
        client.modern("tools/call", name="chat", arguments={"words": ["a", "b"]}, meta=log),
        client.modern("tools/call", name="ask", arguments={}),
        client.modern("subscriptions/listen", notifications={"toolsListChanged": True}),
    ]
    legacy = [
        client.post(initialize(Revision.V2025_11_25)),
        session.post(session.request("tools/call", name="echo", arguments={"text": "x"})),
        session.post(session.request("tools/call", name="errand", arguments={"name": "shut"})),
        session.post(session.request("tools/call", name="chat", arguments={"words": ["a"], "name": "shut"})),
        session.post(session.request("tools/call", name="poll", arguments={"words": ["a"], "name": "shut"})),
        session.post(session.request("tools/call", name="folders", arguments={})),
        session.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}),
        session.post({"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}),
        session.get(),
        session.get("1-1"),
        session.get("0-1"),
    ]
    return [*modern, *legacy, modern[0] + modern[2] + modern[6], legacy[1] + modern[4] + legacy[3]]


async def visit(place: Place, draw: random.Random, requests: list[bytes]) -> None:
    """One client: says something, most of it spoiled, listens for a while or not, and leaves in one way or another."""
    client = await place.connect()
    try:
        for _ in range(draw.choice((1, 1, 2, 4))):
            data = draw.choice(requests) if draw.random() < 0.3 else mutated(draw, requests)
            at = draw.randrange(len(data) + 1)
            await client.send(data[:at])
            if draw.random() < 0.3:
                await trio.sleep(draw.choice((0, 0.01, 0.1)))
            await client.send(data[at:])
        with trio.move_on_after(draw.choice((0, 0.01, 0.2))):
            await client.ended()
    except trio.BrokenResourceError:
        pass  # it was sent away
    if draw.random() < 0.3:
        client.reset()
    await client.aclose()


async def test_nothing_that_clients_do_crashes_anything_or_stays() -> None:
    house, draw = open_house(), random.Random(SEED)
    with capture_logs() as logs:
        async with serving(house.server, IMPATIENT) as place:
            session = await OpenSession.open(place, Revision.V2025_11_25)
            requests = corpus(session.client, session)
            for _ in range(COUNT // 40):
                async with trio.open_nursery() as nursery:
                    for _ in range(40):
                        nursery.start_soon(visit, place, random.Random(draw.random()), requests)
                if draw.random() < 0.5:
                    house.server.notify_changed("tools")
                if draw.random() < 0.2 and (await session.delete()).status == 204:
                    session.id = (await OpenSession.open(place, Revision.V2025_11_25)).id
                    requests = corpus(session.client, session)
            good = await place.connect()
            assert (await good.call("echo", text="x")).result
            await good.aclose()
            await session.client.aclose()
            for gate in house.gates.values():
                gate.set()
            with trio.fail_after(5):
                while place.connections:
                    await settle()
            await settle()
            in_flight = [child.facts for child in place.host.root.supervisor_of("requests").tree().children]
            assert [facts for facts in in_flight if facts.get("round") is None] == []  # but those that may be retried
            assert place.endpoint.pulse.facts() == {"streams": 0}
            await drain(place.host, edges=[place.edge.address], within=1, spread=0)
            assert len(place.endpoint.legacy) == 0
            assert place.host.in_flight.total == 0
    crashed = [entry for entry in logs if entry["event"] in ("actor_crashed", "actor_failed", "request_failed")]
    assert crashed == []
