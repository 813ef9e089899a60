"""Every flag of `run` and `serve` as a variable of the environment, for containers and service managers."""

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import pytest
from cyclopts import App

from callboard.cli.run import APP as RUN
from callboard.cli.serve import APP as SERVE
from callboard.cli.serve_flags import Where
from callboard.transports.limits import Settings

FLAGS = [(owner, field.name) for owner in (Where, Settings) for field in attrs.fields(owner)]


def given(app: App, words: Sequence[str] = ()) -> dict[str, Any]:
    """What a command is called with."""
    _, bound, _ = app.parse_args(["target", *words], print_error=False, exit_on_error=False)
    return bound.arguments


def value_of(kind: Any) -> str:
    """Something that a flag of this type can be given, and is not by itself."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is Literal:
        return str(get_args(kind)[-1])
    return {bool: "true", int: "7", float: "7.5", Path: "/a/file", list[str]: "one.example"}.get(kind, "8123")


@pytest.mark.parametrize("app", [RUN, SERVE], ids=["run", "serve"])
def test_a_variable_says_what_its_flag_says(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    words, usual = list[str](), given(app)
    for owner, name in FLAGS:
        kind = get_type_hints(owner)[name]
        value, flag = value_of(kind), f"--{name.replace('_', '-')}"
        words += [flag] if kind is bool else [flag, value]
        monkeypatch.setenv(f"CALLBOARD_{name.upper()}", value)
    by_variable = given(app)
    monkeypatch.undo()
    by_flag = given(app, words)
    for owner, name in FLAGS:
        place = "where" if owner is Where else "settings"
        said = getattr(by_variable[place], name)
        assert said == getattr(by_flag[place], name), name
        assert said != getattr(usual.get(place, owner()), name), name


def test_a_flag_wins_and_a_list_is_separated_by_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_HTTP", "0.0.0.0:8000")
    monkeypatch.setenv("CALLBOARD_ALLOW_HOST", "one.example two.example")
    where = given(RUN, ["--http", "9000"])["where"]
    assert (where.http, where.allow_host) == ("9000", ["one.example", "two.example"])
