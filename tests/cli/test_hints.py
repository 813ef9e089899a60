"""Errors that name what to do: a flag, another scheme, a name that is nearly the same."""

import gc
import sys
from pathlib import Path

import pytest
import trio

from callboard.cli.main import main
from callboard.client import connect
from callboard.errors import CannotConnect
from tests.shared import APPS

HANDY = f"{APPS / 'handy.py'}:server"


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["callboard", *arguments])
    monkeypatch.setattr(gc, "disable", lambda: None)  # as a command does, for its own process
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "flag"),
    [(("ask", "question=who"), "--sampling TEXT"), (("folders",), "--root DIR")],
)
def test_a_question_that_a_flag_would_answer_names_the_flag(
    call: tuple[str, ...], flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, capsys, "call", HANDY, *call).endswith(f"(-32021); answer it with {flag}\n")


def test_a_name_like_it_is_suggested_for_an_unknown_tool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, capsys, "call", HANDY, "siz", "text=a").endswith("; did you mean 'size'?\n")


def test_what_is_odd_in_a_file_stands_beside_its_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "typo.json"
    file.write_text('{"mcpServers": {"a": {"comand": "true"}}}')
    lines = said(monkeypatch, capsys, "serve", str(file), "--http", "0").splitlines()
    assert len(lines) == 2
    assert "must have exactly one of" in lines[0]
    assert lines[1].endswith("did you mean `command`?")


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
