"""What clients of each era see of a broker: what it is, what it refuses, and what a backend's errors become."""

from typing import Any

import pytest
from trio.testing import MockClock

from callboard.codecs.revisions import LEGACY, Revision, meta
from callboard.codecs.revisions.revision import R1, R3, R4, R5
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, text, tool
from tests.broker.front import backend, brokered, peer
from tests.client.stage import Json

LEGACIES = pytest.mark.parametrize("front", sorted(LEGACY))
CROSSED = pytest.mark.parametrize(("front", "behind"), [(R1, R5), (R4, R5), (R5, R1), (R5, R4), (R5, R5), (R3, R4)])


async def code_of(client: Peer, method: str, **params: Any) -> int:
    with pytest.raises(Refusal) as refused:
        await client.request(method, **params)
    return refused.value.code


# What it is.


async def test_a_modern_client_discovers_the_broker_and_not_a_backend(autojump_clock: MockClock) -> None:
    async with brokered(Back(R1).ways, name="hub", version="9") as host, peer(host) as client:
        found = await client.request("server/discover")
        assert found["supportedVersions"] == sorted(Revision)
        assert found["_meta"][meta.SERVER_INFO] == {"name": "hub", "version": "9"}
        assert (found["ttlMs"], found["cacheScope"]) == (0, "private")
        assert "tasks" not in found["capabilities"]


@LEGACIES
async def test_a_legacy_client_shakes_hands_with_the_broker_whatever_is_behind(
    front: Revision, autojump_clock: MockClock
) -> None:
    for behind in (R1, R5):
        async with brokered(Back(behind).ways, name="hub") as host, peer(host, front) as client:
            assert client.agreed["protocolVersion"] == front
            assert client.agreed["serverInfo"]["name"] == "hub"
            assert ("completions" in client.agreed["capabilities"]) is (front is not R1)
            assert await client.request("ping") == {}


# What is refused.


@LEGACIES
async def test_legacy_clients_have_no_modern_methods(front: Revision, autojump_clock: MockClock) -> None:
    async with brokered(Back(R5).ways) as host, peer(host, front) as client:
        for method in ("server/discover", "subscriptions/listen", "no/such", "tasks/get"):
            assert await code_of(client, method) == -32601


async def test_modern_clients_have_no_methods_of_sessions(autojump_clock: MockClock) -> None:
    async with brokered(Back(R4).ways) as host, peer(host) as client:
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/result", "tasks/list"):
            assert await code_of(client, method) == -32601


async def test_a_task_that_a_modern_client_asks_for_is_ignored(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("tools/call", name="book", task={"ttl": 1})
        line, request = await back.hear()
        assert "task" not in request["params"]
        await line.answer(request, **text("done"))
        await client.finish(begun)


@CROSSED
async def test_what_nobody_offers_is_refused_before_anybody_is_asked(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front) as client:
        assert await code_of(client, "tools/call", name="nobody") == -32602
        assert await code_of(client, "prompts/get", name="nobody") == -32602
        ref = {"type": "ref/resource", "uri": "no://template"}
        assert await code_of(client, "completion/complete", ref=ref, argument={"name": "x", "value": ""}) == -32602
        assert not back.told("tools/call")


async def test_a_resource_that_could_be_two_backends_is_refused_with_both(autojump_clock: MockClock) -> None:
    both = backend(Back(R4).ways, name="a"), backend(Back(R5).ways, name="b")
    async with brokered(*both) as host, peer(host, R4) as client:
        with pytest.raises(Refusal) as refused:
            await client.request("resources/read", uri="notes://one")
        assert refused.value.code == -32602
        named = [one.partition("/notes")[0] for one in refused.value.data["candidates"]]
        assert named == ["callboard://a", "callboard://b"]


async def test_more_than_a_backend_takes_at_once_is_refused_at_once(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(backend(back.ways, max_in_flight=1)) as host, peer(host, capabilities={}) as client:
        begun = await client.begin("tools/call", name="book")
        line, request = await back.hear()
        assert await code_of(client, "tools/call", name="other") == -31003
        await line.answer(request, **text("done"))
        await client.finish(begun)


# What a backend's errors become.


async def refused_with(back: Back, client: Peer, method: str, code: int, data: Json, **params: Any) -> Refusal:
    begun = await client.begin(method, **params)
    line, request = await back.hear(method)
    await line.refuse(request, code, "why", **data)
    with pytest.raises(Refusal) as refused:
        await client.finish(begun)
    return refused.value


@CROSSED
async def test_a_missing_resource_has_the_code_of_the_clients_era(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back, uri = Back(behind), "notes://one"
    async with brokered(back.ways) as host, peer(host, front) as client:
        code = -32602 if behind is R5 else -32002
        refusal = await refused_with(back, client, "resources/read", code, {"uri": uri}, uri=uri)
        assert refusal.code == (-32602 if front is R5 else -32002)
        assert refusal.data == {"uri": uri}


@CROSSED
async def test_codes_that_a_client_cannot_place_come_with_their_cause(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front) as client:
        refusal = await refused_with(back, client, "tools/call", -32050, {"x": 1}, name="book")
        if front is R5 and behind is not R5:
            assert (refusal.code, refusal.data["cause"]["code"]) == (-32603, -32050)
        else:
            assert (refusal.code, refusal.data) == (-32050, {"x": 1})
        refusal = await refused_with(back, client, "tools/call", -7, {"x": 1}, name="book")
        assert (refusal.code, refusal.message, refusal.data) == (-7, "why", {"x": 1})


# Names, and what goes along.


@CROSSED
async def test_a_backend_sees_its_own_names_and_what_goes_along_and_nothing_of_the_front(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind, tools=[tool("now")])
    spec = backend(back.ways, name="w", prefix="w", rename={"now": "later"})
    async with brokered(spec) as host, peer(host, front) as client:
        said = {"traceparent": "00-x", "example.com/own": 1, "progressToken": "mine"}
        begun = await client.begin("tools/call", name="w__later", arguments={"a": 1.50}, meta=said)
        line, request = await back.hear()
        params = request["params"]
        assert (params["name"], params["arguments"]) == ("now", {"a": 1.5})
        assert params["_meta"]["traceparent"] == "00-x"
        assert params["_meta"]["example.com/own"] == 1
        assert params["_meta"]["progressToken"] != "mine"
        assert (meta.PROTOCOL_VERSION in params["_meta"]) is (behind is R5)
        await line.answer(request, **text("done"), _meta={"example.com/back": 2})
        done = await client.finish(begun)
        assert done["_meta"]["example.com/back"] == 2
        assert done["_meta"]["dev.callboard/backend"] == "w"
