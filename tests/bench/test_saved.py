"""Results of a step in later steps: what is picked, where it is put, and what becomes of what is missing."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from callboard import Server
from callboard.bench.engine import LoadPlan
from callboard.bench.player import players
from callboard.bench.saved import MAX_SAVED, NotSaved, filled, filled_uri, picked, references
from callboard.bench.scenario import parse_scenario
from callboard.bench.script import Scripts, StepFailed
from callboard.client.client import Common
from callboard.codecs.revisions import Revision
from tests.bench.test_script import both_eras

RESULT: dict[str, Any] = {
    "content": [{"type": "text", "text": '{"id": 7, "of": ["a", "b"]}'}],
    "structuredContent": {"id": 5, "items": [{"id": "x"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("structuredContent.id", 5),
        ("structuredContent.items.0.id", "x"),
        ("content.0.text.of.1", "b"),
        ("content.0.type", "text"),
        ("", {"id": 5, "items": [{"id": "x"}]}),
    ],
)
def test_a_part_of_a_result_is_picked_by_its_path(path: str, found: object) -> None:
    assert picked(RESULT, path) == found


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"content": [], "structuredContent": {"result": [1]}}, [1]),
        ({"content": [{"type": "image"}, {"type": "text", "text": "hi"}]}, "hi"),
        ({"contents": [{"uri": "a://b", "text": "read"}]}, "read"),
        ({"messages": [{"role": "user", "content": {"type": "text", "text": "said"}}]}, "said"),
    ],
)
def test_without_a_path_it_is_what_the_result_is_about(result: object, found: object) -> None:
    assert picked(result, "") == found


@pytest.mark.parametrize(
    "path",
    [
        "none",
        "content.1",
        "content.x",
        "content.-1",
        "content.0.type.x",
        "structuredContent.id.x",
        "content.0.text.none",
    ],
)
def test_what_is_not_there_is_not_saved(path: str) -> None:
    with pytest.raises(NotSaved, match="the result has no"):
        picked(RESULT, path)


def test_what_has_no_text_or_is_too_large_is_not_saved() -> None:
    with pytest.raises(NotSaved, match="name a path"):
        picked({"contents": [None, {"blob": ""}], "messages": "no", "content": {}}, "")
    with pytest.raises(NotSaved, match="larger than"):
        picked({"content": [{"text": "x" * MAX_SAVED}]}, "")


def test_a_value_keeps_its_type_and_becomes_text_in_a_text() -> None:
    values = {"id": 5, "name": "a b/c", "many": [1]}
    given = {"id": "${id}", "all": ["${many}", {"x": "<${id}, ${name}, ${many}>"}], "plain": "$${id} $5", "n": 3}
    assert filled(given, values) == {
        "id": 5,
        "all": [[1], {"x": "<5, a b/c, [1]>"}],
        "plain": "${id} $5",
        "n": 3,
    }
    assert filled_uri("notes://${name}?id=${id}&x=$${y}", values) == "notes://a%20b/c?id=5&x=${y}"
    assert filled_uri("${name}", values) == "a b/c"
    with pytest.raises(NotSaved, match=r"\$\{none\} was not saved"):
        filled("${none}", values)


@given(st.text(alphabet="${}ab ", max_size=20))
def test_any_text_is_filled_or_left_as_it_is(text: str) -> None:
    names = {name: "v" for name in references(text) if name is not None}
    assert isinstance(filled(text, names), str)
    if "${" not in text:
        assert filled(text, names) == text


def shop() -> Server:
    server, made = Server("shop", version="1"), list[str]()

    @server.tool
    async def create(text: str) -> dict[str, Any]:
        made.append(text)
        return {"id": len(made), "text": text}

    @server.tool
    async def show(id: int) -> str:
        return made[id - 1]

    @server.tool
    async def sometimes() -> dict[str, Any]:
        made.append("")
        return {"id": len(made)} if len(made) <= 1 or len(made) % 2 == 0 else {"nothing": True}

    @server.resource("shop://{id}")
    async def thing(id: int) -> str:
        return f"{made[id - 1]} read"

    return server


async def play(text: str, revision: Revision | None = None) -> Scripts:
    scenario = parse_scenario(text, Path("play.toml"))
    opened = players(shop(), Common(revision=revision), scenario, lambda _: None)
    drive = Scripts(LoadPlan(sessions=3, concurrency=3, duration=5, warmup=0), scenario, opened)
    await drive.run()
    return drive


@both_eras
async def test_later_steps_use_what_earlier_ones_have_found(autojump_clock: MockClock, revision: Revision) -> None:
    drive = await play(
        """steps = [
            { call = "create", args = { text = "hi" }, save = { id = "structuredContent.id" } },
            { think = 0.1 },
            { call = "show", args = { id = "${id}" }, save = "text" },
            { read = "shop://${id}", save = "read" },
            { call = "create", args = { text = "${text}, ${read}" }, label = "again" },
            { list = "tools", save = { tool = "tools.0.name" } },
            { repeat = 2, steps = [{ call = "create", args = { text = "${tool}" }, save = "made", label = "more" }] },
            { call = "show", args = { id = "${id}" }, label = "of ${made}" },
        ]""",
        revision,
    )
    tally = drive.tally
    assert tally.errors == {}
    assert tally.counts["scripts"] > 100
    assert tally.steps["read shop://${id}"].count == pytest.approx(tally.counts["scripts"], abs=5), "one label for all"


async def test_what_was_not_saved_is_an_error_of_its_step_and_of_those_that_need_it(autojump_clock: MockClock) -> None:
    drive = await play(
        """steps = [
            { call = "sometimes", save = { id = "structuredContent.id" } },
            { call = "show", args = { id = "${id}" } },
            { think = 0.1 },
        ]"""
    )
    tally = drive.tally
    assert set(tally.errors) == {"NotSaved"}
    assert tally.examples["NotSaved"] == "the result has no structuredContent.id"
    missing, unsent = tally.steps["call sometimes"].error_count, tally.steps["call show"].error_count
    assert missing == unsent > 10
    assert tally.steps["call show"].count > 10


async def test_a_path_that_leads_nowhere_is_told_before_there_is_any_load(autojump_clock: MockClock) -> None:
    with pytest.raises(StepFailed, match=r"call create: the result has no structuredContent\.nr"):
        await play('steps = [{ call = "create", args = { text = "x" }, save = { id = "structuredContent.nr" } }]')
