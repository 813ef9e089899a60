"""An error of any command with `--json`: one object on standard output, beside the line on standard error."""

import gc
import json
import sys
from pathlib import Path

import pytest

from callboard.cli.main import main


def failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["callboard", *arguments])
    monkeypatch.setattr(gc, "disable", lambda: None)  # as a command does, for its own process
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    assert err.startswith("callboard: ")
    return int(ended.value.code), out


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
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, out = failed(monkeypatch, capsys, *arguments, "--json")
    error = json.loads(out)["error"]
    assert (ended, error["kind"], error["exit_code"]) == (code, kind, code)
    assert failed(monkeypatch, capsys, *arguments) == (code, "")


def test_a_flag_of_the_server_behind_two_dashes_asks_for_no_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failed(monkeypatch, capsys, "list", "--nonsense", "--", "server", "--json") == (2, "")
