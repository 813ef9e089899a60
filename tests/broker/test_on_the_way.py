"""What is said while a request is under way: logs by their levels, cancellation, deadlines (BRIDGING.md, 7 and 9)."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from callboard.codecs.revisions import Revision, meta
from callboard.codecs.revisions.revision import R1, R3, R4, R5
from callboard.testing import Refusal
from tests.broker.back import Back, form, text
from tests.broker.front import backend, brokered, peer
from tests.client.stage import EVERYTHING, Json

BOOK: Json = {"name": "book", "arguments": {}}
FRONTS = pytest.mark.parametrize("front", [R1, R4, R5])
SILENT = {key: value for key, value in EVERYTHING.items() if key != "logging"}


# Logs.


async def test_a_modern_backend_is_told_the_level_of_a_legacy_session_with_each_request(
    autojump_clock: MockClock,
) -> None:
    back = Back(R5)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        assert await client.request("logging/setLevel", level="warning") == {}
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        assert request["params"]["_meta"][meta.LOG_LEVEL] == "warning"
        await line.answer(request, **text("done"))
        await client.finish(begun)
        with pytest.raises(Refusal, match="-32602"):
            await client.request("logging/setLevel", level="shouting")
        assert not back.told("logging/setLevel")


async def test_a_legacy_backend_says_as_much_as_the_most_curious_wants_and_each_hears_his_part(
    autojump_clock: MockClock,
) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, log_level="error") as one, peer(host, log_level="info") as two:
        begun = await one.begin("tools/call", **BOOK)
        first, waiting = await back.hear()
        assert [told["level"] for told in first.told("logging/setLevel")] == ["error"]
        for level in ("info", "error"):
            await first.tell("notifications/message", level=level, data=f"{level} for one")
        other = await two.begin("tools/call", **BOOK)
        second, request = await back.hear()
        await second.tell("notifications/message", level="info", data="for two")
        await second.answer(request, **text("done"))
        await two.finish(other)
        await first.answer(waiting, **text("done"))
        await one.finish(begun)
        assert [told["data"] for told in one.notifications("notifications/message")] == ["error for one"]
        assert [told["data"] for told in two.notifications("notifications/message")] == ["for two"]


async def test_a_level_that_was_given_up_on_is_asked_for_again(autojump_clock: MockClock) -> None:
    back = Back(R4, holds={"logging/setLevel"})
    async with brokered(back.ways) as host, peer(host, R4) as client:
        begun = await client.begin("tools/call", **BOOK)
        await back.hear("logging/setLevel")
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        await trio.testing.wait_all_tasks_blocked()
        back.holds.clear()
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        assert [told["level"] for told in line.told("logging/setLevel")] == ["info", "info"]
        await line.answer(request, **text("done"))
        await client.finish(begun)


async def test_a_log_that_could_be_for_several_is_for_nobody(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with (
        brokered(back.ways) as host,
        peer(host, capabilities={}, log_level="info") as one,
        peer(host, capabilities={}, log_level="error") as two,
    ):
        begun = [await client.begin("tools/call", **BOOK) for client in (one, two)]
        (line, first), (again, second) = await back.hear(), await back.hear()
        assert line is again
        assert "info" in [told["level"] for told in line.told("logging/setLevel")]
        await line.tell("notifications/message", level="error", data="for whom?")
        for request in (first, second):
            await line.answer(request, **text("done"))
        for client, one_begun in zip((one, two), begun, strict=True):
            await client.finish(one_begun)
            assert not client.notifications("notifications/message")


async def test_who_wants_no_logs_gets_none_and_nothing_is_set_for_him(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.tell("notifications/message", level="emergency", data="fire")
        await line.answer(request, **text("done"))
        await client.finish(begun)
        assert not client.heard
        assert not back.told("logging/setLevel")


@pytest.mark.parametrize("behind", [R4, R5])
async def test_a_backend_that_does_not_log_is_not_asked_to(behind: Revision, autojump_clock: MockClock) -> None:
    back = Back(behind, capabilities=SILENT)
    async with brokered(back.ways) as host:
        async with peer(host, log_level="info") as client:
            begun = await client.begin("tools/call", **BOOK)
            line, request = await back.hear()
            assert meta.LOG_LEVEL not in request["params"].get("_meta", {})
            await line.answer(request, **text("done"))
            await client.finish(begun)
        async with peer(host, R4) as client:
            with pytest.raises(Refusal, match="-32601"):
                await client.request("logging/setLevel", level="info")
    assert not back.told("logging/setLevel")


# Cancellation.


@FRONTS
@pytest.mark.parametrize("behind", [R1, R4, R5])
async def test_a_cancellation_goes_on_with_the_backends_own_id(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        assert request["id"] != begun
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun, "reason": "bored"}})
        _, cancelled = await back.hear("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]
        await line.answer(request, **text("too late"))
        await trio.testing.wait_all_tasks_blocked()
        again = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.answer(request, **text("in time"))
        assert (await client.finish(again))["content"][0]["text"] == "in time"
        assert not client.heard  # of the first one nothing more is said


@FRONTS
async def test_a_client_that_leaves_has_its_requests_cancelled(front: Revision, autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host:
        async with peer(host, front) as client:
            await client.begin("tools/call", **BOOK)
            _, request = await back.hear()
        _, cancelled = await back.hear("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]


async def test_a_cancellation_of_what_is_over_or_never_was_goes_nowhere(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4) as client:
        for number in (1, 77):
            await client.say({"method": "notifications/cancelled", "params": {"requestId": number}})
        await trio.testing.wait_all_tasks_blocked()
        assert not back.told("notifications/cancelled")


@FRONTS
async def test_a_backend_that_takes_too_long_is_cancelled_and_the_client_told(
    front: Revision, autojump_clock: MockClock
) -> None:
    back = Back(R4)
    async with brokered(backend(back.ways, timeout=7.0)) as host, peer(host, front) as client:
        begun = await client.begin("tools/call", **BOOK)
        _, request = await back.hear()
        with pytest.raises(Refusal) as late:
            await client.finish(begun)
        assert (late.value.code, trio.current_time()) == (-31002, 7)
        assert (late.value.data["reason"], late.value.data["origin"]) == ("deadline", "broker")
        assert "from back: `timeout` in the broker's configuration" in str(late.value)
        _, cancelled = await back.hear("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]


async def test_a_user_who_thinks_does_not_use_up_the_backends_time(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(backend(back.ways, timeout=7.0)) as host, peer(host, R3) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        question = await line.ask("elicitation/create", **form())
        asked = await client.hear()
        await trio.sleep(60)
        await client.say({"id": asked["id"], "result": {"action": "decline"}})
        await line.answered(question)
        await line.answer(request, **text("done"))
        assert (await client.finish(begun))["content"][0]["text"] == "done"


# A backend that is lost.


@FRONTS
@pytest.mark.parametrize("behind", [R4, R5])
async def test_a_backend_that_dies_is_told_to_all_who_wait_and_to_nobody_else(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back, other = Back(behind), Back(R4, tools=[{"name": "else", "inputSchema": {"type": "object"}}])
    async with (
        brokered(backend(back.ways), backend(other.ways, name="other")) as host,
        peer(host, front, capabilities={}) as client,
    ):
        begun = [await client.begin("tools/call", **BOOK) for _ in range(3)]
        elsewhere = await client.begin("tools/call", name="else")
        for _ in begun:
            line, _ = await back.hear()
        line.hang_up()
        for one in begun:
            with pytest.raises(Refusal) as lost:
                await client.finish(one)
            assert (lost.value.code, lost.value.data["reason"]) == (-31001, "server lost")
        spared, request = await other.hear()
        await spared.answer(request, **text("spared"))
        assert (await client.finish(elsewhere))["content"][0]["text"] == "spared"
        assert trio.current_time() == 0


@FRONTS
async def test_a_read_that_is_lost_is_made_again_and_a_call_is_not(front: Revision, autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, front, capabilities={}) as client:
        begun = await client.begin("resources/read", uri="notes://one")
        line, _ = await back.hear("resources/read")
        line.hang_up()
        line, request = await back.hear("resources/read")
        await line.answer(request, contents=[])
        assert (await client.finish(begun))["contents"] == []
        begun = await client.begin("tools/call", **BOOK)
        line, _ = await back.hear()
        line.hang_up()
        with pytest.raises(Refusal, match="-31001"):
            await client.finish(begun)
        assert len(back.told("tools/call")) == 1
