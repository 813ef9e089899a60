"""A server as an ASGI application under servers on asyncio: it works, and says in one line why it cannot start."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

import callboard
from benchmarks.peers import environment
from callboard import Server
from tests.served import free_port, is_accepting

APP: Final = """
from contextlib import asynccontextmanager
from callboard import Server

@asynccontextmanager
async def lifespan(server):
    if {fails}:
        raise ConnectionRefusedError("no database")
    yield "here"

server = Server("guest", lifespan=lifespan)

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

app = server.asgi()
"""
START: Final = 40.0
"""Seconds until a server accepts, on a busy machine."""


def uvicorn(port: int) -> list[str]:
    return [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port)]


def hypercorn(port: int) -> list[str]:
    return [sys.executable, "-m", "hypercorn", "app:app", "--bind", f"127.0.0.1:{port}"]


@asynccontextmanager
async def running(folder: Path, command: list[str], *, fails: bool = False) -> AsyncIterator[trio.Process]:
    (folder / "app.py").write_text(APP.replace("{fails}", str(fails)))
    libraries = next((environment("uvicorn").parents[1] / "lib").glob("python*/site-packages"))
    variables = {**os.environ, "PYTHONPATH": f"{Path.cwd()}{os.pathsep}{libraries}", "NO_COLOR": "1"}
    process = await trio.lowlevel.open_process(
        command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 20):
            await process.wait()
        if process.stderr is not None:
            await process.stderr.aclose()


@pytest.mark.parametrize("command", [uvicorn, hypercorn])
async def test_a_server_works_under_a_server_on_asyncio(tmp_path: Path, command: Any) -> None:
    port = free_port()
    with trio.fail_after(START):
        async with running(tmp_path, command(port)):
            while not is_accepting(port):  # noqa: ASYNC110  # of another process
                await trio.sleep(0.05)
            async with callboard.connect(f"http://127.0.0.1:{port}/mcp") as client:
                for number in range(5):
                    result = await client.call("add", a=number, b=1)
                    assert result.structured_content == {"result": number + 1}


async def test_uvicorn_ends_with_one_line_if_the_lifespan_fails(tmp_path: Path) -> None:
    with trio.fail_after(START):
        async with running(tmp_path, uvicorn(free_port()), fails=True) as process:
            assert process.stderr is not None
            said = b"".join([data async for data in process.stderr]).decode()
    assert process.returncode == 3
    assert "the lifespan of 'guest' failed: ConnectionRefusedError: no database (app.py:8 lifespan)" in said
    assert "Application startup failed" in said
    assert "Traceback" not in said


def test_hypercorn_stops_without_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config.from_mapping(bind="127.0.0.1:0", accesslog=None)

    async def at_once() -> None:
        pass

    asyncio.run(serve(Server("guest").asgi(), config, shutdown_trigger=at_once))
    assert "Traceback" not in capfd.readouterr().err
    assert not [one.name for one in threading.enumerate() if one.name == "callboard asgi"]


def test_without_a_lifespan_event_a_request_says_why_it_cannot_be_served() -> None:
    async def main() -> None:
        async def never(*_: Any) -> Any: ...

        with pytest.raises(RuntimeError, match="got no lifespan startup event"):
            await Server("s").asgi()({"type": "http"}, never, never)

    asyncio.run(main())
