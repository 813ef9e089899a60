"""A fork of the fork server behaves like a new interpreter: other tests rely on it."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.fork_server import forked
from tests.process import CALLBOARD, started
from tests.shared import APPS

APP: Final = str(APPS / "curious.py")


def done(command: Sequence[str], *arguments: str, **more: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **more},
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["list", APP, "--json"],
        ["check", "servers.json"],
        ["approve", "nowhere.json", "x"],
        ["login", "ftp://nowhere"],
        ["bench", APP, "--duration", "soon"],
    ],
    ids=" ".join,
)
def test_a_fork_prints_and_exits_like_a_new_process(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = {"command": "${CALLBOARD_TEST_PROGRAM}"}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"one": entry}}))
    new = done(CALLBOARD, *arguments, COLUMNS="77", CALLBOARD_TEST_PROGRAM="true")
    assert done(forked(), *arguments, COLUMNS="77", CALLBOARD_TEST_PROGRAM="true") == new
    assert new[1] + new[2]


async def test_signals_are_forwarded_and_one_that_kills_is_the_status() -> None:
    async with started(*forked(), "run", APP) as process:
        await process.wait_said(b"curious")
        process.signal(signal.SIGTERM)
        assert await process.wait() == 0
    async with started(*forked("tests.apps.killed")) as process:
        assert await process.wait() == -signal.SIGKILL


async def test_a_fork_is_killed_with_its_client() -> None:
    async with started(*forked(), "run", APP) as process:
        await process.wait_said(b"curious")
        process.signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        assert process.process.stdout is not None
        with trio.fail_after(5):
            assert await process.process.stdout.receive_some() == b""  # the fork had the other end
