"""An error of any command with `--json`: one object on standard output, beside the line on standard error."""

import json
from pathlib import Path

import pytest

from tests.cli.in_process import InProcess


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InProcess:
    return InProcess(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["status", "1"], 3, "cannot_connect"),
        (["status", "nonsense://"], 2, "usage"),
        (["top", "1", "--once"], 3, "cannot_connect"),
        (["top", "1", "--interval", "1ms"], 2, "usage"),
        (["approve", "calls", "1"], 3, "cannot_connect"),
        (["approve", "nowhere.toml"], 2, "cannot_serve"),
        (["run", "nowhere.py"], 2, "cannot_serve"),
        (["run", "x.py", "--nonsense"], 2, "usage"),
        (["serve", "nowhere.toml"], 2, "cannot_serve"),
        (["token", "list", "nowhere"], 2, "cannot_serve"),
        (["token", "new", "ada", "--expires", "soon"], 2, "cannot_serve"),
        (["check"], 2, "usage"),
    ],
)
def test_an_error_is_one_object_for_scripts(
    arguments: list[str],
    code: int,
    kind: str,
    run: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, out, line = run(*arguments, "--json")
    error = json.loads(out)["error"]
    assert (ended, error["kind"], error["exit_code"]) == (code, kind, code)
    assert line.startswith("callboard: ")
    assert run(*arguments)[:2] == (code, "")


def test_a_flag_of_the_server_behind_two_dashes_asks_for_no_json(run: InProcess) -> None:
    assert run("list", "--nonsense", "--", "server", "--json")[:2] == (2, "")
