"""The log as an operator asks for it: a line for each request, as text or JSON, from a level on."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard import connect
from callboard.errors import ServerRefused
from tests.process import CALLBOARD, Process, started
from tests.shared import APPS

CANARY = "a canary that nobody may see"


@asynccontextmanager
async def served(*flags: str) -> AsyncIterator[tuple[Process, str]]:
    async with started(*CALLBOARD, "run", str(APPS / "frank.py"), "--http", "0", "--json", *flags) as process:
        told = await process.hear()
        yield process, told["listening"][0]["url"]
        process.signal()


def lines(words: str) -> list[Any]:
    return [json.loads(line) for line in words.splitlines() if line.startswith("{") and '"event"' in line]


async def test_each_request_has_a_line_and_what_was_said_is_in_none() -> None:
    async with served("--access-log", "--log-format", "json") as (process, url), connect(url) as client:
        await client.call("echo", text=CANARY)
        await client.call("fail")
        for _ in range(100):
            await client.call("echo", text="again")
    found = lines(process.words)
    calls = [line for line in found if line["event"] == "request" and line["method"] == "tools/call"]
    assert [line["outcome"] for line in calls] == ["ok", "tool_error", *["ok"] * 100]  # none is merged or left out
    first = calls[0]
    assert (first["name"], first["transport"], first["principal"]) == ("echo", "http", "anonymous")
    assert first["client"].startswith("callboard")
    assert first["ms"] > 0
    assert {"time", "level", "logger"} <= first.keys()
    assert CANARY not in process.words


@pytest.mark.parametrize(("flags", "is_told"), [((), False), (("--debug",), True)])
async def test_a_traceback_is_logged_where_it_is_asked_for(flags: tuple[str, ...], is_told: bool) -> None:
    async with served(*flags, "--log-level", "error") as (process, url), connect(url) as client:
        await client.call("fail")
    assert "handler_failed" in process.words
    assert ("Traceback" in process.words) == is_told
    assert "[info" not in process.words


async def test_a_broker_names_the_server_of_a_request_and_of_what_is_said_on_standard_error(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "callboard", "run", str(APPS / "confiding.py")]}
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"back": entry}}))
    flags = ("--http", "0", "--json", "--access-log", "--log-format", "json", "--log-level", "debug")
    async with started(*CALLBOARD, "serve", str(config), *flags) as process:
        told = await process.hear()
        async with connect(told["listening"][0]["url"]) as client:
            await client.call("back__tell", word="x")
            with pytest.raises(ServerRefused):
                await client.call("unknown")
        await process.wait_said(b"canary-stderr")
        process.signal()
    found = lines(process.words)
    calls = [line for line in found if line["event"] == "request" and line["method"] == "tools/call"]
    assert [(line["name"], line.get("server"), line["outcome"]) for line in calls] == [
        ("back__tell", "back", "ok"),
        ("unknown", None, "-32602"),
    ]
    said = [line for line in found if line["event"] == "backend_stderr" and "canary-stderr" in line["text"]]
    assert [(line["level"], line["backend"]) for line in said] == [("debug", "back")]  # the broker's own are info
