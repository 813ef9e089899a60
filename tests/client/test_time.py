"""How long a client waits, what it says when it no longer does, and who wins when things happen at once."""

from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.client.conversation import CAP, TIMEOUT, Patience
from callboard.actors.client.negotiate import HANDSHAKE
from callboard.client import Client, connect
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5
from callboard.errors import CannotConnect, RequestTimedOut
from tests.client.stage import Json, Puppet, played

EVERY = [R1, R2, R3, R4, R5]
every_revision = pytest.mark.parametrize("revision", EVERY)


async def timed_out(client: Client, patience: Patience | None = None) -> float:
    """How long a call took that was never answered."""
    began = trio.current_time()
    with pytest.raises(RequestTimedOut) as late:
        await client.call("x", patience=patience)
    assert late.value.after == pytest.approx(trio.current_time() - began)
    return trio.current_time() - began


async def progress(puppet: Puppet, request: Json, number: float) -> None:
    token = request["params"]["_meta"]["progressToken"]
    await puppet.say(method="notifications/progress", params={"progressToken": token, "progress": number})


# Silence.


@every_revision
@pytest.mark.requirement("M163", "M164", "M077", "M271", "L032", "M158", "L074")
async def test_a_silent_server_costs_exactly_the_timeout_and_is_told_that_nobody_waits(
    revision: Revision, autojump_clock: MockClock
) -> None:
    told: list[Json] = []

    async def play(puppet: Puppet) -> None:
        told.append(await puppet.hear())
        told.append(await puppet.hear())

    async with connect(played(play, revision)) as client:
        assert await timed_out(client) == TIMEOUT
        await wait_all_tasks_blocked()
    asked, cancelled = told
    assert asked["method"] == "tools/call"
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == asked["id"]
    assert cancelled["params"]["reason"]
    assert "id" not in cancelled


@pytest.mark.requirement("M166")
async def test_each_call_and_each_client_may_have_its_own_patience(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        while True:
            await puppet.hear()

    async with connect(played(play), patience=Patience(timeout=7)) as client:
        assert await timed_out(client) == 7
        assert await timed_out(client, Patience(timeout=2)) == 2
        assert await timed_out(client, Patience(timeout=90, cap=30)) == 30


@every_revision
@pytest.mark.requirement("M165", "L033")
async def test_progress_moves_the_timeout_but_never_past_the_cap(revision: Revision, autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        for number in range(1, 1000):
            await trio.sleep(TIMEOUT - 1)
            await progress(puppet, request, number)

    async with connect(played(play, revision)) as client:
        assert await timed_out(client) == CAP


async def test_progress_that_ends_leaves_the_timeout_from_then_on(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        for number in range(3):
            await trio.sleep(50)
            await progress(puppet, request, number)
        await puppet.hear("never")

    async with connect(played(play)) as client:
        assert await timed_out(client) == 150 + TIMEOUT


async def test_the_progress_of_another_call_moves_nothing(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        first, second = await puppet.hear("tools/call"), await puppet.hear("tools/call")
        await trio.sleep(50)
        await progress(puppet, second, 1)
        await trio.sleep(50)
        await puppet.answer(second, content=[])
        await puppet.hear("never")
        await puppet.answer(first, content=[])

    async with connect(played(play)) as client, trio.open_nursery() as nursery:

        async def call() -> None:
            assert await timed_out(client) == TIMEOUT

        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        await client.call("y")
        assert trio.current_time() == 100


async def test_a_server_that_waits_for_an_answer_of_ours_is_not_silent(autojump_clock: MockClock) -> None:
    """A user may think for longer than a server may be silent."""

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await trio.sleep(10)
        params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        await puppet.say(id="q", method="elicitation/create", params=params)
        assert (await puppet.hear())["result"]["action"] == "accept"
        if request["params"]["name"] == "answers":
            await trio.sleep(TIMEOUT - 1)
            await puppet.answer(request, content=[])
        await play(puppet)

    async def elicitation(_: object) -> Any:
        await trio.sleep(300)
        return {}

    async with connect(played(play, R4), elicitation=elicitation) as client:
        await client.call("answers")
        assert trio.current_time() == 310 + TIMEOUT - 1
        assert await timed_out(client) == 310 + TIMEOUT


# The handshake.


@pytest.mark.requirement("L075")
async def test_a_handshake_that_is_not_answered_ends_in_bounded_time_and_is_not_cancelled(
    autojump_clock: MockClock,
) -> None:
    heard: list[str] = []

    async def play(puppet: Puppet) -> None:
        while True:
            heard.append((await puppet.hear())["method"])

    with pytest.raises(CannotConnect, match="timed out: no response within 30 s"):
        async with connect(played(play, meets=False)):
            pass
    assert trio.current_time() <= 5 + HANDSHAKE.timeout
    assert heard == ["server/discover", "initialize", "notifications/cancelled"]  # which is of the first


# Leaving.


@every_revision
@pytest.mark.requirement("M159", "L053")
async def test_leaving_a_call_cancels_it_at_the_server(revision: Revision, autojump_clock: MockClock) -> None:
    told: list[Json] = []

    async def play(puppet: Puppet) -> None:
        told.append(await puppet.hear("tools/call"))
        await progress(puppet, told[0], 1)
        told.append(await puppet.hear())
        told.append(await puppet.hear("tools/call"))
        await puppet.answer(told[-1], content=[])

    async with connect(played(play, revision)) as client:
        async with client.call("x") as call:
            async for _ in call.progress:
                call.cancel()
        with pytest.raises(LookupError):
            _ = call.result
        await client.call("y")
    assert told[1]["method"] == "notifications/cancelled"
    assert told[1]["params"]["requestId"] == told[0]["id"]


@pytest.mark.parametrize("revision", [R4, R5])
async def test_a_cancelled_scope_and_an_exception_cancel_the_call_as_well(
    revision: Revision, autojump_clock: MockClock
) -> None:
    told: list[Any] = []

    async def leave(client: Client) -> None:
        async with client.call("y"):
            await wait_all_tasks_blocked()
            raise KeyError

    async def play(puppet: Puppet) -> None:
        for _ in range(2):
            request = await puppet.hear("tools/call")
            cancelled = await puppet.hear()
            told.append((request["id"], cancelled["params"]["requestId"]))

    async with connect(played(play, revision)) as client:
        with trio.move_on_after(1):
            await client.call("x")
        with pytest.raises(KeyError):
            await leave(client)
        await wait_all_tasks_blocked()
    assert len(told) == 2
    assert all(asked == cancelled for asked, cancelled in told)


@pytest.mark.requirement("M161", "L078", "M162", "L079")
@every_revision
async def test_an_answer_that_comes_too_late_reaches_nobody(revision: Revision, autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        first = await puppet.hear("tools/call")
        await puppet.hear("notifications/cancelled")
        await puppet.answer(first, content=[{"type": "text", "text": "late"}])
        await progress(puppet, first, 1)
        second = await puppet.hear("tools/call")
        await puppet.answer(second, content=[{"type": "text", "text": "right"}])

    async with connect(played(play, revision)) as client:
        await timed_out(client, Patience(timeout=1))
        assert "right" in str(await client.call("y"))


@pytest.mark.requirement("M162", "L079")
@pytest.mark.parametrize("revision", [R4, R5])
async def test_an_answer_at_the_very_end_of_the_timeout_has_one_outcome(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        while True:
            request = await puppet.hear("tools/call")
            await trio.sleep(5)
            await puppet.answer(request, content=[])

    outcomes: list[str] = []
    async with connect(played(play, revision)) as client:
        for _ in range(20):
            try:
                await client.call("x", patience=Patience(timeout=5))
                outcomes.append("answered")
            except RequestTimedOut:
                outcomes.append("late")
    assert len(outcomes) == 20
    assert trio.current_time() == 100


# What the server takes back.


@pytest.mark.requirement("L077", "M168")
@pytest.mark.parametrize("revision", [R1, R2, R3, R4])
async def test_a_question_that_is_taken_back_is_not_answered_and_the_reason_is_logged(
    revision: Revision, autojump_clock: MockClock
) -> None:
    stopped = trio.Event()

    async def sampling(_: object) -> str:
        try:
            await trio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        params = {"messages": [], "maxTokens": 1}
        await puppet.say(id="q", method="sampling/createMessage", params=params)
        await wait_all_tasks_blocked()
        await puppet.say(method="notifications/cancelled", params={"requestId": "q", "reason": "changed my mind"})
        await stopped.wait()
        with trio.move_on_after(10):
            raise AssertionError(await puppet.hear())
        await puppet.answer(request, content=[])

    with structlog.testing.capture_logs() as logs:
        async with connect(played(play, revision), sampling=sampling) as client:
            await client.call("x")
    [line] = [line for line in logs if line["event"] == "question_cancelled"]
    assert (line["request"], line["reason"]) == ("q", "changed my mind")


async def test_a_question_that_is_asked_twice_is_answered_once(autojump_clock: MockClock) -> None:
    asked: list[object] = []

    async def sampling(params: object) -> str:
        asked.append(params)
        await trio.sleep(1)
        return "once"

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        for _ in range(2):
            params = {"messages": [], "maxTokens": 1}
            await puppet.say(id="q", method="sampling/createMessage", params=params)
        assert (await puppet.hear())["id"] == "q"
        with trio.move_on_after(10):
            raise AssertionError(await puppet.hear())
        await puppet.answer(request, content=[])

    async with connect(played(play, R4), sampling=sampling) as client:
        await client.call("x")
    assert len(asked) == 1
