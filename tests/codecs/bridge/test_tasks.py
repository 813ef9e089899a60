"""What becomes of a task's id on its way: each leg sees its own, and never the other's."""

from typing import Any

import msgspec
import pytest

from callboard.codecs.bridge.shapes import UnfitResult
from callboard.codecs.bridge.tasks import (
    about_task,
    front_created,
    front_refusal,
    front_task,
    must_defer,
    needs_extension,
    standing_of,
    task_named,
    unrelated,
)
from callboard.codecs.envelope import ErrorResponse, ResultResponse
from callboard.codecs.members import Members, raw, write_members
from callboard.codecs.revisions import ElicitResult, meta

TASK = {"taskId": "theirs", "status": "working", "ttl": None, "pollInterval": 500}


def members(**values: object) -> Members:
    return {key: raw(value) for key, value in values.items()}


def plain(written: Members) -> object:
    return msgspec.json.decode(write_members(written))


def related(task: object) -> dict[str, Any]:
    return {meta.RELATED_TASK: {"taskId": task}}


def test_a_task_has_our_id_and_our_time_wherever_it_stands() -> None:
    assert plain(front_task(members(**TASK), "ours", 9)) == {**TASK, "taskId": "ours", "ttl": 9}
    created = front_created(members(task=TASK, _meta={"a": 1, **related("theirs")}), "ours", 9)
    assert plain(created) == {"task": {**TASK, "taskId": "ours", "ttl": 9}, "_meta": {"a": 1, **related("ours")}}


@pytest.mark.parametrize("task", [7, None, {}, {**TASK, "status": "asleep"}, {**TASK, "taskId": 7}])
def test_what_is_no_task_is_unfit(task: object) -> None:
    with pytest.raises(UnfitResult):
        standing_of(raw(task))


def test_an_outcome_forgets_its_task_and_nothing_else() -> None:
    outcome = ResultResponse(1, members(content=[], _meta={"a": 1, **related("theirs")}))
    forgotten = unrelated(outcome)
    assert isinstance(forgotten, ResultResponse)
    assert plain(forgotten.result) == {"content": [], "_meta": {"a": 1}}
    bare = ResultResponse(1, members(content=[]))
    assert unrelated(bare) is bare


@pytest.mark.parametrize(
    ("said", "named"),
    [(related("theirs"), "theirs"), ({}, None), (related(7), None), ({meta.RELATED_TASK: None}, None), (7, None)],
)
def test_a_question_names_its_task_or_none(said: object, named: str | None) -> None:
    assert task_named(members(_meta=said)) == named


def test_an_answer_names_the_task_that_was_asked_for_and_no_other() -> None:
    answer = ElicitResult(action="cancel", meta={"a": 1, **related("ours")})
    assert about_task(answer, "theirs") == ElicitResult(action="cancel", meta={"a": 1, **related("theirs")})
    assert about_task(answer, None) == ElicitResult(action="cancel", meta={"a": 1})
    bare = ElicitResult(action="cancel")
    assert about_task(bare, None) is bare


def test_a_refusal_speaks_of_our_id() -> None:
    refusal = front_refusal(ErrorResponse(1, -32602, "no theirs", raw({"id": "theirs"})), "theirs", "ours")
    assert (refusal.message, refusal.data) == ("no ours", raw({"id": "ours"}))
    assert front_refusal(ErrorResponse(1, -32602, "no"), "theirs", "ours") == ErrorResponse(1, -32602, "no")


@pytest.mark.parametrize("there", ["1", ",", "a", '"', "\\", ""])
def test_a_refusal_stays_what_it_says_however_short_the_id_is(there: str) -> None:
    """Servers number their tasks, and a hostile one may name them as it likes."""
    listed = [there, f"b{there}1{there}", 11, "\\"]
    said = {"taskId": there, "wait": 1, "of": listed}
    error = ErrorResponse(1, -32602, f"error 17 of 11: {there} is gone, " + "a " * 100_000, raw(said))
    refusal = front_refusal(error, there, "ours")
    own = ["ours" if one == there else one for one in listed]
    assert refusal.data == raw({"taskId": "ours", "wait": 1, "of": own})
    assert refusal.message.startswith("error 17 of 11")
    assert len(refusal.message) < 201_000


def test_only_a_tool_that_says_so_must_be_a_task() -> None:
    assert must_defer(members(execution={"taskSupport": "required"}))
    others: list[object] = [{"taskSupport": "optional"}, {}, [], None]
    for execution in others:
        assert not must_defer(members(execution=execution))
    assert not must_defer({})


def test_what_belongs_to_the_extension() -> None:
    assert needs_extension("tasks/update", {})
    assert not needs_extension("tasks/result", {})
    assert needs_extension("subscriptions/listen", members(notifications={"taskIds": []}))
    others: list[object] = [{"resourceSubscriptions": ["taskIds"]}, 7]
    for notifications in others:
        assert not needs_extension("subscriptions/listen", members(notifications=notifications))
    assert not needs_extension("subscriptions/listen", {})
