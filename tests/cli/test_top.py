"""`callboard top` and `callboard status` at real servers, in pipes and at real terminals."""

import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio

from callboard import Server
from callboard.broker import Broker
from callboard.cli.admin_client import AdminClient
from callboard.cli.codes import Exit
from callboard.errors import CallboardError
from callboard.serve.options import Ready
from callboard.serve.run import serve
from tests.cli.test_commands import needs_terminal
from tests.cli.top_views import CLEAR
from tests.fork_server import forked
from tests.process import CALLBOARD, PATIENCE
from tests.served import free_port

TOKEN: Final = "a-token-of-an-operator"  # noqa: S105  # of this test alone
CODES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

app = Server("app")


@app.tool(name="shout")
async def shout() -> str:
    return "x"


@attrs.define(eq=False)
class AdminHouse:
    """A server with an admin address, which can be stopped and started again."""

    address: str
    options: dict[str, Any] = attrs.field(factory=dict)
    server: Any = app
    urls: dict[str, str] = attrs.field(factory=dict)
    _enough: trio.Event = attrs.field(factory=trio.Event)
    _ended: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, *, task_status: trio.TaskStatus[Ready] = trio.TASK_STATUS_IGNORED) -> None:
        self._enough, self._ended = trio.Event(), trio.Event()
        given: Any = {"http": 0, "admin": self.address, **self.options}
        await serve(self.server, until=self._enough.wait, task_status=task_status, **given)
        self._ended.set()

    async def stop(self) -> None:
        self._enough.set()
        await self._ended.wait()


@asynccontextmanager
async def house(address: str, server: Any = app, **options: Any) -> AsyncIterator[tuple[AdminHouse, trio.Nursery]]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            here = AdminHouse(address, options, server)
            ready = await nursery.start(here.run)
            here.urls = {one.transport: one.url or "" for one in ready.listening}
            yield here, nursery
            await here.stop()
            nursery.cancel_scope.cancel()


async def ran(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A command in a pipe, beside the server in this process."""
    environment = {**os.environ, "COLUMNS": "200", **variables}
    done = await trio.run_process(
        [*forked(), *arguments], capture_stdout=True, capture_stderr=True, check=False, env=environment
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@attrs.define(eq=False)
class Window:
    """A terminal of any size with `top` in it."""

    process: trio.Process
    master: trio.lowlevel.FdStream
    slave: int
    before: list[Any]
    raw: str = ""

    @property
    def lines(self) -> list[str]:
        """The screen as it was drawn last: each drawing begins at its first cell."""
        return CODES.sub("", self.raw.rsplit("\x1b[H", 1)[-1]).replace("\r", "").split("\n")

    async def wait_shown(self, *texts: str, gone: str = "\0", rows: int = 0) -> None:
        """Wait for a screen with these *texts*, without the one that is *gone*, of so many *rows*."""
        while not self._shows(texts, gone, rows):
            self.raw += bytes(await self.master.receive_some(65_536)).decode(errors="replace")

    def _shows(self, texts: Sequence[str], gone: str, rows: int) -> bool:
        lines = self.lines
        whole = "\n".join(lines)
        is_whole = not rows or (len(lines) == rows and len(lines[-1]) == len(lines[0]))
        return is_whole and all(text in whole for text in texts) and gone not in whole

    async def press(self, keys: str) -> None:
        await self.master.send_all(keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait_left(self) -> int:
        """The exit code; and the terminal is as it was."""
        with trio.CancelScope() as reading:
            async with trio.open_nursery() as nursery:

                async def read() -> None:
                    while True:  # until it is quiet: what was written before the end is here by then
                        self.raw += bytes(await self.master.receive_some(65_536)).decode(errors="replace")

                nursery.start_soon(read)
                code = await self.process.wait()
                await trio.sleep(0.05)
                reading.cancel()
        assert termios.tcgetattr(self.slave) == self.before
        for entered, left in (("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")):
            assert entered in self.raw
            assert self.raw.rindex(left) > self.raw.rindex(entered), f"{entered!r} is not taken back"
        return code


@asynccontextmanager
async def window(*arguments: str, columns: int = 120, rows: int = 40) -> AsyncIterator[Window]:
    """`callboard top` with *arguments* at a terminal."""
    master, slave = os.openpty()
    try:
        before = termios.tcgetattr(slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        process = await trio.lowlevel.open_process(
            ["setsid", "--ctty", *CALLBOARD, "top", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm"},
        )
        async with trio.lowlevel.FdStream(master) as stream:
            try:
                yield Window(process, stream, slave, before)
            finally:
                if process.returncode is None:
                    process.kill()
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                        await process.wait()
    finally:
        os.close(slave)


# At a terminal.


@needs_terminal
async def test_keys_switch_views_a_window_may_change_its_size_and_q_leaves_the_terminal_as_it_was(
    tmp_path: Path,
) -> None:
    async with house(f"unix:{tmp_path}/admin"), window(f"unix:{tmp_path}/admin") as top:
        await top.wait_shown("app", "ready", "requests 0/s", "no servers", rows=40)
        assert {len(line) for line in top.lines} == {120}
        await top.press("o")
        await top.wait_shown("tool or prompt", "shout")
        await top.press("t")
        await top.wait_shown("actor", "sampler")
        top.resize(40, 10)
        await top.wait_shown("serv clie requ tree dead tool list", rows=10)
        assert {len(line) for line in top.lines} == {40}
        await top.press("/viewers\r")
        await top.wait_shown("filter 'viewers'", gone="sampler")
        await top.press("\r")
        await top.wait_shown("name", "viewers", gone="actor")
        await top.press("\x1b")
        await top.wait_shown("actor")
        await top.press("?")
        await top.wait_shown("s servers", "c clients")
        await top.press("?q")
        assert await top.wait_left() == Exit.FINE


@needs_terminal
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
async def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals) -> None:
    async with (
        house(f"unix:{tmp_path}/admin") as (_, _nursery),
        window(f"unix:{tmp_path}/admin", columns=40, rows=10) as top,
    ):
        await top.wait_shown("ready")
        if number == signal.SIGINT:
            await top.press("\x03")
        else:
            top.process.send_signal(number)
        assert await top.wait_left() == Exit.INTERRUPTED
        assert "Traceback" not in top.raw


@needs_terminal
async def test_a_lost_server_is_said_and_found_again_and_the_terminal_is_as_it_was(tmp_path: Path) -> None:
    async with house(f"unix:{tmp_path}/admin") as (here, nursery), window(f"unix:{tmp_path}/admin") as top:
        await top.wait_shown("ready")
        await here.stop()
        await top.wait_shown("LOST, reconnecting", "next try in")
        await nursery.start(here.run)
        await top.wait_shown("ready", gone="LOST")
        await here.stop()
        await top.wait_shown("LOST, reconnecting")
        await top.press("q")
        assert await top.wait_left() == Exit.FINE
        await nursery.start(here.run)


TMUX: Final = shutil.which("tmux")


async def test_a_demo_broker_is_seen_in_tmux_in_large_and_in_tiny_windows(tmp_path: Path) -> None:
    assert TMUX is not None, "there is no tmux: `make servers` installs Debian's"

    def tmux(*words: str) -> str:
        return subprocess.run(
            [str(TMUX), "-f", os.devnull, "-S", f"{tmp_path}/tmux", *words], capture_output=True, text=True, check=True
        ).stdout

    async def wait_seen(*texts: str, gone: str = "\0") -> list[str]:
        while True:
            seen = tmux("capture-pane", "-p")
            if gone not in seen and all(text in seen for text in texts):
                return seen.splitlines()
            await trio.sleep(0.05)

    port = free_port()
    demo = [*forked(), "serve", "--http", "0", "--admin", str(port)]
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.run_process, demo, capture_stdout=True, capture_stderr=True, check=False))
            client = AdminClient.of(str(port), None)
            while not await is_up(client):  # noqa: ASYNC110  # it is another process
                await trio.sleep(0.05)
            command = f"stty -g > before; {sys.executable} -m callboard top {port}; stty -g > after; echo left; cat"
            try:
                tmux("new-session", "-d", "-x", "120", "-y", "40", "-c", str(tmp_path), command)
                seen = await wait_seen("servers 4/4", "box_office", "stage_clock", "wardrobe")
                assert seen[0].startswith("callboard ")
                tmux("send-keys", "r")
                await wait_seen("no requests yet")
                tmux("resize-window", "-x", "40", "-y", "10")
                tmux("send-keys", "s")
                seen = await wait_seen("servers 4/4", "box_office", "q quit", gone="? help  /")
                assert len(seen) == 10
                assert max(map(len, seen)) <= 40
                tmux("send-keys", "q")
                await wait_seen("left", gone="servers")
            finally:
                tmux("kill-server")
            nursery.cancel_scope.cancel()
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text() != ""


async def is_up(client: AdminClient) -> bool:
    try:
        return bool((await client.snapshot())["totals"]["servers_up"] == 4)
    except CallboardError:  # it is not there yet
        return False


# In a pipe.


async def test_a_pipe_gets_one_snapshot_as_text_and_scripts_get_json(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/admin"
    async with house(address):
        done = await ran("top", address)
        assert (done.returncode, done.stderr) == (Exit.FINE, "")
        assert "TOOLS" in done.stdout
        assert "\x1b" not in done.stdout
        only = await ran("top", address, "--view", "tree")
        assert "TREE" in only.stdout
        assert "└ " in only.stdout
        assert "TOOLS" not in only.stdout
        once = await ran("top", "--once", "--json", CALLBOARD_ADMIN=address)
        assert json.loads(once.stdout)["server"]["state"] == "ready"
        stream = await trio.lowlevel.open_process([*forked(), "top", address, "--json"], stdout=subprocess.PIPE)
        said = b""
        assert stream.stdout is not None
        async with stream.stdout:
            while said.count(b"\n") < 2:
                said += await stream.stdout.receive_some(65_536)
        assert [json.loads(line)["version"] for line in said.splitlines()[:2]] == [1, 1]
        assert "history" not in json.loads(said.splitlines()[0])
        assert await stream.wait() == Exit.FINE, "the reader has seen enough"


async def test_a_guarded_address_wants_a_token_which_comes_from_a_file_or_a_variable(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/admin"
    tokens, alone, wrong = tmp_path / "tokens", tmp_path / "alone", tmp_path / "wrong"
    tokens.write_text(f"# operators\n\nada {TOKEN}\n")
    alone.write_text(f"{TOKEN}\n")
    wrong.write_text("another-token-that-is-wrong\n")
    for file in (tokens, alone, wrong):
        file.chmod(0o600)
    async with house(address, admin_token_file=str(tokens)):
        none = await ran("status", address)
        assert none.returncode == Exit.REFUSED
        assert none.stderr.endswith("needs a token: --token-file FILE or $CALLBOARD_ADMIN_TOKEN\n")
        refused = await ran("top", address, "--token-file", str(wrong))
        assert refused.returncode == Exit.REFUSED
        assert "not accepted" in refused.stderr
        assert "another-token" not in refused.stderr
        for given in (("--token-file", str(tokens)), ("--token-file", str(alone))):
            assert (await ran("status", address, *given)).returncode == Exit.FINE
        assert (await ran("status", address, CALLBOARD_ADMIN_TOKEN=TOKEN)).returncode == Exit.FINE


async def test_status_says_what_is_not_up_and_why(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/admin"
    config = tmp_path / "servers.json"
    gone = {"command": str(tmp_path / "gone")}
    config.write_text(json.dumps({"mcpServers": {"gone": gone}}))
    async with house(address, Broker.of_file(config)):
        done = await ran("status", address)
        assert done.returncode == Exit.NOT_UP
        assert "servers: 0 of 1 up" in done.stdout
        assert re.search(r"gone +(down|restarting) +.*No such file or directory", done.stdout)
        told = json.loads((await ran("status", address, "--json")).stdout)
        assert (told["ok"], told["servers"], told["servers_up"]) == (False, 1, 0)
        assert told["down"][0]["name"] == "gone"
        assert "No such file" in told["down"][0]["why"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("top", "unix:/nowhere/at/all"),
            Exit.CANNOT_CONNECT,
            "is a server running there with --admin unix:/nowhere/at/all?",
        ),
        (("status", "http://127.0.0.1:1"), Exit.CANNOT_CONNECT, "Connection refused"),
        (("status", "what is this"), Exit.USAGE, "invalid address 'what is this': expected PORT, HOST:PORT"),
        (("status", "ftp://example.org"), Exit.USAGE, "invalid"),
        (("top", ":0"), Exit.USAGE, "port 0"),
        (("top", "--interval", "10ms"), Exit.USAGE, "from 1s to 1h"),
        (("top", "--interval", "soon"), Exit.USAGE, "not a time"),
        (("top", "--token-file", "/nowhere/at/all"), Exit.USAGE, "No such file or directory"),
    ],
)
async def test_what_goes_wrong_is_one_line_and_has_the_code_of_other_commands(
    arguments: tuple[str, ...], code: Exit, said: str
) -> None:
    done = await ran(*arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


async def test_an_address_that_is_not_the_one_of_admin_is_told(tmp_path: Path) -> None:
    async with house(f"unix:{tmp_path}/admin") as (here, _):
        done = await ran("status", here.urls["http"].removesuffix("/mcp"))
        assert done.returncode == Exit.REFUSED
        assert "HTTP 404: not the address of --admin" in done.stderr


# A server that lies.


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "invalid view"),
        (b"{" * 100_000, "invalid view"),
        (b'{"version": 1}', "invalid view"),
        (b'{"version": 2, "server": {}}', "views of version 2: use the callboard of that server"),
        (b"\xff", "invalid view"),
    ],
)
async def test_a_view_that_is_none_is_an_error_of_one_line(tmp_path: Path, body: bytes, said: str) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    done = await asked_of(tmp_path, lambda: answer)
    assert done.returncode == Exit.REFUSED
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_what_a_refusal_says_cannot_command_the_terminal(tmp_path: Path) -> None:
    body = CLEAR.encode() + b"x" * 10_000
    done = await asked_of(tmp_path, lambda: b"HTTP/1.1 503 No\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    assert done.returncode == Exit.REFUSED
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 500


async def asked_of(folder: Path, answer: Callable[[], bytes]) -> "subprocess.CompletedProcess[str]":
    """`status`, at a socket that gives one *answer*."""

    async def serve_one(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(65_536)
            await stream.send_all(answer())

    with trio.fail_after(PATIENCE), trio.socket.socket(trio.socket.AF_UNIX) as listening:
        await listening.bind(f"{folder}/liar")
        listening.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.serve_listeners, serve_one, [trio.SocketListener(listening)]))
            done = await ran("status", f"unix:{folder}/liar")
            nursery.cancel_scope.cancel()
    return done
