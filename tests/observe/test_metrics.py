"""Metrics over HTTP: in the form that the client takes, and as the reference parsers read them."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from callboard import Revision, Server, connect
from callboard.broker import Broker
from callboard.broker.reload import Reloader
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import Leaving, refused_as
from callboard.codecs.revisions import LATEST
from callboard.config import read_configuration
from callboard.errors import DRAINING, Draining, HeaderMismatch, Overloaded
from callboard.observe import metrics
from callboard.observe.journal import Journal
from callboard.observe.metrics import OPEN_METRICS, TEXT, Family, Sample, render
from callboard.observe.rows import MOST_CHILDREN
from callboard.observe.view import ServerView
from callboard.serve.options import Ready
from callboard.serve.run import serve
from callboard.supervisor import Actor, ChildSpec
from tests.broker.front import backend, ways_in
from tests.observe.test_show_room import Place
from tests.transports.server.http.sessions import OpenSession, initialize
from tests.transports.server.http.stage import serving

LAST = Revision.V2025_11_25

app = Server("app")


@app.tool
async def echo(text: str) -> str:
    return text


def _opened(text: str) -> Iterable[Metric]:
    return open_parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call, no-any-return]


async def test_they_come_in_the_form_that_the_client_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PIECE", 1000)  # so they come in many pieces
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[Ready]) -> None:
                await serve(app, http=0, admin=0, task_status=task_status)

            place = Place(await nursery.start(run))
            async with connect(place.urls["http"]) as client:
                await client.call("echo", text="x")
            plain = await place.ask("/metrics", "accept: text/plain;version=0.0.4")
            opened = await place.ask("/metrics", f"accept: {OPEN_METRICS.decode()};q=0.5,text/plain;q=0.3")
            nursery.cancel_scope.cancel()
    assert (plain.headers["content-type"], opened.headers["content-type"]) == (TEXT.decode(), OPEN_METRICS.decode())
    known = {one.name: one for one in text_string_to_metric_families(plain.body.decode())}
    found = {one.name: one for one in _opened(opened.body.decode())}
    assert found["process_cpu_seconds"].type == "counter"
    assert found["callboard"].type == "info"
    assert len(known) == len(found)
    name = "mcp_server_operation_duration_seconds"
    counts = [
        sorted((*sorted(one.labels.items()), one.value) for one in some[name].samples if one.name == f"{name}_count")
        for some in (known, found)
    ]
    assert counts[0] == counts[1]


async def test_no_piece_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one would end the response."""
    monkeypatch.setattr(metrics, "PIECE", 1)
    some = Family("x", "gauge", "X.", [Sample({"name": 'a "b"\\\n\ud800'}, 1.0)])
    assert await render([]) == [b""]
    (piece,) = await render([some])
    assert piece == b'# HELP x X.\n# TYPE x gauge\nx{name="a \\"b\\"\\\\\\n?"} 1\n'


async def test_restarts_of_actors_never_fall(autojump_clock: MockClock) -> None:
    class Weak(Actor[None]):
        mailbox = None
        lives = 0

        async def run(self) -> None:
            Weak.lives += 1
            if Weak.lives <= 2:
                raise ValueError
            await trio.sleep_forever()

    async def restarts(view: ServerView) -> float | None:
        for family in text_string_to_metric_families(b"".join(await view.metrics()).decode()):
            for sample in family.samples:
                if sample.name == "callboard_actor_restarts_total" and sample.labels["kind"] == "Weak":
                    return sample.value
        return None

    async with app.host() as host:
        view = ServerView(host, app)
        address = await host.root.add(ChildSpec(name="weak", actor=Weak))
        await trio.sleep(60)
        assert await restarts(view) == 2
        address.begin_stop()
        await address.wait_ended()
        assert await restarts(view) == 2


async def test_actors_are_counted_though_only_some_are_looked_at(tmp_path: Path, autojump_clock: MockClock) -> None:
    class Idle(Actor[None]):
        mailbox = None

        async def run(self) -> None:
            await trio.sleep_forever()

    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {}}')
    broker = Broker([backend(app)])
    async with broker.host() as host:
        view = ServerView(host, broker)
        view.begin()
        for number in range(3 * MOST_CHILDREN):
            host.requests.spawn(Idle(), name=f"idle-{number}")
        reloader = Reloader(broker, read_configuration(file))
        reloader.rejected = 3
        host.root.spawn(reloader, name="configuration", shutdown=0)
        async with connect(ways_in(host)) as client:
            await client.call("echo", text="x")
            families = {family.name: family for family in await view.families()}
    actors = {one.labels["kind"]: one.value for one in families["callboard_actors"].samples}
    assert (actors["Idle"], actors["Backend"]) == (3 * MOST_CHILDREN, 1)
    reloads = {one.labels["outcome"]: one.value for one in families["callboard_config_reloads_total"].samples}
    assert reloads == {"reloaded": 0, "rejected": 3}
    assert families["callboard_config_last_reload_timestamp_seconds"].samples[0].value == reloader.reloaded_at
    (behind,) = families["mcp_client_operation_duration_seconds"].samples
    assert (behind.labels["server"], behind.labels["mcp_protocol_version"]) == ("back", LATEST.value)


async def test_refusals_while_it_drains_have_a_reason_of_their_own() -> None:
    async with serving(app) as place:
        session = await OpenSession.open(place, LAST)
        journal = Journal(place.host.offer.owner_of)
        place.host.observer = journal
        place.host.begin_drain()
        client = await place.connect()
        for message in (
            client.post(initialize(LAST)),
            client.modern("tools/call", name="echo", arguments={"text": "x"}),
        ):
            await client.send(message)
            assert (await client.answer()).status == 503
        assert (await session.call("echo", text="x")).code == DRAINING
    assert journal.refused == {"draining": 2}
    assert journal.ended == {str(DRAINING): 1}


def test_every_reason_of_a_refusal_is_one_of_few_words() -> None:
    reasons = {refused_as(HttpRefusal(status, "")) for status in range(400, 600)}
    reasons |= {refused_as(error) for error in (Draining(), Leaving(), HeaderMismatch(""), Overloaded(""))}
    words = {"auth", "origin", "host", "slow", "size", "header", "unknown", "quota", "overload", "draining", "invalid"}
    assert reasons == words
