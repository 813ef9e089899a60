"""A server that is a process of ours: spoken to over its pipes, watched, and never left behind."""

import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import structlog
import trio

from callboard import Server
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.server.session_tree import open_session
from callboard.client import Client, connect
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.errors import CannotConnect, ConnectionLost
from callboard.transports.client.process import GRACE, TAIL, Command, running
from callboard.transports.lines import LineConnection
from tests.shared import APPS

APP: Final = str(APPS / "curious.py")
SERVED: Final = (sys.executable, "-m", "callboard", "run", APP)
PATIENCE: Final = 30.0

SPEAKER: Final = """
import json, os, signal, subprocess, sys, time
def say(**message): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
def answer(request, **result): say(id=request["id"], result={"resultType": "complete", **result})
def heard():
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] == "server/discover":
            answer(request, supportedVersions=["2026-07-28"], capabilities={"tools": {}}, ttlMs=0, cacheScope="public")
        else:
            yield request
"""
"""A server in a few lines. What it does with other requests is up to each test."""


def script(body: str) -> Command:
    return Command(args=(sys.executable, "-c", SPEAKER + body))


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def call(client: Client, tool: str = "x") -> Any:
    return await client.call(tool)


@pytest.mark.requirement("M073", "L037")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_a_command_is_spoken_to_in_every_era_and_hears_nothing_but_messages(
    revision: str, tmp_path: Path
) -> None:
    """`tee` keeps what goes into the server."""
    kept = tmp_path / "stdin"
    line = f"tee {kept} | {' '.join(SERVED)}"
    with trio.fail_after(PATIENCE):
        async with connect(["/bin/sh", "-c", line], revision=revision) as client:
            assert client.revision == revision
            assert "hi hi" in str((await client.call("echo", text="hi", times=2)).content)
    for said in kept.read_bytes().splitlines():
        assert said.startswith(b"{")
        assert b'"jsonrpc":"2.0"' in said


@pytest.mark.requirement("M083")
async def test_what_a_server_says_on_standard_error_is_kept_and_means_nothing() -> None:
    lines: list[str] = []
    body = """
sys.stderr.write("ERROR: everything is fine\\n" + "x" * 5000 + "\\n"); sys.stderr.flush()
for request in heard():
    answer(request, content=[])
"""
    with trio.fail_after(PATIENCE):
        async with connect(script(body), on_stderr=lines.append) as client:
            await call(client)
    assert lines[0] == "ERROR: everything is fine"
    assert len(lines[1]) == 1000


async def test_last_words_need_no_end_of_line() -> None:
    lines: list[str] = []
    command = Command(args=("/bin/sh", "-c", "printf 'first\\nlast words' >&2; exit 3"))
    with trio.fail_after(PATIENCE):
        async with running(command, lines.append):
            while len(lines) < 2:  # noqa: ASYNC110 - nobody tells when it has said everything
                await trio.sleep(0.01)
    assert lines == ["first", "last words"]


async def test_what_it_says_while_it_ends_is_heard_and_holds_nothing_up() -> None:
    lines: list[str] = []
    body = """
for _ in sys.stdin:
    pass
sys.stderr.write(("x" * 999 + "\\n") * 200 + "done\\n")
"""
    with trio.fail_after(PATIENCE):
        async with running(script(body), lines.append) as link:
            pass
    assert link.process.returncode == 0  # by itself: more than a pipe holds was taken
    assert link.tail[-1] == "done"
    assert lines


async def test_one_that_dies_at_once_is_heard_out() -> None:
    lines: list[str] = []
    with trio.fail_after(PATIENCE), pytest.raises(CannotConnect, match="the server exited with 3"):
        async with connect(["/bin/sh", "-c", "echo why >&2; exit 3"], on_stderr=lines.append):
            pass
    assert lines == ["why"]  # it never read the first request, so it did not die of it


async def test_without_anybody_to_tell_the_log_hears_it_and_the_latest_lines_are_kept() -> None:
    with structlog.testing.capture_logs() as logs, trio.fail_after(PATIENCE):
        async with running(Command(args=("/bin/sh", "-c", "seq 1 100 >&2"))) as link:
            while "100" not in link.tail:  # noqa: ASYNC110 - nobody tells when the log is at its end
                await trio.sleep(0.01)
            assert len(link.tail) == TAIL
            assert list(link.tail) == [str(number) for number in range(37, 101)]
    assert {"event": "server_stderr", "peer": "/bin/sh", "text": "7", "log_level": "debug"} in logs


async def test_a_server_gets_no_secret_of_our_environment_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    body = """
for request in heard():
    answer(request, content=[{"type": "text", "text": json.dumps(dict(os.environ))}])
"""
    with trio.fail_after(PATIENCE):
        async with connect(script(body)) as client:
            seen = str(await call(client))
        assert "PATH" in seen
        assert "s3cret" not in seen
        told = Command(args=script(body).args, env={"SECRET_TOKEN": "s3cret"})
        async with connect(told) as client:
            assert "s3cret" in str(await call(client))


async def test_what_cannot_be_started_is_said_so(tmp_path: Path) -> None:
    for command in (["no-such-program"], [str(tmp_path)]):
        with pytest.raises(CannotConnect, match=command[0]):
            async with connect(command):
                pass
    with pytest.raises(CannotConnect, match="nowhere"):
        async with connect(Command(args=("true",), cwd=str(tmp_path / "nowhere"))):
            pass
    with pytest.raises(CannotConnect, match="true"):
        async with connect(["true", "a\0b"]):
            pass


# Its death.


@pytest.mark.parametrize(
    ("death", "why"),
    [
        ("os._exit(3)", "exited with 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 1)", "killed by signal 35"),
        ("raise SystemExit", "exited with 0"),
        ("os.close(1); time.sleep(60)", "closed its output"),
        # A child of its own keeps the pipe open: only the exit tells.
        ("subprocess.Popen(['sleep', '60']); os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    ],
)
async def test_a_server_that_dies_in_a_call_fails_all_calls_at_once_and_says_how(death: str, why: str) -> None:
    body = f"""
calls = 0
for request in heard():
    calls += 1
    if calls == 3:
        {death}
"""
    lost: list[str] = []
    with trio.fail_after(PATIENCE):
        async with connect(script(body)) as client:
            async with trio.open_nursery() as nursery:

                async def doomed() -> None:
                    with pytest.raises(ConnectionLost) as told:
                        await call(client)
                    lost.append(str(told.value))

                for _ in range(3):
                    nursery.start_soon(doomed)
            assert len(set(lost)) == 1
            assert why in lost[0]
            with pytest.raises(ConnectionLost, match=why):
                await call(client)


async def test_a_server_that_dies_during_the_handshake_is_no_server() -> None:
    with trio.fail_after(PATIENCE):
        for body, why in (("sys.stdin.readline(); os._exit(4)", "exited with 4"), ("os._exit(5)", "exited with 5")):
            with pytest.raises(CannotConnect, match=why):
                async with connect(script(body)):
                    pass


# Its end.


@pytest.mark.requirement("M080")
async def test_leaving_ends_the_input_and_a_server_that_listens_ends_by_itself(tmp_path: Path) -> None:
    mark = tmp_path / "ended"
    body = f"""
for request in heard():
    answer(request, content=[])
open({str(mark)!r}, "w").write("in peace")
"""
    with trio.fail_after(PATIENCE):
        async with connect(script(body)) as client:
            await call(client)
            began = trio.current_time()
    assert mark.read_text() == "in peace"
    assert trio.current_time() - began < GRACE


@pytest.mark.requirement("M080")
async def test_one_that_does_not_is_asked_and_then_made_to_with_all_that_it_started() -> None:
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", deaf])
for request in heard():
    answer(request, content=[{"type": "text", "text": f"{os.getpid()} {child.pid}"}])
time.sleep(60)
"""
    with trio.fail_after(PATIENCE):
        async with connect(script(body)) as client:
            result: Any = await call(client)
            pids = [int(pid) for pid in result.content[0].text.split()]
            assert all(psutil.pid_exists(pid) for pid in pids)
            began = trio.current_time()
        assert 2 * GRACE <= trio.current_time() - began < 2 * GRACE + 3
        while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110 - the kernel needs a moment, and tells nobody
            await trio.sleep(0.01)


def children() -> set[int]:
    """The processes of ours that run now; a server that others test against may be among them."""
    return {child.pid for child in psutil.Process(os.getpid()).children() if child.is_running()}


async def test_a_cancelled_client_leaves_no_process_behind() -> None:
    pids: set[int] = set()
    before = children()
    with trio.fail_after(PATIENCE), trio.CancelScope() as scope:
        async with connect(SERVED) as client:
            pids = children() - before
            async with client.call("hang") as hanging:
                async for _ in hanging.progress:
                    scope.cancel()
    assert pids
    assert not any(psutil.pid_exists(pid) for pid in pids)


# What it says.


async def test_lines_that_are_no_messages_are_passed_over() -> None:
    body = """
print("Welcome!", flush=True)
for request in heard():
    print("about to answer", flush=True)
    print('{"jsonrpc": "2.0", "id": "nobody", "result": {}}', flush=True)
    print('[1, 2', flush=True)
    answer(request, content=[])
"""
    with trio.fail_after(PATIENCE):
        async with connect(script(body)) as client:
            await call(client)


async def test_a_line_without_end_costs_the_link_and_not_the_memory() -> None:
    body = """
for request in heard():
    while True:
        os.write(1, b"x" * 65536)
"""
    before = psutil.Process().memory_info().rss
    with trio.fail_after(PATIENCE):
        async with connect(script(body)) as client:
            with pytest.raises(ConnectionLost, match="too much unread data"):
                await call(client)
    assert psutil.Process().memory_info().rss - before < 64 << 20


async def test_a_server_that_does_not_read_costs_the_timeout_and_gets_whole_lines_afterwards() -> None:
    body = """
signal.signal(signal.SIGUSR1, lambda *_: None)
first = True
for request in heard():
    if first:
        answer(request, content=[{"type": "text", "text": str(os.getpid())}])
        signal.pause()
        first = False
    elif "id" in request:
        answer(request, content=[{"type": "text", "text": str(len(request["params"]["arguments"]["text"]))}])
"""
    with trio.fail_after(PATIENCE):
        async with connect(script(body)) as client:
            result: Any = await call(client)
            with trio.move_on_after(1) as scope:
                async with trio.open_nursery() as nursery:
                    for size in range(10):
                        nursery.start_soon(client.call("x", text="x" * 30_000 * size)._run)
            assert scope.cancelled_caught
            os.kill(int(result.content[0].text), signal.SIGUSR1)
            for size in (1, 100_000):
                assert str(size) in str((await client.call("x", text="x" * size)).content)


@pytest.mark.requirement("M070")
async def test_the_same_lines_go_over_any_stream() -> None:
    server = Server("on a socket", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    here, there = trio.socket.socketpair()
    with trio.fail_after(PATIENCE):
        async with server.host() as host, trio.SocketStream(here) as ours, trio.SocketStream(there) as theirs:
            await open_session(host, LineConnection(theirs, theirs), "s")
            link = DuplexLink(LineConnection(ours, ours))

            class Opened:
                async def __aenter__(self) -> DuplexLink:
                    return link

                async def __aexit__(self, *_: object) -> None:
                    await ours.aclose()

            async with connect(TransportRoutes(None, (TransportRoute("socket", Opened),))) as client:
                assert "hi" in str((await client.call("echo", text="hi")).content)


async def test_a_signal_to_our_own_group_does_not_reach_the_server() -> None:
    """Ctrl-C at a terminal goes to the whole group: the server shall end when we say so."""
    before = children()
    with trio.fail_after(PATIENCE):
        async with connect(SERVED):
            [pid] = children() - before
            assert os.getpgid(pid) != os.getpgid(0)
            assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
