"""A legacy backend that refuses until its user has been at a URL (-32042), and a modern client (BRIDGING.md, 13)."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R3, R4, R5
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, Line, text
from tests.broker.front import brokered, peer
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {"day": "fri"}}
URL = "https://example.com/in"
GONE = {"action": "accept"}


async def send_away(line: Line, request: Json, *urls: str) -> None:
    asked = [
        {"mode": "url", "elicitationId": f"e-{number}", "url": url, "message": "Log in"}
        for number, url in enumerate(urls)
    ]
    await line.refuse(request, -32042, "not yet", elicitations=asked)


def retry(result: Json, *answers: Json) -> Json:
    responses = dict(zip(result["inputRequests"], answers, strict=True))
    return {"inputResponses": responses, "requestState": result["requestState"]}


async def sent_away(back: Back, client: Peer, *urls: str, **more: Any) -> tuple[Line, Json]:
    begun = await client.begin("tools/call", **BOOK, **more)
    line, request = await back.hear()
    await send_away(line, request, *urls)
    return line, await client.finish(begun)


async def test_the_user_is_sent_there_and_the_call_is_made_again(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        line, asked = await sent_away(back, client, URL, URL + "/too")
        assert asked["resultType"] == "input_required"
        shown = [entry["params"] for entry in asked["inputRequests"].values()]
        assert [one["url"] for one in shown] == [URL, URL + "/too"]
        assert not any("elicitationId" in one for one in shown)
        assert "e-0" not in asked["requestState"]
        begun = await client.begin("tools/call", **BOOK, **retry(asked, GONE, GONE))
        again, request = await back.hear()
        assert again is line
        assert request["params"] == BOOK
        await line.answer(request, **text("welcome"))
        assert (await client.finish(begun))["content"][0]["text"] == "welcome"


@pytest.mark.parametrize(("tells", "waits"), [(True, 1), (False, 20)])
async def test_a_backend_that_has_not_noticed_yet_is_given_a_while(
    tells: bool, waits: float, autojump_clock: MockClock
) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        line, asked = await sent_away(back, client, URL)
        begun = await client.begin("tools/call", **BOOK, **retry(asked, GONE))
        _, request = await back.hear()
        await send_away(line, request, URL)
        started = trio.current_time()
        await trio.sleep(1)
        if tells:
            await line.tell("notifications/elicitation/complete", elicitationId="e-0")
        _, request = await back.hear()
        assert trio.current_time() - started == pytest.approx(waits, abs=0.5)
        await send_away(line, request, URL)  # that did not help: he is sent there again
        asked = await client.finish(begun)
        assert asked["resultType"] == "input_required"
        begun = await client.begin("tools/call", **BOOK, **retry(asked, GONE))
        _, request = await back.hear()
        await line.answer(request, **text("welcome"))
        await client.finish(begun)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_does_not_go_there_has_his_call_ended(action: str, autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        _, asked = await sent_away(back, client, URL)
        ended = await client.request("tools/call", **BOOK, **retry(asked, {"action": action}))
        assert ended["isError"] is True
        begun = await client.begin("resources/read", uri="notes://one")
        line, request = await back.hear("resources/read")
        await send_away(line, request, URL)
        asked = await client.finish(begun)
        with pytest.raises(Refusal, match="-32603"):
            await client.request("resources/read", uri="notes://one", **retry(asked, {"action": action}))
        assert len(back.told("tools/call")) == 1


async def test_a_client_that_takes_no_urls_is_told_what_it_lacks(autojump_clock: MockClock) -> None:
    back = Back(R4)
    declared: list[Json] = [{}, {"elicitation": {"form": {}}}]
    for capabilities in declared:
        async with brokered(back.ways) as host, peer(host, capabilities=capabilities) as client:
            with pytest.raises(Refusal) as refused:
                await sent_away(back, client, URL)
            assert refused.value.code == -32021
            assert refused.value.data["requiredCapabilities"] == {"elicitation": {"url": {}}}


@pytest.mark.parametrize("revision", [R1, R3, R4])
async def test_legacy_clients_get_the_code_as_it_is(revision: Revision, autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, revision) as client:
        with pytest.raises(Refusal) as refused:
            await sent_away(back, client, URL)
        assert refused.value.code == -32042
        assert refused.value.data["elicitations"][0]["url"] == URL


async def test_on_what_may_not_ask_it_is_an_error_with_its_cause(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R5) as client:
        ref = {"type": "ref/prompt", "name": "brief"}
        begun = await client.begin("completion/complete", ref=ref, argument={"name": "x", "value": ""})
        line, request = await back.hear("completion/complete")
        await send_away(line, request, URL)
        with pytest.raises(Refusal) as refused:
            await client.finish(begun)
        assert refused.value.code == -32603
        assert refused.value.data["cause"]["code"] == -32042


async def test_a_url_that_a_legacy_server_asks_for_is_parked_without_its_id(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        question = await line.ask("elicitation/create", mode="url", message="Log in", url=URL, elicitationId="e1")
        asked = await client.finish(begun)
        [entry] = asked["inputRequests"].values()
        assert entry["params"] == {"mode": "url", "message": "Log in", "url": URL}
        begun = await client.begin("tools/call", **BOOK, **retry(asked, GONE))
        assert (await line.answered(question))["result"] == GONE
        await line.answer(request, **text("done"))
        await client.finish(begun)
        await line.tell("notifications/elicitation/complete", elicitationId="e1")  # consumed
        await trio.testing.wait_all_tasks_blocked()
        assert not client.heard
