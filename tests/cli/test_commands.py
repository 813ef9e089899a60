"""The commands that speak to a server, as people and scripts use them: real processes, pipes and terminals."""

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import psutil
import pytest
import trio
from rich.console import Console

from callboard.cli.main import app
from callboard.client import connect
from tests.at_terminal import piped
from tests.process import CALLBOARD, started
from tests.served import Addresses, served
from tests.shared import APPS

APP: Final = str(APPS / "curious.py")
COMMAND: Final = ("--", sys.executable, "-m", "callboard", "run", APP)
DEAF: Final = "import sys, time; sys.stderr.write('I am deaf\\n'); sys.stderr.flush(); time.sleep(60)"

ODD: Final = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        about = {"name": "odd", "version": "1"}
        told = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}}
    elif asked["method"] == "tools/list":
        schema, promised = {"type": "object"}, {"type": "object", "properties": {"x": {"type": 7}}}
        told = {"result": {"tools": [{"name": "\\x1b[2J", "inputSchema": schema, "outputSchema": promised}]}}
    else:
        told = {"error": {"code": -32601, "message": "no"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
"""
"""Its only tool has a name that clears a terminal, and promises what cannot be."""

needs_terminal = pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid to give it a terminal")


@pytest.fixture(scope="module")
def house() -> Iterator[Addresses]:
    with served(f"{APP}:server", "--legacy-sse", ws=True) as addresses:
        yield addresses


def lines(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


# In a pipe.


def test_list_prints_a_line_for_everything_that_is_there() -> None:
    done = piped("list", APP)
    assert done.returncode == 0
    assert done.stderr == ""
    assert lines(done.stdout)[0] == ["tool", "echo", "text [times]", "Says it again."]
    assert ["resource", "curious://note", "text/plain", "A note."] in lines(done.stdout)
    assert ["template", "curious://{topic}/about", "", "About anything."] in lines(done.stdout)
    assert ["prompt", "brief", "topic [style]", "A briefing."] in lines(done.stdout)


@pytest.mark.parametrize("revision", ["2024-11-05", "2026-07-28"])
def test_list_speaks_json_in_the_revision_that_was_insisted_on(revision: str) -> None:
    told = json.loads(piped("list", APP, "--json", "--revision", revision).stdout)
    assert told["revision"] == revision
    assert told["server"] == {"name": "curious", "version": "1.2.3"}
    assert told["instructions"] == "Ask me anything."
    assert [prompt["name"] for prompt in told["prompts"]] == ["brief"]
    assert {tool["name"] for tool in told["tools"]} >= {"echo", "greet"}
    assert [template["uriTemplate"] for template in told["templates"]] == ["curious://{topic}/about"]
    assert len(told["resources"]) == 2


@pytest.mark.parametrize("way", ["http", "ws", "sse"])
def test_every_kind_of_url_is_called(house: Addresses, way: str) -> None:
    done = piped("call", getattr(house, way), "echo", "text=hello", "times=2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello hello\n", "")


def test_a_command_comes_after_two_dashes_and_the_target_is_left_out() -> None:
    done = piped("call", "echo", "text=hello", "times=2", *COMMAND)
    assert (done.returncode, done.stdout) == (0, "hello hello\n")


def test_an_entry_of_a_file_is_called(house: Addresses, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"curious": {"url": house.http}}}))
    assert piped("call", f"{file}#curious", "echo", "text=hi").stdout == "hi\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["echo", "text=3", "times=2"], "3 3\n"),  # the schema says which is a number
        (["echo", "text=a=b"], "a=b\n"),
        (["echo", 'text:="a\\u0062"', "times:=1"], "ab\n"),
        (["add", "numbers=[1, 2.5]"], "3.5\n"),
        (["add", "numbers:=[1, 2]", "exact=true"], "3.0\n"),
        (["paint"], "[image: image/png, 8 bytes]\n"),
    ],
)
def test_arguments_are_text_or_json_or_what_the_schema_wants(house: Addresses, arguments: list[str], said: str) -> None:
    done = piped("call", house.http, *arguments)
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_call_prints_the_whole_result_as_json(house: Addresses) -> None:
    told = json.loads(piped("call", house.http, "add", "numbers=[1]", "--json").stdout)
    assert told["structuredContent"] == {"result": 1.0}
    assert told["content"] == [{"type": "text", "text": "1.0"}]


def test_progress_is_lines_on_standard_error_and_none_for_scripts(house: Addresses) -> None:
    done = piped("call", house.http, "count", "to=1")
    assert done.stdout == "counted to 1\n"
    assert done.stderr == "count: 1/1 step 1\n"
    assert piped("call", house.http, "count", "to=1", "--json").stderr == ""


def test_a_tool_that_fails_says_so_in_the_exit_code(house: Addresses) -> None:
    done = piped("call", house.http, "fail")
    assert (done.returncode, done.stdout, done.stderr) == (1, "it did not work\n", "")
    done = piped("call", house.http, "fail", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["isError"] is True


def test_what_a_tool_asks_is_declined_where_nobody_can_be_asked() -> None:
    done = piped("call", APP, "greet")
    assert done.returncode == 1
    assert done.stderr == "callboard: declined, since there is no terminal to ask at: 'Who are you?'\n"
    assert "declined" in done.stdout


def test_read_prints_text_and_pipes_bytes_as_they_are(house: Addresses, tmp_path: Path) -> None:
    assert piped("read", house.http, "curious://note").stdout == "remember the milk\n"
    told = json.loads(piped("read", house.http, "curious://bytes", "--json").stdout)
    assert told["contents"][0]["blob"] == "AAEC/w=="
    file = tmp_path / "bytes"
    with file.open("wb") as out:
        subprocess.run([*CALLBOARD, "read", house.http, "curious://bytes"], stdout=out, check=True, timeout=60)
    assert file.read_bytes() == b"\x00\x01\x02\xff"


def test_prompt_prints_who_says_what(house: Addresses) -> None:
    brief = piped("prompt", house.http, "brief", "topic=Oslo", "style=long")
    assert brief.stdout == "user:\nTell me about Oslo, long.\n"
    told = json.loads(piped("prompt", house.http, "brief", "topic=Oslo", "--json").stdout)
    assert told["messages"][0]["content"]["text"] == "Tell me about Oslo, short."


async def test_listen_prints_a_line_for_every_change_until_it_is_interrupted(house: Addresses) -> None:
    arguments = ("listen", house.http, "--tools", "--resources", "curious://note")
    async with (
        started(*CALLBOARD, *arguments, "--json") as scripted,
        started(*CALLBOARD, *arguments, "--revision", "2025-11-25") as plain,
    ):
        async with trio.open_nursery() as nursery:

            async def stir() -> None:
                async with connect(house.http) as client:
                    while True:  # when the others have begun to listen nobody can tell
                        await client.call("change")
                        await trio.sleep(0.1)

            nursery.start_soon(stir)
            found = [await scripted.hear(), await scripted.hear()]
            times = [datetime.fromisoformat(one.pop("at")) for one in found]
            assert {json.dumps(one) for one in found} == {'{"changed": "tools"}', '{"updated": "curious://note"}'}
            heard = [line.decode().split("\t") for line in (await plain.line(), await plain.line()) if line]
            assert {what for _, what in heard} == {"tools changed", "updated curious://note"}
            times += [datetime.fromisoformat(at) for at, _ in heard]
            assert all(abs(datetime.now().astimezone() - at) < timedelta(minutes=5) for at in times)
            nursery.cancel_scope.cancel()
        for process in (scripted, plain):
            process.signal(signal.SIGINT)
            assert await process.wait() == 130
            assert process.words == ""


@pytest.mark.skipif(os.name != "posix", reason="streams are closed as a POSIX shell does it")
@pytest.mark.parametrize(
    ("streams", "arguments", "code"),
    [
        (">&-", ["call", APP, "echo", "text=hi"], 0),
        (">&-", ["list", APP, "--json"], 0),
        ("<&-", ["call", APP, "greet"], 1),  # nobody is there to ask
        ("2>&-", ["call", APP, "nothing"], 4),
        ("<&- >&- 2>&-", ["call", "echo", "text=hi", *COMMAND], 0),
    ],
)
def test_a_stream_that_is_closed_is_one_that_leads_nowhere(streams: str, arguments: list[str], code: int) -> None:
    done = _in_shell(streams, *arguments)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no place that is always full")
@pytest.mark.parametrize(
    ("command", "arguments"), [("call", ["echo", "text=hi"]), ("list", []), ("read", ["curious://bytes"])]
)
def test_what_cannot_be_written_is_one_line_and_a_code_of_its_own(
    house: Addresses, command: str, arguments: list[str]
) -> None:
    done = _in_shell(">/dev/full", command, house.http, *arguments)
    assert (done.returncode, done.stderr) == (6, b"callboard: standard output: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no place that is always full")
def test_what_cannot_be_said_beside_a_result_does_not_cost_the_result(house: Addresses) -> None:
    done = _in_shell("2>/dev/full", "call", house.http, "count", "to=2")
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize("more", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_pipe_gets_utf_8_whatever_a_terminal_here_would(
    house: Addresses, more: dict[str, str], flags: list[str]
) -> None:
    done = _in_shell("", "call", house.http, "echo", "text=Malmö 日本 🎭", *flags, **more)
    assert done.returncode == 0, done.stderr
    assert "Malmö 日本 🎭" in done.stdout.decode()


def _in_shell(streams: str, *arguments: str, **more: str) -> "subprocess.CompletedProcess[bytes]":
    """The command with its streams as a shell would have them."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {streams}', "sh", *CALLBOARD, *arguments],
        capture_output=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **more},
    )


def test_whoever_has_seen_enough_may_stop_reading() -> None:
    line = f"{' '.join(CALLBOARD)} list {APP} --json | head -c 10"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("{")


# What goes wrong is one line, and a code.


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["list"], 2, "TARGET"),
        (["call", APP], 2, "TOOL"),
        (["call", APP, "echo", "text"], 2, "invalid argument 'text': expected key=value or key:=json"),
        (["call", APP, "echo", "text:={"], 2, "invalid JSON"),
        (["call", APP, "echo", "text=a", "text=b"], 2, "duplicate argument 'text'"),
        (["prompt", APP, "brief", "topic:=1"], 2, "arguments of prompts are strings"),
        (["list", APP, "--revision", "1999-01-01"], 2, "unknown revision; supported: 2024-11-05"),
        (["list", APP, "--timeout", "0"], 2, "--timeout must be greater than 0"),
        (["list", APP, "--timeout", "soon"], 2, "soon"),
        (["list", APP, "--header", "secret"], 2, "invalid header: expected 'Name: value'"),
        (["list", "weather"], 2, "'weather' is not a target"),
        (["list", "localhost:7101"], 2, "did you mean http://localhost:7101/mcp?"),
        (["call", APP, "echo", "text=\udcff"], 2, r"invalid UTF-8 in argument 'text=\xff'"),
        (["call", APP, "\udcff"], 2, r"invalid UTF-8 in tool '\xff'"),
        (["read", APP, "x://\udcff"], 2, r"invalid UTF-8 in URI 'x://\xff'"),
        (["call", APP, "echo", "text=@nowhere"], 2, "text: nowhere: No such file or directory; for the text itself"),
        (["call", APP, "echo", "--args", "[]"], 2, "--args: expected a JSON object"),
        (["call", APP, "echo", "--root", "http://x"], 2, "--root 'http://x': expected a directory or a file:// URI"),
        (["call", APP, "echo", "--sampling", "@nowhere.py"], 2, "--sampling: nowhere.py: no such file"),
        (["list", APP, "--cacert", "nowhere.pem"], 2, "--cacert nowhere.pem: No such file or directory"),
        (["list", APP, "--cacert", APP], 2, "no certificates in PEM format"),
        (["list", APP, "--insecure", "--cacert", APP], 2, "--insecure and --cacert exclude each other"),
        (["list", APP, "--insecure", "--auth", "browser"], 2, "--auth browser and --insecure exclude each other"),
        (["describe", APP, "ecco"], 2, "no tool or prompt 'ecco'; did you mean 'echo'?"),
        (["serve", "library.py"], 2, "library.py is a Python file, and CONFIG is JSON or TOML: use callboard run"),
        (["list", "nowhere.py"], 2, "nowhere.py: no such file"),
        (["list", "nowhere.json#x"], 2, "nowhere.json: No such file or directory"),
        (["list", "http://127.0.0.1:1/mcp"], 3, "http://127.0.0.1:1: Connection refused"),
        (["list", "ws://127.0.0.1:1/mcp"], 3, "ws://127.0.0.1:1: Connection refused"),
        (["list", "http+unix://%2Fnowhere.sock/mcp"], 3, "unix:/nowhere.sock: No such file or directory"),
        (["list", "--"], 2, "TARGET"),
        (["list", APP, "--", "python"], 2, "unexpected argument"),
        (["bench", APP, "a.json"], 2, "callboard bench --json > a.json writes a file"),
        (["list", "--", "no-such-command"], 3, "no-such-command: No such file or directory"),
        (["list", "--", "false"], 3, "the server exited with 1"),
        (["call", APP, "nothing"], 4, "nothing (-32602)"),
        (["call", APP, "ecco", "text=hi"], 4, "Unknown tool: ecco (-32602); did you mean 'echo'?"),
        (["read", APP, "curious://nothing/at/all"], 4, "Resource not found"),
        (["prompt", APP, "nothing"], 4, "nothing"),
        (["call", APP, "hang", "--timeout", "0.3"], 5, "timed out: no response within 0.3"),
    ],
)
def test_what_goes_wrong_is_one_line_on_standard_error_and_a_code(arguments: list[str], code: int, words: str) -> None:
    done = piped(*arguments)
    assert done.returncode == code, done.stderr
    told = [line for line in done.stderr.splitlines() if not line.startswith(("hang:", "  server:"))]
    assert len(told) == 1, done.stderr
    assert told[0].startswith("callboard: ")
    assert words in told[0]
    assert done.stdout == ""


@pytest.mark.parametrize("typed", [["lst"], ["list", APP, "--auth", "[red]"], ["list", APP, "--jsn"]])
def test_what_was_typed_wrongly_is_one_line_however_narrow_it_is_there(typed: list[str]) -> None:
    done = piped(*typed, COLUMNS="40")
    assert done.returncode == 2
    [told] = done.stderr.splitlines()
    assert typed[-1] in told


def test_a_warning_is_a_plain_line_and_a_servers_words_in_it_command_nothing() -> None:
    done = piped("list", "--", sys.executable, "-c", ODD)
    assert done.returncode == 0
    [told] = done.stderr.splitlines()
    assert told.startswith("callboard: output schema unusable (tool: \ufffd[2J, reason: ")


def test_a_server_that_does_not_answer_is_given_up_and_its_last_words_are_shown() -> None:
    done = piped("list", "--timeout", "1", "--", sys.executable, "-c", DEAF)
    assert done.returncode == 3
    assert done.stderr.splitlines() == ["  server: I am deaf", "callboard: timed out: no response within 1 s"]


@pytest.mark.parametrize(
    "words", [["why"], [f"line {number}" for number in range(6)], [f"line {number}" for number in range(15)]]
)
def test_a_server_that_dies_at_once_is_heard_out_and_said_once(words: list[str]) -> None:
    written = "\n".join(words)
    done = piped("list", "--", "/bin/sh", "-c", f"echo '{written}' >&2; exit 3")
    assert done.returncode == 3
    *said, told = done.stderr.splitlines()
    assert said == [f"  server: {line}" for line in words[-10:]]
    assert told == "callboard: cannot connect: the server exited with 3"


async def test_a_server_that_dies_in_the_middle_is_said_so() -> None:
    async with started(*CALLBOARD, "call", "hang", *COMMAND) as process:
        await process.wait_said(b"here")
        for child in _children(process.process.pid):
            child.kill()
        assert await process.wait() == 5
        assert "callboard: the server was killed by SIGKILL" in process.words


def _children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


async def test_ctrl_c_takes_the_call_back_and_leaves_nothing_behind(house: Addresses) -> None:
    async with started(*CALLBOARD, "call", "hang", *COMMAND) as process:
        await process.wait_said(b"here")
        children = _children(process.process.pid)
        assert children
        process.signal(signal.SIGINT)
        assert await process.wait() == 130
        assert not any(child.is_running() for child in children)
        assert "Traceback" not in process.words


@needs_terminal  # where there is none, there is no SIGHUP either
@pytest.mark.parametrize("how", ["--default-signal=HUP", "--ignore-signal=HUP"])
async def test_a_closed_terminal_ends_it_with_all_it_started_unless_that_is_ignored_as_nohup_does(how: str) -> None:
    stays = f"{shlex.join(COMMAND[1:])}; sleep 600"  # whatever becomes of its input
    call = ("call", "hang", "--", "/bin/sh", "-c", stays)
    async with started("env", how, *CALLBOARD, *call) as process:
        await process.wait_said(b"here")
        children = _children(process.process.pid)
        assert children
        process.signal(signal.SIGHUP)
        if how.startswith("--ignore"):
            assert process.process.poll() is None
            process.signal(signal.SIGINT)
        assert await process.wait() == 130
        assert not any(_is_alive(child) for child in children)
        assert "Traceback" not in process.words


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE  # an orphan may wait to be buried
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("command", ["list", "call", "read", "prompt", "listen", "describe", "complete"])
def test_help_teaches_with_examples_and_says_what_the_codes_mean(command: str) -> None:
    done = piped(command, "--help")
    assert done.returncode == 0
    for taught in (
        f"callboard {command} ",
        "--json",
        "--revision",
        "--header",
        "--timeout",
        "Exit codes",
        "TARGET",
        "2025-11-25",
    ):
        assert taught in done.stdout


@pytest.mark.parametrize("command", [name for name in app if not name.startswith("-")])
def test_examples_fit_a_terminal_of_80_columns(command: str) -> None:
    wide = _help(command, columns=200).partition("Examples:")[2]
    assert wide
    assert _help(command, columns=80).partition("Examples:")[2] == wide


def _help(command: str, *, columns: int) -> str:
    """The help of *command* at a terminal of so many *columns*: that it comes out of a process is tested above."""
    said = io.StringIO()
    app.help_print([command], console=Console(file=said, width=columns))
    return said.getvalue()
