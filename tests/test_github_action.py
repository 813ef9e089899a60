"""The GitHub Action: its scripts run as written, and what they run is a command that the command line takes."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from callboard.bench.limits import Limit
from callboard.cli.bench_flags import Load
from callboard.cli.compare import APP
from tests.shared import ROOT

FILE = ROOT / "deploy" / "github-action" / "action.yml"
ACTION: dict[str, Any] = yaml.safe_load(FILE.read_text())
STUB = '#!/bin/sh\nprintf "%s\\0" "$@" > "$RUNNER_TEMP/words"\nexit 1\n'


def step(name: str) -> dict[str, Any]:
    [found] = [one for one in ACTION["runs"]["steps"] if one["name"] == name]
    return dict(found)


def defaults() -> dict[str, str]:
    """The variables of the scripts, as GitHub fills them in."""
    found = {}
    for one in ACTION["runs"]["steps"]:
        for variable, text in one["env"].items():
            name = text.removeprefix("${{ inputs.").removesuffix(" }}")
            found[variable] = str(ACTION["inputs"][name].get("default", ""))
    return found


def ran(script: dict[str, Any], folder: Path, **given: str) -> list[str]:
    """The words of the command that a script runs; its exit code is that of the command."""
    for name in ("callboard", "pip"):
        command = folder / "callboard" / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(STUB)
        command.chmod(0o755)
    variables = {"RUNNER_TEMP": folder, "GITHUB_OUTPUT": folder / "output", "GITHUB_STEP_SUMMARY": folder / "summary"}
    env = {**os.environ, **defaults(), **{name: str(path) for name, path in variables.items()}, **given}
    done = subprocess.run(["/bin/bash", "-eo", "pipefail", "-c", script["run"]], env=env, cwd=folder, check=False)
    assert done.returncode == 1
    return (folder / "words").read_text().split("\0")[:-1]


def load_of(words: list[str]) -> tuple[str, Load]:
    assert words[0] == "bench"
    _, bound, _ = APP.parse_args(words[1:], exit_on_error=False, print_error=False)
    load = bound.arguments["load"]
    load.plan()
    load.work()
    return bound.args[0], load


def test_it_is_a_composite_action_whose_inputs_never_stand_in_a_script() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert ACTION["outputs"]["folder"]["value"] == "${{ steps.bench.outputs.folder }}"
    assert step("Load test")["id"] == "bench"
    for one in ACTION["runs"]["steps"]:
        assert one["shell"] == "bash"
        assert "${{" not in one["run"]
    used = {text for one in ACTION["runs"]["steps"] for text in one["env"].values()}
    assert used == {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}


@pytest.mark.parametrize(
    ("flags", "tool", "args"),
    [
        ("", None, None),
        (
            """--tool echo\n --args '{"text": "a  b; $(touch owned)"}' --rate 200""",
            "echo",
            '{"text": "a  b; $(touch owned)"}',
        ),
    ],
)
def test_what_it_runs_is_a_load_test(tmp_path: Path, flags: str, tool: str | None, args: str | None) -> None:
    hostile = 'label `touch owned` $(touch owned) "; touch owned'
    words = ran(
        step("Load test"),
        tmp_path,
        TARGET="app.py:server",
        FLAGS=flags,
        FAIL_IF="p99>20ms\n\nerrors>0\n",
        LABEL=hostile,
    )
    target, load = load_of(words)
    assert target == "app.py:server"
    assert load.limits() == [Limit.parse("p99>20ms", "steady"), Limit.parse("errors>0", "steady")]
    assert load.label == hostile
    assert load.tool == (tool and [tool])
    assert load.args == (args and [args])
    folder = (tmp_path / "output").read_text().strip().removeprefix("folder=")
    assert {file.parent for file in (load.junit, load.html, load.csv) if file} == {Path(folder)}
    assert Path(folder).is_dir()
    assert load.summary == tmp_path / "summary"
    assert not list(tmp_path.rglob("owned"))


def test_it_installs_the_package_that_is_named(tmp_path: Path) -> None:
    words = ran(step("Install callboard"), tmp_path, PYTHON="true", PACKAGE="callboard==0.1.0")
    assert words == ["install", "--quiet", "--disable-pip-version-check", "--", "callboard==0.1.0"]
    assert defaults()["PACKAGE"] == "callboard"
