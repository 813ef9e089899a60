"""Servers whose lists are not what the protocol says: a client, and `callboard list`, show what can be shown."""

import sys
from pathlib import Path
from typing import Any, Final

import pytest
from trio.testing import MockClock

from callboard.client import connect
from callboard.client.cache import MAX_LIST
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.errors import BadAnswer, ServerRefused
from tests.client.stage import CACHED, Puppet, played
from tests.process import callboard


def extra(puppet: Puppet) -> dict[str, Any]:
    return dict(CACHED) if puppet.is_modern else {}


@pytest.mark.finding("security-23")
async def test_a_list_of_fat_pages_ends_at_so_many_bytes(autojump_clock: MockClock) -> None:
    asked = 0
    page = [{"name": "x", "inputSchema": {"type": "object"}, "description": "x" * 1_000_000}]

    async def play(puppet: Puppet) -> None:
        nonlocal asked
        while True:
            request = await puppet.hear("tools/list")
            asked += 1
            await puppet.answer(request, tools=page, nextCursor=str(asked), **extra(puppet))

    async with connect(played(play)) as client:
        with pytest.raises(BadAnswer, match=f"larger than {MAX_LIST} bytes"):
            await client.tools()
    assert asked < 2 + MAX_LIST / 1_000_000


SLOPPY: Final[list[dict[str, Any]]] = [
    {"name": "none"},
    {"name": "empty", "inputSchema": {}},
    {"name": "php", "inputSchema": []},
    {"name": "nulls", "inputSchema": {"properties": None, "required": None}, "title": None, "annotations": None},
    {"name": "odd", "inputSchema": {"type": "object"}, "title": 7},
    {"name": "bad", "inputSchema": ["x-mcp-header"]},
    {"title": "nameless"},
]


@pytest.mark.finding("protocol-1.1")
@pytest.mark.parametrize("revision", [R4, R5])
async def test_sloppy_tools_are_mended_and_what_cannot_be_is_left_out(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/list")
        await puppet.answer(request, tools=SLOPPY, **extra(puppet))

    async with connect(played(play, revision)) as client:
        found = await client.tools()
    assert [one.name for one in found] == ["none", "empty", "php", "nulls", "odd"]
    assert {one.input_schema["type"] for one in found} == {"object"}


@pytest.mark.finding("protocol-1.2")
@pytest.mark.parametrize("revision", [R4, R5])
@pytest.mark.parametrize("answer", [{"prompts": None}, {}])
async def test_a_list_that_is_null_or_missing_is_empty(
    answer: dict[str, Any], revision: Revision, autojump_clock: MockClock
) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("prompts/list")
        await puppet.answer(request, **answer, **extra(puppet))

    async with connect(played(play, revision)) as client:
        assert await client.prompts() == []


@pytest.mark.finding("protocol-1.2")
async def test_what_is_no_list_is_still_refused(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.answer(await puppet.hear("prompts/list"), prompts="x", **extra(puppet))
        await puppet.refuse(await puppet.hear("prompts/list"), -32603, "boom")

    async with connect(played(play)) as client:
        with pytest.raises(BadAnswer):
            await client.prompts()
        with pytest.raises(ServerRefused):
            await client.prompts()


GO_LIKE: Final = """
import json, sys
answers = {
    "initialize": {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "prompts": {},
        "resources": {}}, "serverInfo": {"name": "go", "version": "1"}}},
    "tools/list": {"result": {"tools": [{"name": "fine", "inputSchema": {}}]}},
    "prompts/list": {"result": {"prompts": None}},
    "resources/list": {"error": {"code": -32603, "message": "boom"}},
    "tools/call": {"result": {"content": [{"type": "text", "text": "called"}]}},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = answers.get(asked["method"], {"error": {"code": -32601, "message": "no"}})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@pytest.mark.finding("protocol-1.2", "protocol-1.1")
def test_the_command_shows_the_lists_that_there_are(tmp_path: Path) -> None:
    server = tmp_path / "go_like.py"
    server.write_text(GO_LIKE)
    done = callboard("list", "--", sys.executable, str(server))
    assert done.returncode == 0
    assert done.stdout.split()[:2] == ["tool", "fine"]
    assert "cannot list resources: boom" in done.stderr
    assert "templates" not in done.stderr
