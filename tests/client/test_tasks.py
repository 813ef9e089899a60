"""The client's side of tasks: a handle for a call that goes on, in both protocols, and plain calls of such tools."""

from typing import Any

import attrs
import pytest
import trio

from callboard import Server, connect
from callboard.client import TaskHandle, tasks
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.errors import BadAnswer, InvalidParams, ServerRefused, TaskCancelled
from callboard.server import Context, Tasks, ToolError

BOTH = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@attrs.define
class Name:
    name: str


@attrs.define(eq=False)
class Stage:
    server: Server
    ended: list[str] = attrs.field(factory=list)
    """What became of the calls of `work`."""


def stage(**options: Any) -> Stage:
    made = Stage(Server("s", extensions=[Tasks(**options)]))

    @made.server.tool(task="optional")
    async def work(seconds: float, *, ctx: Context) -> str:
        try:
            for step in range(round(seconds)):
                if ctx.task is not None:
                    ctx.task.status_message = f"second {step}"
                await trio.sleep(1)
        except trio.Cancelled:
            made.ended.append("cancelled")
            raise
        made.ended.append("done")
        return f"worked {seconds:g}"

    @made.server.tool(task="required")
    async def greet(*, ctx: Context) -> str:
        first = await ctx.elicit("First?", Name)
        second = await ctx.elicit("Second?", Name)
        return f"{first.name} {second.name}"

    @made.server.tool(task="required")
    async def fail(how: str) -> str:
        await trio.sleep(1)
        raise InvalidParams("wrong") if how == "protocol" else ToolError("no luck")

    @made.server.tool
    async def plain(task: str = "") -> str:
        return f"plain {task}"

    return made


def text(result: Any) -> str:
    found: str = result.content[0].text
    return found


def by_name(params: Any) -> dict[str, str]:
    return {"name": params.message.rstrip("?").lower()}


@BOTH
async def test_a_call_goes_on_as_a_task_and_is_awaited_later(revision: str, autojump_clock: object) -> None:
    async with connect(stage().server, revision=revision) as client:
        task = await client.call("work", task=True, seconds=5)
        assert isinstance(task, TaskHandle)
        assert (task.status, task.is_final) == ("working", False)
        assert task.id
        assert text(await task) == "worked 5"
        assert text(await task) == "worked 5"
        assert task.status == "completed"


@BOTH
async def test_a_task_tells_its_changes_until_it_is_final(revision: str, autojump_clock: object) -> None:
    async with connect(stage(poll_interval=0.5).server, revision=revision) as client:
        task = await client.call("work", task=True, seconds=3)
        heard = [(change.status, change.status_message) async for change in task]
        assert heard[0][0] == "working"
        assert heard[-1][0] == "completed"
        assert ("working", "second 1") in heard
        assert heard == list(dict.fromkeys(heard))


@BOTH
async def test_questions_of_a_task_are_answered_by_the_callbacks_once_each(
    revision: str, autojump_clock: object
) -> None:
    asked: list[str] = []

    async def elicit(params: Any) -> dict[str, str]:
        asked.append(params.message)
        await trio.sleep(10)
        return by_name(params)

    async with connect(stage().server, revision=revision, elicitation=elicit) as client:
        task = await client.call("greet", task=True)
        assert text(await task) == "first second"
        assert asked == ["First?", "Second?"]


async def test_a_server_asks_only_so_many_questions_of_one_task(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MAX_ASKED", 1)
    async with connect(stage().server, revision="2026-07-28", elicitation=by_name) as client:
        with pytest.raises(BadAnswer, match="more than 1 questions"):
            await (await client.call("greet", task=True))


@BOTH
async def test_a_cancelled_task_ends_at_the_server_and_has_no_result(revision: str, autojump_clock: object) -> None:
    here = stage()
    async with connect(here.server, revision=revision) as client:
        task = await client.call("work", task=True, seconds=50)
        await task.cancel()
        assert task.status == "cancelled"
        assert here.ended == ["cancelled"]
        with pytest.raises(TaskCancelled):
            await task
        await task.cancel()
        again = await client.call("work", task=True, seconds=1)
        await again
        await again.cancel()
        assert again.status == "completed"


@BOTH
async def test_a_failed_task_raises_what_a_failed_call_does(revision: str, autojump_clock: object) -> None:
    async with connect(stage().server, revision=revision) as client:
        task = await client.call("fail", task=True, how="tool")
        assert (await task).is_error is True
        task = await client.call("fail", task=True, how="protocol")
        if revision == "2026-07-28":
            with pytest.raises(ServerRefused, match=r"wrong \(-32602\)"):
                await task
            assert task.status == "failed"
            assert task.status_message == "wrong"
        else:
            assert (await task).is_error is True


@BOTH
async def test_a_plain_call_of_a_tool_that_runs_only_as_a_task_is_seen_through(
    revision: str, autojump_clock: object
) -> None:
    async with connect(stage().server, revision=revision, elicitation=by_name) as client:
        assert text(await client.call("greet")) == "first second"
        assert text(await client.call("work", seconds=2)) == "worked 2"


async def test_a_client_that_declares_tasks_sees_every_call_through(autojump_clock: object) -> None:
    here = stage()
    async with connect(here.server, extensions={EXTENSION: {}}) as client:
        assert text(await client.call("work", seconds=2)) == "worked 2"
        with trio.move_on_after(3):
            await client.call("work", seconds=50)
        await trio.testing.wait_all_tasks_blocked()
        assert here.ended == ["done", "cancelled"]


@BOTH
async def test_a_server_may_answer_at_once(revision: str, autojump_clock: object) -> None:
    made = Server("without")

    @made.tool
    async def plain() -> str:
        return "at once"

    async with connect(made, revision=revision) as client:
        task = await client.call("plain", task=True)
        assert (task.id, task.status, task.is_final) == (None, "completed", True)
        assert [change.status async for change in task] == ["completed"]
        assert text(await task) == "at once"
        await task.cancel()


async def test_a_task_is_taken_up_by_its_id_and_an_unknown_one_is_refused(autojump_clock: object) -> None:
    async with connect(stage().server, elicitation=by_name) as client:
        begun = await client.call("greet", task=True)
        assert begun.id is not None
        same = client.task(begun.id)
        assert text(await same) == "first second"
        with pytest.raises(ServerRefused, match="Unknown task"):
            await client.task("nothing").refresh()
        assert text(await client.call("plain", task="urgent")) == "plain urgent"


async def test_a_question_without_a_callback_is_told_to_the_caller(autojump_clock: object) -> None:
    async with connect(stage().server) as client:
        task = await client.call("greet", task=True)
        with pytest.raises(ServerRefused, match="did not declare"):
            await task
