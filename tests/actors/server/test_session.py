"""What one connection does: both eras on it, ids and tokens, cancellation, changes."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.changes import ListChanged, ResourceUpdated
from callboard.actors.server.exchange import Exchange
from callboard.codecs.revisions import LEGACY, CallToolResult, Revision
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5
from callboard.testing.peer import Peer, Refusal
from tests.actors.server.stage import Stage, said, stage, text

EVERY = pytest.mark.parametrize("revision", list(Revision), ids=str)
EACH_LEGACY = pytest.mark.parametrize("revision", sorted(LEGACY), ids=str)


async def greet(exchange: Exchange) -> CallToolResult:
    return text("hello")


async def wait_for_ever(exchange: Exchange) -> CallToolResult:
    await trio.sleep_forever()
    raise AssertionError


def requests_alive(stage: Stage) -> int:
    def count(node: Any) -> int:
        return (node.kind in ("RequestActor", "Subscription")) + sum(map(count, node.children))

    return count(stage.root.tree())


@pytest.mark.requirement("M001", "L001")
@EVERY
async def test_every_revision_lists_and_calls(revision: Revision) -> None:
    async with stage({"greet": greet}) as here:
        peer = await here.peer(revision)
        listed = await peer.request("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["greet"]
        assert said(await peer.call("greet")) == "hello"
        assert ("resultType" in listed) == (revision is R5)
        assert ("ttlMs" in listed) == (revision is R5)


async def test_both_eras_share_one_connection() -> None:
    async with stage({"greet": greet}) as here:
        legacy = await here.peer(R4)
        modern = Peer(legacy.connection, R5)
        modern._ids = legacy._ids  # one connection, one set of ids
        assert "resultType" not in await legacy.call("greet")
        assert (await modern.call("greet"))["resultType"] == "complete"
        assert "resultType" not in await legacy.call("greet")


@pytest.mark.requirement("L024", "L025")
@pytest.mark.parametrize(
    ("asked", "agreed"),
    [("2024-11-05", R1), ("2025-03-26", R2), ("2025-06-18", R3), ("2025-11-25", R4), ("2026-07-28", R4), ("1999", R4)],
)
async def test_a_handshake_agrees_on_what_was_asked_for_or_on_the_newest(asked: str, agreed: Revision) -> None:
    async with stage({}) as here:
        peer = Peer(await here.connect(), R4)
        result = await peer.request(
            "initialize", protocolVersion=asked, capabilities={}, clientInfo={"name": "c", "version": "1"}
        )
        assert result["protocolVersion"] == agreed.value


@pytest.mark.requirement("L019")
async def test_nothing_but_a_ping_comes_before_the_handshake() -> None:
    async with stage({}) as here:
        peer = Peer(await here.connect(), R4)
        assert await peer.request("ping") == {}
        with pytest.raises(Refusal, match="-32600"):
            await peer.request("tools/list")


@pytest.mark.requirement("M059")
async def test_an_unknown_modern_version_is_told_what_is_spoken() -> None:
    async with stage({}) as here:
        peer = await here.peer(R5)
        with pytest.raises(Refusal) as refused:
            await peer.request("tools/list", meta={"io.modelcontextprotocol/protocolVersion": "v999"})
        assert refused.value.code == -32022
        assert refused.value.data == {"supported": sorted(Revision), "requested": "v999"}


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "unknown/method"])
async def test_a_modern_request_has_no_legacy_methods(method: str) -> None:
    async with stage({}) as here:
        peer = await here.peer(R5)
        with pytest.raises(Refusal, match="-32601"):
            await peer.request(method)


@EACH_LEGACY
async def test_a_legacy_session_has_no_modern_methods(revision: Revision) -> None:
    async with stage({}) as here:
        peer = await here.peer(revision)
        with pytest.raises(Refusal, match="-32601"):
            await peer.request("server/discover")


# Cancellation


@pytest.mark.requirement("M078", "M079", "M160", "L077")
@EVERY
async def test_a_cancelled_request_is_never_answered(revision: Revision, autojump_clock: MockClock) -> None:
    async with stage({"wait": wait_for_ever, "greet": greet}) as here:
        peer = await here.peer(revision)
        request_id = await peer.begin("tools/call", name="wait", arguments={})
        await wait_all_tasks_blocked()
        assert requests_alive(here) == 1
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": request_id}})
        await wait_all_tasks_blocked()
        assert requests_alive(here) == 0
        assert said(await peer.call("greet")) == "hello"
        assert not peer.heard


@EVERY
async def test_a_hang_up_ends_all_that_was_in_flight(revision: Revision, autojump_clock: MockClock) -> None:
    async with stage({"wait": wait_for_ever}) as here:
        peer = await here.peer(revision)
        for _ in range(3):
            await peer.begin("tools/call", name="wait", arguments={})
        await wait_all_tasks_blocked()
        assert requests_alive(here) == 3
        peer.connection.close()
        await wait_all_tasks_blocked()
        assert requests_alive(here) == 0
        assert here.root.supervisor_of("sessions").tree().children == ()


@pytest.mark.requirement("M163", "M165", "L033")
@EVERY
async def test_a_handler_has_ten_minutes_and_not_a_moment_more(revision: Revision, autojump_clock: MockClock) -> None:
    async with stage({"wait": wait_for_ever}) as here:
        peer = await here.peer(revision)
        started = trio.current_time()
        with pytest.raises(Refusal, match="-31002"):
            await peer.call("wait")
        assert trio.current_time() - started == 600


@pytest.mark.requirement("L080")
async def test_a_cancellation_of_nothing_is_a_race_and_not_a_fault() -> None:
    async with stage({"greet": greet}) as here:
        peer = await here.peer(R4)
        params: Any
        for params in ({"requestId": 99}, {"requestId": "1"}, {}, {"requestId": []}):
            await peer.say({"method": "notifications/cancelled", "params": params})
        assert said(await peer.call("greet")) == "hello"


# Ids and tokens


async def test_a_second_request_with_an_id_in_flight_leaves_the_first_alone(autojump_clock: MockClock) -> None:
    async def slow(exchange: Exchange) -> CallToolResult:
        await trio.sleep(1)
        return text("first")

    async with stage({"slow": slow}) as here:
        peer = await here.peer(R4)
        request_id = await peer.begin("tools/call", name="slow", arguments={})
        await peer.say({"id": request_id, "method": "tools/list"})
        refusal = await peer.hear()
        assert refusal["error"]["code"] == -32600
        assert "id" not in refusal
        assert said(await peer.finish(request_id)) == "first"


async def test_1_and_the_string_1_are_two_requests(autojump_clock: MockClock) -> None:
    async with stage({"wait": wait_for_ever}) as here:
        peer = await here.peer(R4)
        for request_id in (7, "7"):
            await peer.say({"id": request_id, "method": "tools/call", "params": {"name": "wait"}})
        await wait_all_tasks_blocked()
        assert requests_alive(here) == 2
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": "7"}})
        await wait_all_tasks_blocked()
        assert requests_alive(here) == 1


async def test_a_progress_token_in_use_is_refused(autojump_clock: MockClock) -> None:
    async with stage({"wait": wait_for_ever, "greet": greet}) as here:
        peer = await here.peer(R4)
        await peer.begin("tools/call", name="wait", meta={"progressToken": "t"})
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("tools/call", name="greet", meta={"progressToken": "t"})


@pytest.mark.requirement("L078")
async def test_answers_to_nobody_are_ignored() -> None:
    async with stage({"greet": greet}) as here:
        peer = await here.peer(R4)
        await peer.say({"id": 12345, "result": {}})
        await peer.say({"id": 12345, "error": {"code": 1, "message": "m"}})
        assert said(await peer.call("greet")) == "hello"


async def test_a_frame_that_is_not_json_is_answered_and_the_connection_goes_on() -> None:
    async with stage({"greet": greet}) as here:
        peer = await here.peer(R4)
        await peer.connection.send(b"{nonsense")
        assert (await peer.hear())["error"]["code"] == -32700
        assert said(await peer.call("greet")) == "hello"


# Changes


@EACH_LEGACY
async def test_a_legacy_session_hears_of_lists_unasked_and_of_resources_it_asked_for(revision: Revision) -> None:
    async with stage({"greet": greet}) as here:
        peer = await here.peer(revision)
        await peer.request("resources/subscribe", uri="file:///a")
        for change in (ListChanged("tools"), ResourceUpdated("file:///a"), ResourceUpdated("file:///b")):
            here.host.topics.publish(change)
        await peer.call("greet")
        await peer.request("resources/unsubscribe", uri="file:///a")
        here.host.topics.publish(ResourceUpdated("file:///a"))
        await peer.call("greet")
        assert [message["method"] for message in peer.heard] == [
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        ]


@pytest.mark.requirement("M040", "M199", "M200", "M202")
async def test_a_listener_is_acknowledged_first_and_hears_only_what_it_asked_for() -> None:
    async with stage({}) as here:
        peer = await here.peer(R5)
        wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["file:///a"]}
        request_id = await peer.begin("subscriptions/listen", notifications=wanted)
        await wait_all_tasks_blocked()
        here.host.topics.publish(ListChanged("resources"))
        here.host.topics.publish(ListChanged("tools"))
        here.host.topics.publish(ResourceUpdated("file:///a/below"))
        heard = [await peer.hear() for _ in range(3)]
        assert [message["method"] for message in heard] == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        ]
        # prompts are not offered, and so not granted
        assert heard[0]["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["file:///a"],
        }
        for message in heard:
            assert message["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": request_id}


@pytest.mark.requirement("M156", "M204")
async def test_a_server_that_stops_closes_its_subscriptions_with_a_result() -> None:
    async with stage({}) as here:
        peer = await here.peer(R5)
        request_id = await peer.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await peer.hear())["method"] == "notifications/subscriptions/acknowledged"
        (listener,) = here.root.supervisor_of("requests").tree().children
        await here.root.supervisor_of("requests").child(listener.name).stop()
        result = await peer.finish(request_id)
        assert result["_meta"]["io.modelcontextprotocol/subscriptionId"] == request_id
        assert result["resultType"] == "complete"


async def test_a_hundred_changes_at_once_are_one(autojump_clock: MockClock) -> None:
    async with stage({}) as here:
        peer = await here.peer(R5)
        await peer.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        await peer.hear()
        for _ in range(100):
            here.host.topics.publish(ListChanged("tools"))
        assert (await peer.hear())["method"] == "notifications/tools/list_changed"
        with trio.move_on_after(60):
            pytest.fail(f"heard more: {await peer.hear()}")


async def test_a_listener_that_lets_a_thousand_changes_pile_up_is_cut_off_and_nobody_else(
    autojump_clock: MockClock,
) -> None:
    uris = [f"file:///{number}" for number in range(3000)]
    async with stage({"greet": greet}) as here:
        slow, quick = await here.peer(R5), await here.peer(R5)
        for peer in (slow, quick):
            await peer.begin("subscriptions/listen", notifications={"resourceSubscriptions": uris})
        await wait_all_tasks_blocked()
        heard = 0
        for number, uri in enumerate(uris):
            here.host.topics.publish(ResourceUpdated(uri))
            if number % 10 == 9:  # the quick one reads, the slow one does not
                while heard < number:
                    heard += (await quick.hear())["method"] == "notifications/resources/updated"
        await wait_all_tasks_blocked()
        assert requests_alive(here) == 1
        assert heard >= len(uris) - 10
