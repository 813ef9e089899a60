"""The admin listener: health as an orchestrator asks for it, of a broker that is a process of its own."""

import json
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import psutil
import pytest
import trio

from callboard import Server, connect
from callboard.errors import CannotServe
from callboard.serve.options import Ready
from callboard.serve.run import serve
from tests.process import CALLBOARD, Process, callboard, started
from tests.shared import APPS

APP: Final = str(APPS / "noisy.py")
_LENGTH: Final = re.compile(rb"(?is)content-length: ([0-9]+)\r\n.*?\r\n\r\n")
AT_ONCE: Final = {"restart": {"first": 0.02, "most": 0.1, "times": 1000}}


@attrs.frozen
class Served:
    """A broker that is there."""

    process: Process
    told: Mapping[str, Any]

    def url(self, transport: str = "http") -> str:
        return next(str(one["url"]) for one in self.told["listening"] if one["transport"] == transport)

    async def ask(self, path: str, **headers: str) -> tuple[int, str]:
        return await ask(self.url("admin"), path, **headers)


async def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and body of one request on a connection of its own."""
    at = urlsplit(url)
    said = {"Host": at.netloc, "Connection": "close", **{key.title(): value for key, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    async with await trio.open_tcp_stream(at.hostname or "", at.port or 0) as stream:
        await stream.send_all(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
        answer = b""
        while (length := _LENGTH.search(answer)) is None or len(answer) < length.end() + int(length[1]):
            data = await stream.receive_some()
            assert data, answer
            answer += data
    return int(answer.split()[1]), answer[length.end() :].decode()


@asynccontextmanager
async def served(folder: Path, entry: Mapping[str, Any]) -> AsyncIterator[Served]:
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"only": entry}}))
    flags = ("--http", "0", "--admin", "0", "--json")
    async with started(*CALLBOARD, "serve", str(config), *flags) as process:
        while (line := await process.line()) == b"loading":
            pass
        yield Served(process, json.loads(line or b"{}"))


async def ended(here: Served) -> None:
    here.process.signal()
    assert await here.process.wait() == 0
    assert "Traceback" not in here.process.words


async def test_it_is_ready_as_long_as_a_backend_is(tmp_path: Path) -> None:
    leave = tmp_path / "leave"
    leave.touch()
    script = f"test -e {leave} || exit 7; exec {sys.executable} -m callboard run {APP}"
    entry = {"command": "sh", "args": ["-c", script], "callboard": AT_ONCE}
    async with served(tmp_path, entry) as here:
        assert await here.ask("/readyz") == (200, "ok\n")
        (backend,) = psutil.Process(here.process.process.pid).children()
        leave.unlink()
        backend.kill()
        killed = time.monotonic()
        await here.process.wait_said(b"backend_lost")
        assert await here.ask("/readyz") == (503, "not ready\n")
        assert time.monotonic() - killed < 1
        assert await here.ask("/livez") == (200, "ok\n")
        leave.touch()
        while await here.ask("/readyz") != (200, "ok\n"):  # noqa: ASYNC110  # it is another process
            await trio.sleep(0.05)
        await ended(here)


async def test_it_is_not_ready_from_the_moment_it_is_asked_to_end(tmp_path: Path) -> None:
    async with served(tmp_path, {"python": APP}) as here, trio.open_nursery() as nursery:

        async def sleep() -> None:
            async with connect(here.url()) as client:
                assert "slept" in str((await client.call("only__sleep", seconds=2)).content)

        nursery.start_soon(sleep)
        await here.process.wait_said(b"asleep")
        here.process.signal()
        await here.process.wait_said(b"draining")
        assert await here.ask("/readyz") == (503, "not ready\n")
        assert await here.ask("/livez") == (200, "ok\n")
        assert await here.process.wait() == 0
        assert "Traceback" not in here.process.words


async def test_it_says_nothing_but_that_and_to_nobody_who_calls_it_by_another_name(tmp_path: Path) -> None:
    async with served(tmp_path, {"python": APP}) as here:
        url = here.url("admin")
        port = urlsplit(url).port
        assert url == f"http://127.0.0.1:{port}/"
        assert here.told["warnings"] == []
        assert await here.ask("/livez", host=f"localhost:{port}") == (200, "ok\n")
        assert await here.ask("/livez", host=f"evil.example:{port}") == (421, "refused\n")
        assert await here.ask("/readyz", host="localhost:1") == (421, "refused\n")
        assert await here.ask("/readyz", origin="https://evil.example") == (403, "refused\n")
        assert (await here.ask("/mcp"))[0] == 404
        assert (await ask(url, "/livez", "POST"))[0] == 405
        assert (await ask(here.url(), "/livez"))[0] == 404  # only where it is asked for
        await ended(here)


async def test_it_answers_soon_however_much_there_is_to_do(tmp_path: Path) -> None:
    took: list[float] = []
    async with served(tmp_path, {"python": APP}) as here, trio.open_nursery() as nursery:

        async def press() -> None:
            async with connect(here.url()) as client:
                while len(took) < 15:
                    await client.call("only__echo", text="x" * 1000)

        for _ in range(16):
            nursery.start_soon(press)
        while len(took) < 15:
            asked = time.monotonic()
            assert await here.ask("/livez") == (200, "ok\n")
            took.append(time.monotonic() - asked)
        await ended(here)
    assert statistics.median(took) < 0.1  # with 16 clients of this process, which is busier than the broker


async def test_a_server_may_have_one_too_and_others_are_warned_of() -> None:
    enough = trio.Event()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[Ready]) -> None:
                places: Any = {"http": 0, "admin": "0.0.0.0:0"}
                await serve(Server("app"), until=enough.wait, task_status=task_status, **places)

            ready = await nursery.start(run)
            url = next(one.url for one in ready.listening if one.transport == "admin")
            port = urlsplit(url).port
            assert ready.warnings == (
                f"other machines can reach the health checks at 0.0.0.0:{port}",
                f"the live page and the metrics at 0.0.0.0:{port} need --admin-token-file FILE",
            )
            assert (await ask(url, "/api/snapshot", host=f"0.0.0.0:{port}"))[0] == 401
            assert await ask(url, "/readyz", host=f"0.0.0.0:{port}") == (200, "ok\n")
            enough.set()


async def test_it_needs_an_address_of_its_own() -> None:
    with pytest.raises(CannotServe, match="needs its own address"):
        await serve(Server("app"), http=8000, admin=8000)


def test_an_admin_address_that_is_none_is_one_clear_line() -> None:
    done = callboard("serve", "--http", "0", "--admin", "here")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "invalid address 'here'" in done.stderr
