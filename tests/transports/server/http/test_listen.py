"""`subscriptions/listen` over HTTP: acknowledged first, kept alive, and ended with a word."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import fan_out
from callboard.actors.server.drain import drain
from callboard.transports.limits import Settings
from callboard.transports.server.http.keepalive import BREATH, COMMENT, KeepAlive
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import META, Client, Place, Stream, serving, settle

SUBSCRIPTION = f"{META}subscriptionId"


async def listen(place: Place, *, id: Any = "mine", **wanted: Any) -> tuple[Client, Stream]:
    """A stream that was acknowledged."""
    client = await place.connect()
    await client.send(client.modern("subscriptions/listen", id=id, notifications=wanted))
    stream = await client.stream_of()
    assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
    return client, stream


@pytest.mark.parametrize("id", [7, "7"])
async def test_the_acknowledgement_comes_first_and_everything_names_its_subscription(id: int | str) -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}
        await client.send(client.modern("subscriptions/listen", id=id, notifications=wanted))
        stream = await client.stream_of()
        house.server.notify_changed("tools")
        house.server.notify_changed("prompts")
        house.server.notify_updated("note://a")
        house.server.notify_updated("note://b")
        acknowledged, first, second = [await stream.message() for _ in range(3)]
        assert acknowledged["params"]["notifications"] == wanted
        assert [first["method"], second["method"]] == [
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        ]
        subscription = [message["params"]["_meta"][SUBSCRIPTION] for message in (acknowledged, first, second)]
        assert subscription == [id] * 3
        assert [type(named) for named in subscription] == [type(id)] * 3


async def test_many_listen_at_once_and_each_hears_what_it_asked_for() -> None:
    house = open_house()
    async with serving(house.server) as place:
        streams = [(await listen(place, resourceSubscriptions=[f"note://{n}"]))[1] for n in range(20)]
        for number in reversed(range(20)):
            house.server.notify_updated(f"note://{number}")
        for number, stream in enumerate(streams):
            assert (await stream.message())["params"]["uri"] == f"note://{number}"


async def test_a_quiet_stream_is_kept_alive_by_comments() -> None:
    async with serving(open_house().server, Settings(comment_every=0.1, write_time=1)) as place:
        _, stream = await listen(place, toolsListChanged=True)
        started = trio.current_time()
        await stream.comment()
        await stream.comment()
        assert trio.current_time() - started < 2 * (0.1 + BREATH) + 1
        assert stream._events == []


async def test_who_leaves_is_forgotten() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client, _ = await listen(place, toolsListChanged=True)
        assert len(place.host.topics) == 1
        await client.aclose()
        await settle()
        assert len(place.host.topics) == 0
        assert place.connections == 0
        assert place.host.root.supervisor_of("requests").child_count == 0


async def test_when_the_server_drains_each_listener_gets_the_closing_result_and_the_end() -> None:
    async with serving(open_house().server) as place:
        listeners = [await listen(place, id=number, toolsListChanged=True) for number in range(5)]
        await drain(place.host, edges=[place.edge.address], within=2, spread=0)
        for number, (client, stream) in enumerate(listeners):
            closing = await stream.message()
            assert closing["id"] == number
            assert closing["result"]["resultType"] == "complete"
            assert closing["result"]["_meta"][SUBSCRIPTION] == number
            assert await stream.event() is None
            assert await client.ended() == b""


async def test_without_a_drain_a_stream_is_cut_in_time() -> None:
    async with serving(open_house().server, Settings(write_time=0.3)) as place:
        client, _ = await listen(place, toolsListChanged=True)
        started = trio.current_time()
        await place.edge.address.stop()
        assert trio.current_time() - started < 1.5
        await client.ended()


async def test_a_listener_that_cannot_be_told_everything_is_told_that_it_must_read_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More different changes at once than are kept for anybody: the stream ends, and does not just fall silent."""
    monkeypatch.setattr(fan_out, "HELD", 100)
    house = open_house()
    async with serving(house.server) as place:
        uris = [f"note://{number}" for number in range(1500)]
        client, stream = await listen(place, resourceSubscriptions=uris)
        for uri in uris:  # without a pause: nobody can have been told yet
            house.server.notify_updated(uri)
        *_, last = await stream.rest()
        assert last["id"] == "mine"
        assert last["error"]["code"] == -31003
        assert (await client.call("echo", text="x")).result
        await settle()
        assert len(place.host.topics) == 0


class Quiet:
    """A response that counts what it is sent."""

    def __init__(self) -> None:
        self.beats: list[float] = []
        self.is_over = False

    def try_write(self, data: bytes) -> bool:
        assert data == COMMENT
        self.beats.append(trio.current_time())
        return True


async def test_every_stream_beats_by_itself(autojump_clock: MockClock) -> None:
    pulse = KeepAlive(15.0)
    early, late, ended, gone = [Quiet() for _ in range(4)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pulse.run)
        await wait_all_tasks_blocked()
        pulse.add(early)  # type: ignore[arg-type]  # no more of it is needed
        pulse.add(ended)  # type: ignore[arg-type]
        pulse.add(gone)  # type: ignore[arg-type]
        await trio.sleep(7)
        pulse.add(late)  # type: ignore[arg-type]
        await trio.sleep(10)
        ended.is_over = True
        pulse.discard(gone)  # type: ignore[arg-type]
        pulse.discard(gone)  # type: ignore[arg-type]
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert early.beats == [15, 30, 45]
    assert late.beats == [22, 37]
    assert ended.beats == gone.beats == [15]
    assert pulse.facts() == {"streams": 2}


async def test_nobody_is_woken_more_often_than_it_pays(autojump_clock: MockClock) -> None:
    pulse = KeepAlive(0.001)
    stream = Quiet()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pulse.run)
        pulse.add(stream)  # type: ignore[arg-type]
        await trio.sleep(10 * BREATH)
        nursery.cancel_scope.cancel()
    assert len(stream.beats) <= 10
