"""`callboard call --task` and `callboard tasks`, as people and scripts use them."""

import json
from collections.abc import Iterator

import pytest

from tests.at_terminal import piped
from tests.conformance.doors import EVERYTHING
from tests.served import served


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(EVERYTHING) as at:
        yield at.http


def begun(url: str, *words: str) -> str:
    done = piped("call", url, *words, "--task")
    assert done.returncode == 0, done.stderr
    task_id, status = done.stdout.split()
    assert status in ("working", "input_required")
    return task_id


@pytest.mark.parametrize("revision", [(), ("--revision", "2026-07-28")], ids=["newest", "modern"])
def test_a_call_goes_on_as_a_task_and_is_watched_to_its_end(url: str, revision: tuple[str, ...]) -> None:
    task_id = begun(url, "slow_compute", "seconds=1", "label=x", *revision)
    watched = piped("tasks", "watch", url, task_id, *revision)
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout == "computed x in 1 s\n"
    assert "working" in watched.stderr
    told = json.loads(piped("tasks", "get", url, task_id, "--json").stdout)
    assert (told["taskId"], told["status"]) == (task_id, "completed")
    assert [type(value) for name, value in told.items() if name.endswith("Ms") or name == "ttl"] == [int, int]
    assert told["result"]["content"][0]["text"] == "computed x in 1 s"


def test_a_task_is_cancelled_and_then_has_no_result(url: str) -> None:
    task_id = begun(url, "slow_compute", "seconds=60")
    done = piped("tasks", "cancel", url, task_id)
    assert (done.returncode, done.stdout) == (0, f"{task_id}\tcancelled\n")
    watched = piped("tasks", "watch", url, task_id)
    assert (watched.returncode, watched.stdout) == (4, "")
    assert watched.stderr == "callboard: the task was cancelled\n"


def test_a_quick_call_is_answered_at_once_and_an_unknown_task_is_refused(url: str) -> None:
    done = piped("call", url, "greet", "name=Ada", "--task")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n")
    unknown = piped("tasks", "get", url, "nothing")
    assert (unknown.returncode, unknown.stderr) == (4, "callboard: Unknown task (-32602)\n")


def test_the_exit_code_of_a_watched_task_is_that_of_its_tool(url: str) -> None:
    watched = piped("tasks", "watch", url, begun(url, "failing_job"))
    assert (watched.returncode, watched.stdout) == (1, "the job failed\n")


def test_questions_of_a_watched_task_are_declined_where_there_is_no_terminal(url: str) -> None:
    watched = piped("tasks", "watch", url, begun(url, "confirm_delete", "filename=x"))
    assert watched.returncode == 1
    assert "no terminal to ask at: 'Delete x?'" in watched.stderr
