"""Errors that name what to do: a flag, another scheme, a name that is nearly the same."""

import socket
from pathlib import Path

import pytest
import trio

from callboard.cli.client import _told_of
from callboard.client import connect
from callboard.codecs.revisions import ServerCapabilities
from callboard.codecs.revisions.capabilities import ListChangedCapability
from callboard.errors import CannotConnect
from callboard.server.faults import DEBUG
from tests.cli.in_process import InProcess
from tests.shared import APPS

HANDY = f"{APPS / 'handy.py'}:server"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InProcess:
    return InProcess(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("call", "flag"),
    [(("ask", "question=who"), "--sampling TEXT"), (("folders",), "--root DIR")],
)
def test_a_question_that_a_flag_would_answer_names_the_flag(call: tuple[str, ...], flag: str, run: InProcess) -> None:
    assert run("call", HANDY, *call)[2].endswith(f"(-32021); answer it with {flag}\n")


def test_a_name_like_it_is_suggested_for_an_unknown_tool(run: InProcess) -> None:
    assert run("call", HANDY, "siz", "text=a")[2].endswith("; did you mean 'size'?\n")


def test_what_is_odd_in_a_file_stands_beside_its_mistake(run: InProcess, tmp_path: Path) -> None:
    file = tmp_path / "typo.json"
    file.write_text('{"mcpServers": {"a": {"comand": "true"}}}')
    lines = run("serve", str(file), "--http", "0")[2].splitlines()
    assert len(lines) == 2
    assert "must have exactly one of" in lines[0]
    assert lines[1].endswith("did you mean `command`?")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["bench", HANDY, "--rate", "abc"], "--rate: expected a number, not 'abc'"),
        (["bench", HANDY, "--sessions", "ten"], "--sessions: expected a whole number, not 'ten'"),
        (["call", HANDY, "plot", "--args", "@nowhere"], "--args: nowhere: No such file or directory"),
        (["call", HANDY, "plot", "points:=@nowhere"], "points: nowhere: No such file or directory"),
        (
            ["token", "new", "ada", "--expires", "soon"],
            "--expires soon: expected a span such as 90d, 12h or 4w, or a time such as 2027-01-01",
        ),
        (
            ["run", HANDY, "--http", "0", "--tls-key", "x"],
            "TLS needs a certificate and its key: --tls-cert FILE and --tls-key FILE",
        ),
    ],
)
def test_a_mistake_names_its_flag_and_what_is_expected(arguments: list[str], line: str, run: InProcess) -> None:
    assert run(*arguments)[2] == f"callboard: {line}\n"


def test_log_messages_that_a_legacy_server_sends_unasked_are_shown_with_v_only(run: InProcess) -> None:
    call = ("call", HANDY, "talk", "--revision", "2025-06-18")
    assert "on the log" not in run(*call)[2]
    assert "info: on the log" in run(*call, "-v")[2]


@pytest.mark.parametrize(("typed", "usage"), [(["help"], "callboard COMMAND"), (["help", "call"], "callboard call")])
def test_help_is_a_word_for_the_flag(typed: list[str], usage: str, run: InProcess) -> None:
    assert run(*typed)[1].startswith(f"Usage: {usage}")


def test_dev_on_a_busy_port_names_the_flag_for_another(run: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        monkeypatch.setenv(DEBUG, "1")  # as the command does, for good
        words = run("dev", HANDY, "--port", str(busy.getsockname()[1]))[2]
    assert words.endswith("already in use; choose another port with --port, or any that is free with --port 0\n")


def test_listen_follows_the_lists_of_whose_changes_a_server_tells() -> None:
    tools, prompts = ListChangedCapability(list_changed=True), ListChangedCapability()
    assert _told_of(ServerCapabilities(tools=tools, prompts=prompts)) == {
        "tools": True,
        "prompts": False,
        "resources": False,
    }
    assert all(_told_of(ServerCapabilities()).values())


async def test_a_server_that_closes_at_plain_http_may_serve_tls() -> None:
    async def close_at_once(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, close_at_once, 0)
        port = listeners[0].socket.getsockname()[1]
        for scheme in ("http", "ws"):
            with pytest.raises(CannotConnect, match=f"; if it serves TLS, use {scheme}s://$"):
                async with connect(f"{scheme}://localhost:{port}/mcp"):
                    pass
        nursery.cancel_scope.cancel()
