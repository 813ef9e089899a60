"""The listings of the how-tos: pages show them whole, and they do what the pages say."""

import base64
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard import Server, connect
from callboard.codecs.revisions import BlobResourceContents, ImageContent, TextContent
from tests.server.api_stage import served_api, told
from tests.shared import ROOT

HOWTO: Final = ROOT / "docs" / "howto"
LISTINGS: Final = HOWTO / "listings"
_SHOWN: Final = re.compile(r"^<!-- (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def listing(name: str) -> dict[str, Any]:
    return runpy.run_path(str(LISTINGS / name))


def server_of(name: str) -> Server:
    server: Server = listing(name)["server"]
    return server


def test_every_listing_is_shown_whole_on_some_page() -> None:
    shown = {name: text for page in HOWTO.glob("*.md") for name, text in _SHOWN.findall(page.read_text())}
    listings = (path for path in LISTINGS.iterdir() if path.suffix in (".py", ".json"))
    assert shown == {path.name: path.read_text() for path in listings}


def test_the_tests_of_the_page_on_testing_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "test_notes.py"]
    done = subprocess.run(command, cwd=LISTINGS, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


async def test_notes_are_kept_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes.db"))
    async with connect(server_of("notes.py")) as client:
        assert (await client.call("add", text="buy milk")).structured_content == {"result": 1}
    async with connect(server_of("notes.py")) as client:
        assert (await client.call("find", word="milk")).structured_content == {"result": ["buy milk"]}
        assert not (await client.call("remove", number=1)).is_error
        assert (await client.call("find", word="milk")).structured_content == {"result": []}


async def test_an_album_takes_a_file_and_gives_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    picture = b"\x89PNG\r\n\x1a\n and so on"
    async with connect(server_of("album.py")) as client:
        saved = await client.call("save", name="cat.png", data=base64.b64encode(picture).decode())
        [link] = saved.content
        assert link.type == "resource_link"
        [read] = (await client.read(link.uri)).contents
        assert isinstance(read, BlobResourceContents)
        assert base64.b64decode(read.blob) == picture
        assert read.mime_type == "image/png"
        words, shown = (await client.call("show", name="cat.png")).content
        assert isinstance(words, TextContent)
        assert isinstance(shown, ImageContent)
        assert (await client.call("show", name="../cat.png")).is_error
        [drawn] = (await client.call("chart", values=[1, 2])).content
        assert isinstance(drawn, ImageContent)
        assert drawn.mime_type == "image/svg+xml"


async def test_a_job_reports_progress_and_can_go_on_as_a_task(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("a line\n" * number)
    async with connect(server_of("jobs.py")) as client:
        async with client.call("count_lines", folder=str(tmp_path)) as call:
            updates = [update.progress async for update in call.progress]
        assert updates[-1:] == [3]
        assert call.result.structured_content == {"files": 3, "lines": 3}
        task = await client.call("count_lines", task=True, folder=str(tmp_path), pause=0.1)
        assert task.id is not None
        assert (await task).structured_content == {"files": 3, "lines": 3}
        async with client.call("digest", path=str(tmp_path / "1.txt")) as call:
            assert [update.progress async for update in call.progress] == [1]
        assert call.result.content[0].type == "text"


async def test_a_job_that_is_cancelled_cleans_up(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a line\n")
    module = listing("jobs.py")
    async with connect(module["server"]) as client:
        with trio.move_on_after(2) as scope:
            async with client.call("count_lines", folder=str(tmp_path), pause=60.0) as call:
                async for _ in call.progress:
                    pass
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert module["RUNNING"] == set()


async def test_a_mall_has_what_is_mounted_and_what_is_included() -> None:
    async with connect(server_of("mall.py")) as client:
        assert [tool.name for tool in await client.tools()] == ["shop__buy", "opening_hours"]
        [said] = (await client.call("shop__buy", item="pen")).content
        assert isinstance(said, TextContent)
        assert said.text == "one pen, 2 left"


async def test_tools_are_found_and_called() -> None:
    async with connect(server_of("orders.py")) as client:
        assert [tool.name for tool in await client.tools()] == ["search_tools", "call_tool"]
        found = (await client.call("search_tools", query="invoice for a customer")).structured_content
        assert isinstance(found, dict)
        assert [tool["name"] for tool in found["tools"]] == ["send_invoice", "open_ticket"]
        called = await client.call_with(
            "call_tool", {"name": "send_invoice", "arguments": {"customer": "Bo", "amount": 3}}
        )
        assert "Bo pays 3.0" in str(called.content)


async def test_an_api_has_a_tool_for_each_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served_api(lambda asked: told({"asked": asked.target}, 201)) as (url, asked):
        monkeypatch.setenv("TICKETS_URL", url)
        monkeypatch.setenv("TICKETS_KEY", "k")
        async with connect(server_of("tickets.py")) as client:
            assert [tool.name for tool in await client.tools()] == ["open_ticket", "get_ticket"]
            await client.call("open_ticket", subject="It is broken", urgent=True)
            assert "/tickets/7" in str(await client.call("get_ticket", number=7))
        assert asked[0].data == {"subject": "It is broken", "urgent": True}
        assert asked[0].headers["x-key"] == "k"
