"""Scripts, played in virtual time against servers of this process: what is counted, and as what."""

from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Server, ToolError
from callboard.bench.engine import LoadPlan
from callboard.bench.pace import Pace
from callboard.bench.player import players
from callboard.bench.scenario import parse_scenario
from callboard.bench.script import NOT_BEGUN, NOT_HEARD, OPENING, Scripts, StepFailed
from callboard.bench.seats import RENEWED
from callboard.bench.tally import UNANSWERED
from callboard.client.client import Common
from callboard.codecs.revisions import Revision

both_eras = pytest.mark.parametrize("revision", [Revision.V2025_11_25, Revision.V2026_07_28])


@attrs.frozen
class Consent:
    agreed: bool


def company(log: list[str]) -> Server:
    """A server that notes what it does."""
    server = Server("company", version="1")

    @server.tool
    async def work(seconds: float = 0.1) -> str:
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            log.append("cancelled")
            raise
        return "done"

    @server.tool
    async def ask(question: str = "May I?", *, ctx: Context) -> str:
        consent = await ctx.elicit(question, Consent)
        log.append(f"{question} {consent.agreed}")
        return "asked"

    @server.tool
    async def think(*, ctx: Context) -> str:
        log.append((await ctx.sample("What now?", max_tokens=10)).text)
        log.append((await ctx.roots())[0].uri)
        return "thought"

    @server.tool
    async def save(*, ctx: Context) -> str:
        ctx.notify_updated("company://note")
        ctx.notify_changed("tools")
        return "saved"

    @server.tool
    async def fail() -> str:
        raise ToolError("no")

    @server.resource("company://note")
    async def note() -> str:
        log.append("read")
        return "noted"

    @server.prompt
    async def brief(topic: str) -> str:
        return topic

    return server


async def play(text: str, plan: LoadPlan, log: list[str] | None = None, revision: Revision | None = None) -> Scripts:
    scenario = parse_scenario(text, Path("play.toml"))
    met: list[object] = []
    server = company([] if log is None else log)
    drive = Scripts(plan, scenario, players(server, Common(revision=revision), scenario, met.append))
    await drive.run()
    assert met
    assert drive.in_flight == 0
    return drive


@both_eras
async def test_each_request_is_counted_and_each_step_by_its_label(
    autojump_clock: MockClock, revision: Revision
) -> None:
    text = """steps = [
        { call = "work" },
        { think = 0.2 },
        { call = "work", args = { seconds = 0.3 }, label = "hard work" },
        { think = [0.1, 0.3] },
        { repeat = 2, steps = [{ read = "company://note" }] },
        { list = "prompts" },
        { prompt = "brief", args = { topic = "us" } },
    ]"""
    log: list[str] = []
    drive = await play(text, LoadPlan(sessions=2, concurrency=2, duration=80, warmup=0), log, revision)
    tally = drive.tally
    # 0.1 + 0.2 + 0.3 + 0.2 on average: 0.8 s for each, on two sessions.
    assert tally.counts["scripts"] == pytest.approx(200, rel=0.05)
    assert list(tally.steps) == ["call work", "hard work", "read company://note", "list prompts", "prompt brief"]
    assert tally.steps["read company://note"].count == pytest.approx(2 * tally.steps["hard work"].count, abs=4)
    assert tally.steps["call work"].percentile(50) == pytest.approx(0.1, rel=0.01)
    assert tally.steps["hard work"].longest == pytest.approx(0.3, rel=0.01)
    assert tally.count == sum(step.count for step in tally.steps.values())
    assert tally.errors == {}
    assert log.count("read") > tally.steps["read company://note"].count - 2, "nothing is kept"


async def test_the_same_seed_thinks_the_same(autojump_clock: MockClock) -> None:
    text = 'steps = [{ call = "work" }, { think = [0.1, 5] }]'
    first, again, other = [await play(text, LoadPlan(duration=100, warmup=0, seed=seed)) for seed in (1, 1, 2)]
    by_second = [
        {second: one.get_total_count() for second, one in drive.tally.seconds.items()}
        for drive in (first, again, other)
    ]
    assert by_second[0] == by_second[1] != by_second[2]


@both_eras
async def test_a_call_that_is_taken_back_is_cancelled_and_no_error(
    autojump_clock: MockClock, revision: Revision
) -> None:
    text = """steps = [
        { call = "work", args = { seconds = 5 }, cancel_after = "500ms" },
        { call = "work", cancel_after = 1 },
    ]"""
    log: list[str] = []
    drive = await play(text, LoadPlan(duration=60, warmup=0), log, revision)
    assert drive.tally.counts["cancelled"] == pytest.approx(100, abs=1)
    assert drive.figures["cancelled"] == drive.tally.counts["cancelled"]
    assert drive.tally.steps["call work"].counts["cancelled"] == drive.tally.counts["cancelled"]
    assert drive.tally.count == pytest.approx(100, abs=1)
    assert drive.tally.longest == pytest.approx(0.1, rel=0.01), "what was cancelled has no latency"
    assert drive.tally.errors == {}
    assert log.count("cancelled") == drive.tally.counts["cancelled"] + 1, "the server was told, also when it was tried"


@both_eras
async def test_questions_are_answered_as_the_script_says(autojump_clock: MockClock, revision: Revision) -> None:
    text = """
        [answer]
        sampling = "Forty-two."
        roots = ["file:///tmp"]
        elicitation = [
            { content = { agreed = true }, after = "2s", match = "May I" },
            { content = { agreed = false }, match = "Really" },
        ]
        [[script]]
        steps = [
            { call = "ask" },
            { call = "ask", args = { question = "Really?" }, label = "again" },
            { call = "think" },
        ]
    """
    log: list[str] = []
    drive = await play(text, LoadPlan(duration=10, warmup=0), log, revision)
    assert log[:4] == ["May I? True", "Really? False", "Forty-two.", "file:///tmp"]
    assert drive.tally.steps["call ask"].percentile(50) == pytest.approx(2, rel=0.05), "with the time to think about it"
    assert drive.tally.steps["again"].longest < 0.5
    assert drive.tally.errors == {}


async def test_a_question_that_is_declined_makes_a_tool_fail(autojump_clock: MockClock) -> None:
    text = 'answer.elicitation = "decline"\nsteps = [{ call = "ask" }]'
    with pytest.raises(StepFailed, match=r"play, call ask: the tool ask failed: .*declined"):
        await play(text, LoadPlan(duration=10, warmup=0))


@both_eras
async def test_news_are_waited_for(autojump_clock: MockClock, revision: Revision) -> None:
    text = """steps = [
        { subscribe = "company://note" },
        { listen = ["tools"] },
        { call = "save" },
        { await = "company://note" },
        { await = "tools", within = "1s" },
        { think = 0.5 },
    ]"""
    drive = await play(text, LoadPlan(duration=10, warmup=0), revision=revision)
    steps = drive.tally.steps
    assert steps["await company://note"].count == steps["await tools"].count == pytest.approx(20, abs=1)
    assert drive.tally.count == steps["call save"].count, "an await is no request"
    assert drive.tally.errors == {}


async def test_news_that_do_not_come_are_an_error_after_a_time(autojump_clock: MockClock) -> None:
    text = """steps = [
        { subscribe = "company://note" },
        { call = "work" },
        { await = "company://note", within = "900ms" },
    ]"""
    with pytest.raises(StepFailed, match=r"await company://note: no notification within 0.9 s"):
        await play(text, LoadPlan(duration=10, warmup=0))


async def test_news_that_come_once_are_an_error_ever_after(autojump_clock: MockClock) -> None:
    server = company([])
    scenario = parse_scenario(
        'steps = [{ listen = "tools" }, { call = "work" }, { await = "tools", within = "900ms" }]', Path("play.toml")
    )
    drive = Scripts(LoadPlan(duration=10, warmup=0), scenario, players(server, Common(), scenario, lambda _: None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drive.run)
        await trio.sleep(0.5)  # while it is tried
        server.notify_changed("tools")
    assert drive.tally.errors == {NOT_HEARD: 10}
    assert drive.tally.steps["await tools"].error_count == 10


async def test_a_session_lasts_as_long_as_it_is_said(autojump_clock: MockClock) -> None:
    opened = []
    for session in ("", 'session = "each"\n', "session = 5\n"):
        drive = await play(f'{session}steps = [{{ call = "work" }}]', LoadPlan(duration=10, warmup=0))
        assert drive.tally.count == pytest.approx(100, abs=1)
        opened.append(drive.tally.counts[RENEWED])
        assert (OPENING in drive.tally.steps) is bool(session)
        drive.tally.counts[RENEWED] += 1  # one that opened just before the end, and was not used
        shown = drive.figures[RENEWED]
        assert shown == (drive.tally.steps[OPENING].count if session else 1), "the same as in the table of steps"
    assert opened == [0, pytest.approx(99, abs=1), pytest.approx(19, abs=1)]


async def test_scripts_are_played_as_often_as_their_weights_say(autojump_clock: MockClock) -> None:
    text = """
        [[script]]
        weight = 3
        steps = [{ call = "work", label = "often" }]
        [[script]]
        steps = [{ call = "work", label = "seldom" }]
    """
    drive = await play(text, LoadPlan(duration=100, warmup=0))
    assert drive.tally.steps["often"].count / drive.tally.steps["seldom"].count == pytest.approx(3, rel=0.2)


async def test_at_a_pace_a_script_that_finds_no_session_free_waits_and_that_is_counted(
    autojump_clock: MockClock,
) -> None:
    text = 'steps = [{ call = "work", label = "first" }, { call = "work", label = "second" }]'
    plan = LoadPlan(sessions=2, pace=Pace(rate=20), duration=10, warmup=0)  # the two can do ten a second
    drive = await play(text, plan)
    assert drive.tally.steps["first"].longest > 4
    assert drive.tally.steps["second"].longest == pytest.approx(0.1, rel=0.01), "from when it is made"
    assert drive.tally.counts["scripts"] == pytest.approx(100, abs=3)
    assert drive.tally.errors == {NOT_BEGUN: pytest.approx(100, abs=3)}, "who was due and found none does not vanish"
    slow = await play(text, LoadPlan(sessions=2, pace=Pace(rate=5), duration=10, warmup=0))
    assert slow.tally.counts["scripts"] == pytest.approx(50, abs=1)
    assert slow.tally.longest == pytest.approx(0.1, rel=0.01)


async def test_a_step_that_fails_does_not_end_the_script(autojump_clock: MockClock) -> None:
    log: list[str] = []
    failing = Server("failing", version="1")

    @failing.tool
    async def moody() -> str:
        await trio.sleep(0.1)
        log.append("asked")
        if len(log) > 1:
            raise ToolError("no")
        return "yes"

    @failing.tool
    async def fine() -> str:
        return "yes"

    scenario = parse_scenario('steps = [{ call = "moody" }, { call = "fine" }]', Path("play.toml"))
    drive = Scripts(LoadPlan(duration=10, warmup=0), scenario, players(failing, Common(), scenario, lambda _: None))
    await drive.run()
    assert drive.tally.errors == {"ToolFailed": pytest.approx(100, abs=1)}
    assert drive.tally.steps["call fine"].count == pytest.approx(100, abs=1)
    assert drive.tally.steps["call moody"].error_count == drive.tally.errors["ToolFailed"]


async def test_a_step_that_never_works_is_told_with_its_label(autojump_clock: MockClock) -> None:
    with pytest.raises(StepFailed, match="play, doomed: the tool fail failed: no"):
        await play('steps = [{ call = "fail", label = "doomed" }]', LoadPlan(duration=10, warmup=0))


async def test_who_is_not_answered_by_the_end_is_an_error_and_who_thinks_is_not(autojump_clock: MockClock) -> None:
    drive = await play('steps = [{ call = "work" }, { think = 100 }]', LoadPlan(duration=10, warmup=0))
    assert (drive.tally.count, drive.tally.errors) == (1, {})
    drive = await play(
        'steps = [{ call = "work" }, { call = "work", args = { seconds = 20 } , label = "long"}]',
        LoadPlan(duration=10, warmup=0),
    )
    assert drive.tally.errors == {UNANSWERED: 1}
    assert drive.tally.steps["long"].errors == {UNANSWERED: 1}
