"""`callboard bench`, as people and pipelines use it: real processes, pipes and terminals."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.at_terminal import CTRL_C, at_terminal, piped
from tests.process import CALLBOARD, PATIENCE, started
from tests.served import Addresses, served
from tests.shared import APPS

APP: Final = str(APPS / "steady.py")
CURIOUS: Final = str(APPS / "curious.py")
COMMAND: Final = ("--", sys.executable, "-m", "callboard", "run", APP)
SHORT: Final = ("--duration", "400ms", "--warmup", "50ms")
"""Of a loop that sends as fast as it is answered: hundreds of requests, and both cores busy for as long."""
A_SECOND: Final = ("--duration", "1s", "--warmup", "50ms")
ECHO: Final = ("--tool", "echo", "--args", '{"text": "hello"}')

needs_terminal = pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid to give it a terminal")


@pytest.fixture(scope="module")
def house() -> Iterator[Addresses]:
    with served(f"{APP}:server", ws=True) as addresses:
        yield addresses


def measured(*arguments: str) -> Any:
    done = piped("bench", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", ["http", "ws"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_server_at_a_url_is_put_under_load(house: Addresses, way: str, revision: str) -> None:
    load = ("--sessions", "2", "--concurrency", "4", "--revision", revision)
    told = measured(getattr(house, way), *ECHO, *load, *SHORT)
    assert told["requests"] > 20
    assert told["errors"] == {}
    assert (told["revision"], told["server"], told["work"]) == (revision, "steady 1.0.0", "call echo")
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"] < 5000
    assert told["seconds"] == 0.4
    assert told["settings"]["generator"] == "prepared requests"
    assert 0 < told["generator_cpu"] < 1.5
    assert told["server_rss"] is None, "the memory of the server is unknown"


def test_a_command_is_and_what_it_takes_of_the_machine_is_told() -> None:
    told = measured(*ECHO, "--rate", "50", *A_SECOND, *COMMAND)
    assert told["requests"] == pytest.approx(50, abs=10)
    assert told["settings"]["rate"] == 50
    assert told["target"].endswith(f"callboard run {APP}")
    if sys.platform == "linux":
        assert told["server_rss"] > 2**20
        assert told["server_cpu"] >= 0


def test_a_server_in_a_file_is_and_what_only_reads_is_found() -> None:
    told = measured(f"{APP}:server", *SHORT)
    assert told["work"] == "call now"
    assert told["target"] == f"{APP}:server"


@pytest.mark.parametrize("way", ["http", "ws"])
def test_those_who_come_and_go_are_counted(house: Addresses, way: str) -> None:
    told = measured(getattr(house, way), *ECHO, "--requests", "12", "--profile", "churn", "--concurrency", "4")
    assert told["requests"] == 12
    assert told["errors"] == {}
    assert told["settings"]["load"] == "12 requests, a session each, 4 at once (closed loop)"
    assert (told["server"], told["settings"]["generator"]) == ("steady 1.0.0", "client")


def test_an_entry_of_a_file_is(house: Addresses, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"steady": {"url": house.http}}}))
    told = measured(f"{file}#steady", "--read", "steady://note", "--list", *SHORT)
    assert told["work"] == "read steady://note, list tools"
    assert told["requests"] > 20


def test_in_a_pipe_there_are_lines_and_files_with_every_second_and_with_plots(house: Addresses, tmp_path: Path) -> None:
    file, html = tmp_path / "seconds.csv", tmp_path / "report.html"
    done = piped("bench", house.http, *ECHO, *A_SECOND, "--csv", str(file), "--html", str(html))
    assert done.returncode == 0
    assert done.stderr.startswith("1/1 s: ")
    rows = dict(line.split("\t") for line in done.stdout.splitlines())
    assert rows.keys() >= {"requests/s", "p50", "p90", "p99", "p99.9", "max", "errors", "generator CPU"}
    assert rows["load"] == "1 session, 1 at once (closed loop)"
    assert rows["command"].startswith(f"callboard bench {house.http} --tool echo")
    assert rows.keys() >= {"date", "machine", "versions"}
    head, first, *_ = file.read_text().splitlines()
    assert head == "second,requests,p50_ms,p99_ms,max_ms,errors,started,label"
    assert first.startswith("0,")
    assert html.read_text().count("<svg") == 4


def test_a_limit_that_is_broken_fails_a_pipeline(house: Addresses) -> None:
    done = piped("bench", house.http, *ECHO, *SHORT, "--fail-if", "max>1us", "--fail-if", "errors>0")
    assert done.returncode == 1
    assert "callboard: limit exceeded: max>1us (measured: " in done.stderr
    assert "errors>0" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["http://mcp.example.com/mcp", "--list"], 2, "--yes-remote"),
        (["ws://192.0.2.1/mcp", "--list"], 2, "--yes-remote"),
        ([APP, "--duration", "soon"], 2, "is not a time"),
        ([APP, "--fail-if", "p99"], 2, "is not a limit"),
        ([APP, "--csv", "/there/is/no/such.csv"], 2, "no such directory"),
        ([APP, "--revision", "1999-01-01"], 2, "--revision"),
        (["nothing"], 2, "is not a target"),
        (["http://127.0.0.1:9/mcp", "--list"], 3, ""),
        ([CURIOUS], 2, "choose one with --tool, or use --list: "),
        ([APP, "--tool", "fail"], 4, "the tool fail failed: it did not work"),
        ([APP, "--tool", "none"], 4, "none"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(arguments: list[str], code: int, said: str) -> None:
    done = piped("bench", *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("callboard: ")


async def test_ctrl_c_ends_it_and_what_was_measured_is_shown(house: Addresses) -> None:
    async with started(*CALLBOARD, "bench", house.http, *ECHO, "--duration", "10m", "--warmup", "0") as process:
        await process.wait_said(b"1/600 s: ")
        process.signal(signal.SIGINT)
        shown = [line async for line in _lines(process)]
    assert process.process.returncode == 130
    assert any(line.startswith("requests/s\t") for line in shown)
    assert "Traceback" not in process.words


async def _lines(process: Any) -> Any:
    while (line := await process.line()) is not None:
        yield line.decode()


@needs_terminal
async def test_at_a_terminal_it_is_seen_how_it_goes() -> None:
    async with at_terminal("bench", *ECHO, "--duration", "10m", "--warmup", "0", *COMMAND) as terminal:
        for shown in ("in flight", "p99.9", "server CPU", "server memory"):
            await terminal.wait_shown(shown)
        await terminal.press(CTRL_C)
        await terminal.wait_shown("closed loop")
        assert await terminal.wait_ended() == 130


def test_whoever_reads_may_have_seen_enough() -> None:
    with subprocess.Popen(
        [*CALLBOARD, "bench", APP, "--list", "--duration", "0.2", "--warmup", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, words = process.communicate(timeout=PATIENCE)
    assert (process.returncode, b"Traceback" in words) == (0, False), words
