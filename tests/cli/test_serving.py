"""The commands as a person types them: real processes, real exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import trio

from callboard import __version__
from callboard.codecs.revisions import LEGACY, MODERN, Revision, meta
from callboard.errors import DRAINING
from tests.fork_server import forked
from tests.process import CALLBOARD, Process, callboard, started
from tests.shared import APPS

APP: Final = str(APPS / "noisy.py")
RUN: Final = (*CALLBOARD, "run", APP)
MODERN_META: Final = {meta.PROTOCOL_VERSION: "2026-07-28", meta.CLIENT_CAPABILITIES: {}}

FAILS: Final = """
from contextlib import asynccontextmanager
from callboard import Server
@asynccontextmanager
async def life(server):
    raise ConnectionRefusedError("no database")
    yield
shop = Server("shop", lifespan=life)
"""

posix = pytest.mark.skipif(os.name != "posix", reason="signals and descriptors as POSIX has them")


def call(id: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """A modern call."""
    return {
        "id": id,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": MODERN_META},
    }


def said(answer: Any) -> str:
    words: str = answer["result"]["content"][0]["text"]
    return words


# What there is.


async def test_serve_says_where_it_is_how_much_is_behind_it_and_what_to_try() -> None:
    async with started(*CALLBOARD, "serve", "--http", "0") as process:
        said = [str(await process.line(), "utf-8") for _ in range(9)]  # type: ignore[arg-type]
        url = said[1].split()[1]
        assert said[0] == f"callboard {__version__}"
        assert said[2] == "  4 servers with 7 tools behind it"
        assert json.loads(said[3]) == {"mcpServers": {"callboard": {"url": url}}}
        assert f"callboard call {url} wardrobe__sew_costume role=Hamlet" in said[4]
        tools = ["sew_costume", "book_seats", "audition", "fall"]
        assert [tool in line for tool, line in zip(tools, said[4:8], strict=True)] == [True] * 4
        assert said[8] == "  press Ctrl-C to stop"
        process.signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_serve_speaks_json_to_scripts_and_says_who_is_missing(tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    entries = {"here": {"python": APP}, "gone": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}}
    config.write_text(json.dumps({"mcpServers": entries}))
    async with started(*CALLBOARD, "serve", str(config), "--http", "0", "--json") as process:
        assert await process.line() == b"loading"
        told = await process.hear()
        here, gone = told["servers"]
        assert here == {"name": "here", "state": "up"}
        assert gone["name"] == "gone"
        assert gone["state"] != "up"
        assert "3" in gone["why"]
        assert told["try"].endswith(f"callboard list {told['listening'][0]['url']}")
        process.signal()
        assert await process.wait() == 0


def test_the_version_is_the_package_s() -> None:
    assert callboard("--version").stdout.strip() == callboard("-V").stdout.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "taught"),
    [
        ((), ["serve", "run"]),
        (("--help",), ["serve", "run"]),
        (("serve", "--help"), ["serve", "--json", "--admin"]),
        (("run", "--help"), ["callboard run weather.py", "--http", "--ws", "--token-file", "--drain-time", "30.0"]),
    ],
)
def test_help_teaches(arguments: tuple[str, ...], taught: list[str]) -> None:
    done = callboard(*arguments)
    assert done.returncode == 0
    assert [word for word in taught if word not in done.stdout] == []


def test_a_wrong_command_is_one_clear_error() -> None:
    done = callboard("sevre")
    assert done.returncode != 0
    assert "sevre" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


# What cannot be served.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "nowhere.py: no such file"),
        (["nowhere"], "'nowhere' is not a Python server: expected FILE.py, FILE.py:NAME or package.module:NAME"),
        ([APP + ":missing"], "has no 'missing'; choose one of: "),
        ([APP + ":thing"], "is not a callboard.Server but int"),
        ([APP, "--http", "here"], "invalid address 'here'"),
        ([APP, "--http", "localhost:99999"], "invalid address 'localhost:99999'"),
        ([APP, "--http", "no-such-host.invalid:80"], "no-such-host.invalid:80: "),
        ([APP, "--revisions", "2025-11-25,1999-01-01"], "unknown revision; supported: 2024-11-05, 2025-03-26"),
        ([APP, "--http", "0", "--tls-key", "key.pem"], "TLS needs a certificate and its key"),
        (
            [APP, "--http", "0", "--tls-key", "key.pem", "--tls-cert", "cert.pem"],
            "TLS: cert.pem, key.pem: No such file",
        ),
        ([APP, "--legacy-sse"], "legacy SSE needs an HTTP address"),
        ([APP, "--http", "0", "--allow-origin", "evil"], "not an origin: 'evil'"),
        ([APP, "--http", "0", "--token-file", "nowhere.txt"], "nowhere.txt: No such file"),
    ],
)
def test_what_cannot_be_served_is_one_clear_line(arguments: list[str], words: str) -> None:
    done = callboard("run", *arguments)
    assert done.returncode == 2
    errors = [
        line for line in done.stderr.splitlines() if line != "loading" and "stdout is used by the protocol" not in line
    ]
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith("callboard: ")
    assert words in errors[0]
    assert done.stdout in ("", "loading\n")


def test_a_taken_address_is_said_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = callboard("run", APP, "--http", str(port))
    assert done.returncode == 2
    assert done.stderr == f"callboard: 127.0.0.1:{port}: address already in use\n"


@pytest.mark.parametrize(
    "source", ["import nothing_like_it\n", "raise SystemExit(3)\n", "import callboard; callboard.Server('x').tool(3)\n"]
)
def test_a_file_that_does_not_load_shows_its_author_where(source: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    done = callboard("run", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"callboard: {path}: import failed:\n")
    assert f'File "{path}", line 1' in done.stderr
    assert "importlib" not in done.stderr
    assert "callboard/" not in done.stderr.replace(str(path), "")


def test_a_syntax_error_and_a_lifespan_that_fails_are_one_line_each(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def f(:\n")
    done = callboard("run", str(path))
    assert (done.returncode, done.stderr) == (2, f"callboard: {path}:1: SyntaxError: invalid syntax\n")
    path.write_text(FAILS)
    for command in (("run", str(path), "--http", "0"), ("run", str(path))):
        done = callboard(*command)
        failed = "ConnectionRefusedError: no database (broken.py:6 life)"
        assert (done.returncode, done.stderr) == (2, f"callboard: the lifespan of 'shop' failed: {failed}\n")


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'neighbour'\n")
    path = tmp_path / "app.py"
    path.write_text("from beside import NAME\nfrom callboard import Server\nserver = Server(NAME)\n")
    done = callboard("run", str(path))
    assert done.returncode == 0
    assert "neighbour (callboard " in done.stderr


# A session by hand.


@pytest.mark.parametrize("revision", sorted(LEGACY), ids=str)
async def test_a_legacy_session_over_stdio(revision: Revision) -> None:
    async with started(*forked(), "run", APP) as process:
        who = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
        await process.say({"id": 0, "method": "initialize", "params": who})
        agreed = (await process.hear())["result"]
        assert agreed["protocolVersion"] == revision
        assert agreed["serverInfo"] == {"name": "app", "version": "3.2.1"}
        await process.say({"method": "notifications/initialized"})
        await process.say({"id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "ä\n"}}})
        assert said(await process.hear()) == "ä\n"
        await process.hang_up()
        assert await process.rest() == []
        assert await process.wait() == 0


@pytest.mark.parametrize("revision", sorted(MODERN), ids=str)
async def test_a_modern_conversation_over_stdio(revision: Revision) -> None:
    async with started(*RUN) as process:
        await process.say({"id": "d", "method": "server/discover", "params": {"_meta": MODERN_META}})
        assert revision in (await process.hear())["result"]["supportedVersions"]
        await process.say(call(1, "echo", text="hello"))
        assert said(await process.hear()) == "hello"
        await process.hang_up()
        assert await process.wait() == 0
        assert "app 3.2.1 (callboard" in process.words


async def test_only_the_revisions_that_were_asked_for_are_spoken() -> None:
    async with started(*forked(), "run", APP, "--revisions", "2025-11-25, 2025-06-18") as process:
        await process.say(call(1, "echo", text="hello"))
        refused = (await process.hear())["error"]
        assert refused["data"]["supported"] == ["2025-06-18", "2025-11-25"]
        await process.hang_up()


@pytest.mark.requirement("M081")
async def test_the_end_of_input_ends_the_process_at_once_whatever_is_in_flight() -> None:
    async with started(*RUN) as process:
        await process.say(call(1, "sleep", seconds=3600), call(2, "in_a_thread"))
        await process.wait_said(b"asleep\n")
        await process.wait_said(b"asleep in")
        hung_up = time.monotonic()
        await process.hang_up()
        assert await process.wait() == 0
        assert time.monotonic() - hung_up < 3
        assert await process.rest() == []
        assert "Traceback" not in process.words


@posix
@pytest.mark.requirement("M072", "L036")
async def test_nothing_but_messages_is_written_to_standard_output() -> None:
    async with started(*RUN) as process:
        await process.say(call(1, "noise"), call(2, "noise"))
        # What a child reads is not the protocol's either: the second call would be gone.
        answers = {answer["id"]: said(answer) for answer in [await process.hear(), await process.hear()]}
        assert answers == {1: "", 2: ""}
        await process.hang_up()
        assert await process.rest() == []
        assert await process.wait() == 0
        for words in ("loading", "printed", "binary", "descriptor", "from C", "from a child"):
            assert words in process.words
        assert process.words.count("stdout is used by the protocol: printed text goes to stderr") == 1


async def test_what_a_handler_reads_is_empty_and_what_it_raises_stays_here() -> None:
    async with started(*forked(), "run", APP) as process:
        await process.say(call(1, "read_input"), call(2, "crash"))
        answers = {answer["id"]: answer for answer in [await process.hear(), await process.hear()]}
        assert "EOFError" in said(answers[1])
        assert "Traceback" not in json.dumps(answers)
        assert "noisy.py" not in json.dumps(answers)
        await process.hang_up()


@posix
async def test_a_reader_that_has_gone_ends_the_process() -> None:
    async with started(*RUN) as process:
        await process.say(call(1, "echo", text="one"))
        await process.hear()
        assert process.process.stdout is not None
        await process.process.stdout.aclose()
        await process.say(call(2, "echo", text="two"))
        assert await process.wait() == 0
        assert "Traceback" not in process.words


async def test_an_answer_that_fills_the_pipe_waits_for_its_reader() -> None:
    size = 3_000_000
    async with started(*forked(), "run", APP) as process:
        for number in range(3):
            await process.say(call(number, "echo", text="x" * size))
        answers = [await process.hear() for _ in range(3)]
        assert [len(said(answer)) for answer in answers] == [size] * 3
        await process.hang_up()


async def test_what_does_not_fit_is_refused_and_the_limit_is_a_flag() -> None:
    async with started(*forked(), "run", APP, "--max-frame", "2000") as process:
        await process.say(call(1, "echo", text="x" * 3000), call(2, "echo", text="short"))
        refused = await process.hear()
        assert refused["error"]["code"] == -32600
        assert "id" not in refused
        assert said(await process.hear()) == "short"
        await process.hang_up()


@posix
async def test_a_script_that_runs_its_server_has_its_output_back_afterwards() -> None:
    async with started(sys.executable, APP) as process:
        assert await process.line() == b"loading"
        await process.say(call(1, "echo", text="hello"))
        assert said(await process.hear()) == "hello"
        await process.hang_up()
        assert await process.line() == b"printed after it was served"
        assert await process.wait() == 0


@posix
def test_a_file_may_be_the_input_and_another_the_output(tmp_path: Path) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}}
    asked.write_text(json.dumps(listing))
    with asked.open() as stdin, answered.open("w") as stdout:
        done = subprocess.run(RUN, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 0
    assert json.loads(answered.read_text())["id"] == 1


def test_a_closed_input_is_said_so() -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *RUN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "callboard: stdio: standard input or output is closed\n"


# Over the network.


@posix
async def test_a_script_reads_the_port_calls_and_ends_it(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ada a-token-of-ada-s-own\n")
    tokens.chmod(0o600)
    flags = ("--http", "0", "--ws", "0", "--json", "--token-file", str(tokens))
    async with started(*RUN, *flags) as process:
        assert await process.line() == b"loading"  # standard output is nobody's here
        told = await process.hear()
        assert told["server"]["name"] == "app"
        assert told["pid"] == process.process.pid
        url = urlsplit(told["listening"][0]["url"])
        body = json.dumps({"jsonrpc": "2.0", **call(1, "echo", text="x")}).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: tools/call\r\nMcp-Name: echo\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: Bearer a-token-of-ada-s-own\r\n\r\n"
        )
        async with await trio.open_tcp_stream(url.hostname or "", url.port or 0) as stream:
            await stream.send_all(head.encode() + body)
            assert b'"text":"x"' in await stream.receive_some(65_536)
            process.signal()
            assert await stream.receive_some() == b""  # idle: closed at once
        assert await process.wait() == 0
        assert process.words == ""


# Signals.


async def asleep(process: Process, tool: str, **arguments: Any) -> None:
    """Have a handler of its own be in the middle of its work."""
    await process.say(call(1, tool, **arguments))
    await process.wait_said(b"asleep\n")


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_what_is_in_flight_finish_and_takes_nothing_new(number: int) -> None:
    async with started(*RUN) as process:
        await asleep(process, "sleep", seconds=2)
        process.signal(number)
        await process.wait_said(b"draining")
        await process.say(call(2, "echo", text="too late"))
        refused, answer = await process.hear(), await process.hear()
        assert (refused["id"], refused["error"]["code"]) == (2, DRAINING)
        assert (answer["id"], said(answer)) == (1, "slept")
        assert await process.wait() == 0
        assert "Traceback" not in process.words
        assert "KeyboardInterrupt" not in process.words


@posix
async def test_listeners_are_told_that_it_is_over() -> None:
    async with started(*RUN) as process:
        listen = {"notifications": {"toolsListChanged": True}, "_meta": MODERN_META}
        await process.say({"id": 5, "method": "subscriptions/listen", "params": listen})
        assert (await process.hear())["method"] == "notifications/subscriptions/acknowledged"
        process.signal()
        told = await process.rest()
        assert [message.get("id") for message in told] == [5, None]
        assert told[1]["method"] == "notifications/cancelled"
        assert await process.wait() == 0


@posix
async def test_what_takes_longer_than_the_drain_time_is_answered_and_ends() -> None:
    async with started(*RUN, "--drain-time", "0.5") as process:
        await asleep(process, "sleep", seconds=3600)
        asked = time.monotonic()
        process.signal()
        (answer,) = await process.rest()
        assert answer["error"]["code"] == DRAINING
        assert await process.wait() == 0
        # A quarter of the drain time is for last words: the answer comes at its start, and the end may be early.
        assert 0.375 <= time.monotonic() - asked < 5


@posix
@pytest.mark.parametrize(
    ("tool", "codes"), [("sleep", {0, -signal.SIGALRM}), ("stubborn", {-signal.SIGALRM}), ("block", {-signal.SIGALRM})]
)
async def test_a_second_signal_ends_it_within_two_seconds_whatever_it_does(tool: str, codes: set[int]) -> None:
    async with started(*RUN) as process:
        await asleep(process, tool, **({"seconds": 3600} if tool == "sleep" else {}))
        process.signal(signal.SIGINT)
        if tool != "block":
            await process.wait_said(b"draining")
        asked = time.monotonic()
        process.signal(signal.SIGTERM)  # another one: of two equal ones the second may be lost
        assert await process.wait() in codes
        assert time.monotonic() - asked < 2
        assert "Traceback" not in process.words
