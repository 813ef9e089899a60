"""Steps that start a task: how long it took to its end, its questions, its result, and what becomes of one given up."""

from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Server, ToolError
from callboard.bench.engine import LoadPlan
from callboard.bench.player import players
from callboard.bench.scenario import parse_scenario
from callboard.bench.script import Scripts, StepFailed
from callboard.client.client import Common
from callboard.server import Tasks

both_protocols = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@attrs.frozen
class Name:
    name: str


def workshop(log: list[str], poll: float = 0.5) -> Server:
    """A server whose tools run as tasks."""
    server = Server("workshop", extensions=[Tasks(poll_interval=poll)])

    @server.tool(task="optional")
    async def work(seconds: float = 2, *, ctx: Context) -> str:
        log.append("task" if ctx.task is not None else "plain")
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            log.append("cancelled")
            raise
        return f"worked {seconds:g}"

    @server.tool(task="required")
    async def greet(*, ctx: Context) -> dict[str, str]:
        await trio.sleep(1)
        return {"greeting": f"hello {(await ctx.elicit('Who?', Name)).name}"}

    @server.tool
    async def echo(text: str) -> str:
        log.append(text)
        return text

    @server.tool(task="required")
    async def fail() -> str:
        await trio.sleep(1)
        raise ToolError("no luck")

    return server


async def play(server: Server, steps: str, revision: str, *, duration: float = 30) -> Scripts:
    scenario = parse_scenario(steps, Path("play.toml"))
    plan = LoadPlan(duration=duration, warmup=0)
    drive = Scripts(plan, scenario, players(server, Common(revision=revision), scenario, lambda _: None))
    await drive.run()
    assert drive.in_flight == 0
    return drive


@both_protocols
async def test_a_task_is_measured_to_its_end_and_its_result_is_saved(autojump_clock: MockClock, revision: str) -> None:
    log: list[str] = []
    text = """
        answer.elicitation = { content = { name = "Ada" }, after = "3s" }
        steps = [
            { task = "work", args = { seconds = 2 } },
            { task = "greet", label = "meet", save = { words = "structuredContent.greeting" } },
            { call = "echo", args = { text = "${words}" } },
        ]
    """
    drive = await play(workshop(log), text, revision)
    assert drive.tally.errors == {}
    assert list(drive.tally.steps) == ["task work", "meet", "call echo"]
    assert 2 <= drive.tally.steps["task work"].longest <= 2.6, "its time, and at most one wait to ask again"
    assert 4 <= drive.tally.steps["meet"].longest <= 5.2, "with the time that the answer took"
    assert drive.tally.steps["task work"].count == drive.tally.steps["meet"].count == pytest.approx(4, abs=1)
    assert set(log) == {"task", "hello Ada"}


@both_protocols
async def test_a_task_that_is_given_up_is_cancelled_at_the_server(autojump_clock: MockClock, revision: str) -> None:
    log: list[str] = []
    steps = """steps = [
        { task = "work", args = { seconds = 60 }, cancel_after = "1s" },
        { call = "echo", args = { text = "next" } },
    ]"""
    drive = await play(workshop(log), steps, revision, duration=10)
    assert drive.tally.errors == {}
    assert drive.tally.counts["cancelled"] == pytest.approx(10, abs=1)
    assert drive.tally.steps["task work"].count == 0, "what was cancelled has no latency"
    assert log.count("cancelled") == log.count("task") == pytest.approx(11, abs=1)


@both_protocols
async def test_a_task_that_fails_is_an_error_of_its_step(autojump_clock: MockClock, revision: str) -> None:
    with pytest.raises(StepFailed, match="play, task fail: the tool fail failed: no luck"):
        await play(workshop([]), 'steps = [{ task = "fail" }]', revision)


@both_protocols
async def test_a_server_without_tasks_is_told_and_not_measured(autojump_clock: MockClock, revision: str) -> None:
    server = Server("plain")

    @server.tool
    async def work() -> str:
        return "done"

    with pytest.raises(StepFailed, match="task work: the server does not support tasks: use `call`"):
        await play(server, 'steps = [{ task = "work" }]', revision)
