"""What a server says unasked: log messages, progress, changes."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R5
from callboard.server import Server
from callboard.server.context import Context
from callboard.testing import Peer, Refusal
from tests.protocol.house import EACH_LEGACY, EVERY, hears_nothing, open_house, recorded, text

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVEL = "io.modelcontextprotocol/logLevel"

server = Server("telling")


@server.tool
async def tell(*, ctx: Context) -> str:
    for level in LEVELS:
        await ctx.log(level, {"said": level}, logger="me")  # type: ignore[arg-type]
    return "told"


@server.tool
async def work(steps: int, *, ctx: Context) -> str:
    for step in (*range(1, steps + 1), steps, 1, steps):  # the last ones do not rise
        await ctx.report(step, total=steps, message=f"step {step}")
        await trio.sleep(0.001)
    later.append(ctx)
    return "worked"


later: list[Context] = []


def said(peer: Peer, method: str) -> list[Any]:
    return [frame["params"] for frame in recorded(peer) if frame.get("method") == method]


@pytest.mark.requirement("M231")
async def test_a_modern_request_hears_only_the_log_it_asked_for(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R5)
        await peer.call("tell")
        assert said(peer, "notifications/message") == []
        await peer.request("tools/call", name="tell", meta={LOG_LEVEL: "error"})
        assert [line["level"] for line in said(peer, "notifications/message")] == LEVELS[4:]
        assert said(peer, "notifications/message")[0] == {"level": "error", "data": {"said": "error"}, "logger": "me"}
        await peer.call("tell")  # for that one request
        assert len(said(peer, "notifications/message")) == 4


@pytest.mark.requirement("M233")
async def test_an_unknown_level_is_refused(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R5)
        for level in ("loud", "", 7):
            with pytest.raises(Refusal, match="-32602"):
                await peer.request("tools/call", name="tell", meta={LOG_LEVEL: level})


@EACH_LEGACY
async def test_a_session_hears_the_log_from_the_level_it_set(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer, other = await house.peer(revision), await house.peer(revision)
        assert await peer.request("logging/setLevel", level="alert") == {}
        with pytest.raises(Refusal, match="-32602"):
            await peer.request("logging/setLevel", level="loud")
        await peer.call("tell")
        assert [line["level"] for line in said(peer, "notifications/message")] == ["alert", "emergency"]
        await other.call("tell")
        assert [line["level"] for line in said(other, "notifications/message")] == LEVELS[1:]


@pytest.mark.requirement("M201", "M232")
async def test_a_subscription_carries_nothing_but_its_changes(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        listener, peer = await house.peer(R5, log_level="debug"), await house.peer(R5, log_level="debug")
        server.notify_changed("tools")
        meta = {"progressToken": "listening"}
        await listener.begin("subscriptions/listen", notifications={"toolsListChanged": True}, meta=meta)
        await listener.hear()
        server.notify_changed("tools")
        await listener.hear()
        await peer.request("tools/call", name="tell")
        await peer.request("tools/call", name="work", arguments={"steps": 3}, meta={"progressToken": "p"})
        server.notify_changed("prompts")
        await hears_nothing(listener)
        assert [frame["method"] for frame in recorded(listener)] == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
        ]


@pytest.mark.requirement("M195", "M196", "M197", "M198", "L082", "L083", "L085")
@EVERY
@pytest.mark.parametrize("token", [7, "seven", "7"])
async def test_progress_rises_is_not_too_frequent_and_ends_with_the_answer(
    revision: Revision, token: Any, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        result = await peer.request("tools/call", name="work", arguments={"steps": 100}, meta={"progressToken": token})
        assert text(result) == "worked"
        reports = said(peer, "notifications/progress")
        assert {report["progressToken"] for report in reports} == {token}
        assert all(type(report["progressToken"]) is type(token) for report in reports)
        values = [report["progress"] for report in reports]
        assert values == sorted(set(values))
        assert (values[0], values[-1]) == (1, 100)
        assert 10 <= len(values) <= 13  # 100 reports in 103 ms: at most one in ten
        assert ("message" in reports[0]) == (revision >= "2025-03-26")
        assert "result" in recorded(peer)[-1]
        await later.pop().report(1000)
        await hears_nothing(peer)


@EVERY
async def test_without_a_token_there_is_no_progress(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        await peer.call("work", steps=10)
        assert said(peer, "notifications/progress") == []


@EVERY
async def test_a_token_that_is_refused_stays_with_its_owner(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        params: dict[str, Any] = {"name": "work", "arguments": {"steps": 100}, "meta": {"progressToken": "t"}}
        first = await peer.begin("tools/call", **params)
        for _ in range(2):
            with pytest.raises(Refusal, match="-32602"):
                await peer.request("tools/call", **params)
        assert text(await peer.finish(first)) == "worked"
        assert text(await peer.request("tools/call", **params)) == "worked"
