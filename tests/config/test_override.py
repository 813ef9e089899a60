"""`callboard.override` in a file: what is read of it, and what is wrong with it, with its line."""

import json
from pathlib import Path

import pytest

from callboard.codecs.bridge.overrides import ToolOverride
from tests.config.files import mistakes, read, read_one, told

FULL = """[mcpServers.it]
url = "http://h/"

[mcpServers.it.callboard.override.forecast]
title = "Weather"
description = "Ours."
hide = ["debug"]
fixed = { region = "${REGION}", days = 3, exact = 1.5, deep = { a = [true, "${REGION}"] } }
annotations = { readOnlyHint = true }
"""


def test_all_of_it_arrives_in_both_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGION", "north")
    expected = ToolOverride(
        title="Weather",
        description="Ours.",
        hide=("debug",),
        fixed={"region": "north", "days": 3, "exact": 1.5, "deep": {"a": [True, "north"]}},
        annotations={"readOnlyHint": True},
    )
    [spec] = read(tmp_path, FULL).backends
    assert spec.settings.override == {"forecast": expected}
    assert "north" not in repr(expected)  # it may be a secret
    spec = read_one(tmp_path, url="http://h/", callboard={"override": {"a": {"fixed": {"x": None}}}})
    assert spec.settings.override == {"a": ToolOverride(fixed={"x": None})}


@pytest.mark.parametrize(
    ("written", "where", "why"),
    [
        ({"a": 1}, ".a", "must be an object"),
        ({"a": {"title": ""}}, ".a.title", "must be a string"),
        ({"a": {"description": "d" * 9000}}, ".a.description", "is longer than 8192 characters"),
        ({"a": {"hide": "x"}}, ".a", "must be a list of strings"),
        ({"a": {"hide": ["x"], "fixed": {"x": 1}}}, ".a.fixed.x", 'hides "x" as well'),
        ({"a": {"fixed": {"x": 2**70}}}, ".a.fixed.x", "is not a value that JSON has"),
        ({"a": {"fixed": {"x": "${NOT_SET_ANYWHERE}"}}}, ".a.fixed.x", "NOT_SET_ANYWHERE"),
        ({"a": {"annotations": {"readOnlyHint": "yes"}}}, ".a.annotations.readOnlyHint", "must be true or false"),
    ],
)
def test_mistakes_are_told_where_they_stand(tmp_path: Path, written: object, where: str, why: str) -> None:
    text = json.dumps({"mcpServers": {"it": {"url": "http://h/", "callboard": {"override": written}}}})
    [mistake] = mistakes(tmp_path, text, "mcp.json")
    assert f"callboard.override{where}" in mistake.where
    assert why in mistake.message


def test_a_mistake_has_its_line(tmp_path: Path) -> None:
    [text] = told(tmp_path, FULL.replace("${REGION}", "north").replace("days = 3", "days = 1979-05-27"))
    assert text.startswith("servers.toml:8:")


def test_keys_that_mean_nothing_are_warned_of(tmp_path: Path) -> None:
    override = "[mcpServers.it.callboard.override.a]\n{}"
    for line, why in (
        ('descripton = "x"', "did you mean `description`?"),
        ("", "changes nothing"),
        ("annotations = { readonlyHint = true }", "did you mean `readOnlyHint`?"),
    ):
        text = '[mcpServers.it]\nurl = "http://h/"\n' + override.format(line)
        assert any(why in str(warning) for warning in read(tmp_path, text).warnings)
