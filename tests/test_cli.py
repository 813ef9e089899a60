"""The commands as a person types them: real processes, real exit codes."""

import json
import subprocess
import sys

import pytest

from callboard import __version__

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


def callboard(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "callboard", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_serve_says_what_is_there() -> None:
    done = callboard("serve")
    assert done.returncode == 0
    assert all(revision in done.stdout for revision in REVISIONS)
    assert done.stderr == ""


def test_serve_speaks_json_to_scripts() -> None:
    told = json.loads(callboard("serve", "--json").stdout)
    assert [row["revision"] for row in told["revisions"]] == REVISIONS
    assert [row["era"] for row in told["revisions"]] == ["legacy"] * 4 + ["modern"]
    assert told["version"] == __version__


def test_the_version_is_the_package_s() -> None:
    assert callboard("--version").stdout.strip() == __version__


@pytest.mark.parametrize("arguments", [(), ("--help",), ("serve", "--help")])
def test_help_teaches(arguments: tuple[str, ...]) -> None:
    done = callboard(*arguments)
    assert done.returncode == 0
    assert "serve" in done.stdout


def test_a_wrong_command_is_one_clear_error() -> None:
    done = callboard("sevre")
    assert done.returncode != 0
    assert "sevre" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
