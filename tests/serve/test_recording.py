"""Recordings of running servers: what is said, by which server, without secrets, and never at the cost of a call."""

import errno
import json
import os
import runpy
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog.testing

from callboard import Context, Declined, Server, connect
from callboard.broker import Broker
from callboard.codecs.linked_session import session_to_turtle
from callboard.codecs.recording import HIDDEN, read_lines
from callboard.codecs.revisions import ElicitResult
from callboard.config import BackendSpec
from callboard.errors import CannotServe
from callboard.serve import recording as recordings
from callboard.serve.options import ServePlan
from callboard.serve.recording import ENTRY_WEIGHT, Recorder, recording
from callboard.serve.run import serve
from tests.serve.test_serve import hosted, served

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Person:
    name: str


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def told(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def methods(file: Path, direction: str) -> list[str]:
    return [line["message"].get("method", "") for line in told(file) if line["direction"] == direction]


def spec(name: str, server: Server) -> BackendSpec:
    target: Any = server  # in this process
    return BackendSpec(name=name, target=target)


def servers() -> list[BackendSpec]:
    files, printer, clock = Server("files"), Server("printer"), Server("clock")

    @files.tool
    async def read_file(path: str) -> str:
        return path

    @files.tool
    async def search(folder: str, *, deep: bool = False) -> str:
        return folder

    @printer.tool(name="print")
    async def print_(file: str) -> str:
        return file

    @clock.tool
    async def now(zone: str) -> str:
        return zone

    return [spec("files", files), spec("printer", printer), spec("clock", clock)]


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_a_hosted_server_records_both_directions(tmp_path: Path, revision: str, transport: Any) -> None:
    file = tmp_path / "session.jsonl"
    ways = {"http": "127.0.0.1:0", "ws": "127.0.0.1:0", "record": str(file)}
    async with served(hosted(), **ways) as here, connect(here.url(transport), revision=revision) as client:
        await client.call("echo", text="hello")
    asked = [line for line in told(file) if line["message"].get("method") == "tools/call"]
    assert len(asked) == 1
    assert asked[0]["server"] == "app"
    assert asked[0]["direction"] == "to_server"
    assert asked[0]["time"].endswith("Z")
    answers = [
        line["message"]["result"]["content"][0]["text"]
        for line in told(file)
        if line["direction"] == "from_server"
        and line["session"] == asked[0]["session"]
        and line["message"].get("id") == asked[0]["message"]["id"]
    ]
    assert answers == ["hello"]
    first = {"2025-06-18": "initialize", "2026-07-28": "server/discover"}[revision]
    assert methods(file, "to_server")[0] == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_questions_progress_and_changes_are_recorded_once(tmp_path: Path) -> None:
    file, server = tmp_path / "session.jsonl", Server("app")

    @server.tool
    async def ask(*, ctx: Context) -> str:
        await ctx.report(1)
        try:
            await ctx.elicit("Who?", Person)
        except Declined:
            return "declined"
        return "told"

    async def decline(_: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with (
        served(server, http="127.0.0.1:0", record=str(file)) as here,
        connect(here.url("http"), revision="2025-06-18", elicitation=decline) as client,
    ):
        calling = client.call_with("ask", {})
        async with calling:
            async for _ in calling.progress:
                pass
    said = methods(file, "from_server")
    assert said.count("elicitation/create") == 1
    assert said.count("notifications/progress") == 1
    (question,) = (line for line in told(file) if line["message"].get("method") == "elicitation/create")
    key = question["message"]["id"]
    answers = [line for line in told(file) if line["direction"] == "to_server" and line["message"].get("id") == key]
    assert [one["message"]["result"] for one in answers if "result" in one["message"]] == [{"action": "decline"}]


async def test_a_query_over_three_servers_finds_each_tool_once(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    broker: Any = Broker(servers())
    async with (
        served(broker, http="127.0.0.1:0", record=str(file)) as here,
        connect(here.url("http")) as client,
    ):
        for _ in range(2):
            assert len(await client.tools()) == 4
        await client.call("files__read_file", path="a.txt")
    turtle = "".join(session_to_turtle(read_lines(file.read_bytes())))
    example = runpy.run_path(str(ROOT / "examples" / "which_tools.py"))
    rows: Callable[[str], list[list[str]]] = example["rows"]
    assert rows(turtle) == [
        ["files", "read_file", "path"],
        ["files", "search", "folder"],
        ["printer", "print", "file"],
    ]
    assert methods(file, "to_server").count("tools/call") == 1
    page = (ROOT / "docs" / "howto" / "linked-data.md").read_text()
    assert example["QUERY"].strip() in page
    for row in rows(turtle):
        assert f"{row[0]:<9}{row[1]:<14}{row[2]}" in page


async def test_secrets_do_not_reach_the_file(tmp_path: Path) -> None:
    file, server = tmp_path / "session.jsonl", Server("app")

    @server.tool
    async def log_in(password: str, url: str) -> dict[str, str]:
        return {"access_token": f"{password}-2", "url": url}

    word = "geheim"
    async with (
        served(server, http="127.0.0.1:0", record=str(file)) as here,
        connect(here.url("http"), headers={"Authorization": f"Bearer {word}"}) as client,
    ):
        result = await client.call("log_in", password=word, url=f"https://ada:{word}@example.com/")
        assert result.structured_content == {"access_token": f"{word}-2", "url": f"https://ada:{word}@example.com/"}
    assert "geheim" not in file.read_text()
    assert HIDDEN in file.read_text()


def test_a_batch_has_a_line_for_each_message_and_nonsense_has_none(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    with recording(str(file)) as tape:
        tape.take("s", "1", "to_server", b"[" + PING + b"," + PING + b", 7]")
        tape.take("s", "1", "to_server", b"{")
        tape.take("s", "1", "to_server", b"[" * 100_000)
    assert len(told(file)) == 2


def test_a_recording_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    for _ in range(2):
        with recording(str(file)) as tape:
            tape.take("s", "1", "to_server", PING)
    assert len(told(file)) == 2


def test_a_recording_ends_at_its_limit_with_one_warning(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    with structlog.testing.capture_logs() as logs, recording(str(file), 300) as tape:
        for _ in range(10):
            tape.take("s", "1", "to_server", PING)
    assert 0 < file.stat().st_size <= 300
    assert [line["event"] for line in logs] == ["recording_full"]
    assert tape.dropped == 10 - len(told(file))


def test_a_full_disk_ends_a_recording_at_a_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, write = tmp_path / "session.jsonl", os.write
    room = [300]

    def write_while_there_is_room(handle: int, data: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(handle, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", write_while_there_is_room)
    with structlog.testing.capture_logs() as logs, recording(str(file)) as tape:
        for _ in range(10):
            tape.take("s", "1", "to_server", PING)
    assert [line["event"] for line in logs] == ["recording_failed"]
    assert 0 < len(list(read_lines(file.read_bytes()))) == 10 - tape.dropped
    assert file.read_bytes().endswith(b"\n")
    assert tape.written == file.stat().st_size


def test_what_a_slow_disk_holds_up_is_dropped_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "MAX_WAITING", 4 * 1024 * 1024)  # so much is redacted at once on any machine
    reading, writing = os.pipe()  # which nothing reads for now: the disk is slow
    tape, large = Recorder(writing, "slow"), b'{"jsonrpc":"2.0","x":"' + b"y" * 125_000 + b'"}'
    tape.begin()
    most = recordings.MAX_WAITING // (len(large) + ENTRY_WEIGHT)
    for _ in range(most + 20):
        tape.take("s", "1", "to_server", large)
    assert 10 <= tape.dropped <= 20
    parts: list[bytes] = []

    def drain() -> None:
        while data := os.read(reading, 1 << 20):
            parts.append(data)

    thread = threading.Thread(target=drain)
    thread.start()
    tape.take("s", "1", "to_server", PING)
    tape.end()
    thread.join(10)
    os.close(reading)
    lines = [json.loads(line) for line in b"".join(parts).splitlines()]
    assert sum(line.get("dropped", 0) for line in lines) == tape.dropped
    assert len([line for line in lines if "message" in line]) == most + 21 - tape.dropped


async def test_a_file_that_cannot_be_written_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(CannotServe, match="No such file"):
        await serve(hosted(), http="127.0.0.1:0", record=str(tmp_path / "no" / "file"))


def test_workers_record_nothing() -> None:
    with pytest.raises(CannotServe, match="one process"):
        ServePlan(http="0", workers=2, record="x")


async def test_without_a_file_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with served(hosted(), http="127.0.0.1:0") as here, connect(here.url("http")) as client:
        await client.call("echo", text="x")
    assert os.listdir() == []  # noqa: PTH208 - of an async function that waits for nothing here
