"""Arguments from files, results into files, descriptions, completions: commands as people and scripts use them."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.apps.handy import PICTURE, SOUND
from tests.at_terminal import at_terminal, piped
from tests.certificate import write_certificate
from tests.cli.test_commands import needs_terminal
from tests.fork_server import forked
from tests.process import CALLBOARD
from tests.served import Addresses, served
from tests.shared import APPS

APP: Final = str(APPS / "handy.py")


@pytest.fixture(scope="module")
def handy() -> Iterator[Addresses]:
    with served(f"{APP}:server") as addresses:
        yield addresses


def fed(given: bytes, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """The command with *given* on its standard input."""
    return subprocess.run([*forked(), *arguments], input=given, capture_output=True, timeout=60, check=False)


# Arguments.


def test_a_file_of_any_size_and_kind_is_an_argument(handy: Addresses, tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"\xff\xd8" + bytes(300_000))
    done = piped("call", handy.http, "digest", f"data=@{photo}")
    assert done.stdout == hashlib.sha256(photo.read_bytes()).hexdigest() + "\n", done.stderr
    text = tmp_path / "notes.txt"
    text.write_text("ü" * 1000)
    assert piped("call", handy.http, "size", f"text=@{text}").stdout == "1000\n"
    assert (
        piped("call", handy.http, "digest", f"data=@{text}").stdout.strip()
        == hashlib.sha256(text.read_bytes()).hexdigest()
    )  # where the tool wants bytes, a text is bytes, too


def test_standard_input_is_an_argument_or_all_of_them(handy: Addresses) -> None:
    assert fed(b"hello", "call", handy.http, "size", "text=@-").stdout == b"5\n"
    assert fed(b'{"text": "four"}', "call", handy.http, "size", "--args", "@-").stdout == b"4\n"
    twice = fed(b"{}", "call", handy.http, "size", "text=@-", "--args", "@-")
    assert (twice.returncode, twice.stderr) == (
        2,
        b"callboard: --args: standard input is already used for text\n",
    )


def test_arguments_as_json_from_a_flag_or_a_file_and_single_ones_go_before(handy: Addresses, tmp_path: Path) -> None:
    file = tmp_path / "arguments.json"
    file.write_text('{"points": [{"x": 1}], "colour": "red"}')
    assert json.loads(piped("call", handy.http, "plot", "--args", f"@{file}").stdout) == {"x": 1, "y": 0}
    given = piped("call", handy.http, "plot", "--args", f"@{file}", 'points:=[{"x": 2, "y": 3}]')
    assert json.loads(given.stdout) == {"x": 2, "y": 3}
    points = tmp_path / "points.json"
    points.write_text('[{"x": 4}]')
    assert json.loads(piped("call", handy.http, "plot", f"points:=@{points}").stdout) == {"x": 4, "y": 0}


def test_a_text_that_begins_with_an_at_sign_is_written_with_two(handy: Addresses) -> None:
    assert piped("call", handy.http, "size", "text=@@me").stdout == "3\n"
    assert piped("call", handy.http, "size", 'text:="@me"').stdout == "3\n"
    assert "for the text itself write text=@@me" in piped("call", handy.http, "size", "text=@me").stderr


@pytest.mark.parametrize("argument", ["points:=@{}", "--args=@{}"])
def test_a_file_that_is_no_json_is_named(handy: Addresses, tmp_path: Path, argument: str) -> None:
    file = tmp_path / "broken.json"
    file.write_bytes(b"{\xff")
    done = piped("call", handy.http, "plot", argument.format(file))
    assert done.returncode == 2
    assert f"invalid JSON in {file}" in done.stderr


# Results.


def test_images_and_sounds_are_saved_in_a_directory_and_none_is_overwritten(handy: Addresses, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "media"
    for number in (1, 2):
        done = piped("call", handy.http, "media", "--save", str(folder))
        assert done.stdout.splitlines() == [
            f"[image: image/png, {len(PICTURE)} bytes; saved as {folder}/media-{number}.png]",
            f"[audio: audio/wav, {len(SOUND)} bytes; saved as {folder}/media-{number}.wav]",
            "and a text",
        ]
    assert {path.name for path in folder.iterdir()} == {"media-1.png", "media-2.png", "media-1.wav", "media-2.wav"}
    assert (folder / "media-2.png").read_bytes() == PICTURE
    assert (folder / "media-1.wav").read_bytes() == SOUND


def test_an_output_file_gets_the_bytes_and_further_ones_go_beside_it(handy: Addresses, tmp_path: Path) -> None:
    file = tmp_path / "it.png"
    assert piped("call", handy.http, "media", "-o", str(file), "--json").returncode == 0
    assert file.read_bytes() == PICTURE
    assert (tmp_path / "it-2.png").read_bytes() == SOUND
    piped("call", handy.http, "size", "text=abc", "-o", str(file))
    assert file.read_text() == "3\n"  # a result without bytes is its text
    out = subprocess.run([*CALLBOARD, "call", handy.http, "media", "-o", "-"], capture_output=True, check=True)
    assert out.stdout == PICTURE + SOUND


def test_a_file_that_cannot_be_written_has_a_code_of_its_own(handy: Addresses, tmp_path: Path) -> None:
    done = piped("call", handy.http, "media", "-o", str(tmp_path / "no" / "where"), "--json")
    assert done.returncode == 6
    assert done.stderr == f"callboard: {tmp_path}/no/where: No such file or directory\n"
    done = piped("call", handy.http, "media", "--save", "/dev/null/x")
    assert (done.returncode, done.stderr) == (6, "callboard: /dev/null/x: Not a directory\n")


# Errors for scripts.


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["call", APP, "nothing"], 4, "server_error"),
        (["call", APP, "size", "text"], 2, "usage"),
        (["list", "http://127.0.0.1:1/mcp"], 3, "cannot_connect"),
        (["list", APP, "--nonsense"], 2, "usage"),
        (["list"], 2, "usage"),
    ],
)
def test_an_error_is_one_object_for_scripts(arguments: list[str], code: int, kind: str) -> None:
    done = piped(*arguments, "--json")
    assert done.returncode == code
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert done.stderr == f"callboard: {error['message']}\n"


def test_what_a_server_said_before_it_died_is_in_the_error() -> None:
    done = piped("list", "--json", "--", "/bin/sh", "-c", "echo no key >&2; exit 3")
    assert json.loads(done.stdout)["error"]["server_stderr"] == ["no key"]


# What is shown on the way, and what is answered.


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_verbose_shows_the_log_and_the_standard_error_of_a_server(revision: str) -> None:
    command = ("--", sys.executable, "-m", "callboard", "run", APP)
    done = piped("call", "talk", "-v", "--revision", revision, *command)
    assert done.stdout == "done\n"
    said = done.stderr.splitlines()
    assert {"info: on the log", 'debug: {"detail":1}', "  server: on standard error"} <= set(said)
    quiet = piped("call", "talk", "--revision", revision, *command)
    assert "standard error" not in quiet.stderr


def test_sampling_is_answered_by_a_flag_a_file_or_a_script(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        "def sampling(params):\n    return params.messages[0].content.text.upper()\n"
        "async def later(params):\n    return 'later'\n"
    )
    text = tmp_path / "answer.txt"
    text.write_text("from a file")
    for given, said in (
        ("four", "four"),
        (f"@{text}", "from a file"),
        (f"@{script}", "2 + 2?"),
        (f"@{script}:later", "later"),
    ):
        assert piped("call", APP, "ask", "question=2 + 2?", "--sampling", given).stdout == f"{said}\n"
    missing = piped("call", APP, "ask", "question=?", "--sampling", f"@{script}:nothing")
    assert (missing.returncode, "has no function 'nothing'" in missing.stderr) == (2, True)


def test_roots_are_directories_or_uris(tmp_path: Path) -> None:
    done = piped("call", APP, "folders", "--root", str(tmp_path), "--root", "file:///srv/data")
    assert done.stdout == f"{tmp_path.as_uri()} file:///srv/data\n"


# Descriptions and completions.


def test_describe_tells_types_defaults_and_values() -> None:
    done = piped("describe", APP, "plot", "travel")
    lines = done.stdout.splitlines()
    assert lines[0] == "plot (read-only)"
    assert "  All of them." in lines
    assert "points\tlist of {x: integer, y?: integer}\trequired\t" in lines
    assert any(line.startswith("colour\t") and '"red"\tOf the line.' in line and '"green"' in line for line in lines)
    assert "width\tnumber (> 0, <= 10)\t1.5\t" in lines
    assert "  returns {x: integer, y?: integer}" in lines
    assert "travel (prompt)" in lines
    everything = piped("describe", APP).stdout
    assert "digest\n" in everything
    assert "travel" not in everything


def test_describe_prints_definitions_as_json() -> None:
    [one] = json.loads(piped("describe", APP, "plot", "--json").stdout)
    assert one["inputSchema"]["properties"]["width"]["default"] == 1.5
    every = json.loads(piped("describe", APP, "--json").stdout)
    assert {"digest", "plot"} <= {tool["name"] for tool in every}


def test_complete_prints_what_a_server_suggests() -> None:
    assert piped("complete", APP, "travel", "to", "O").stdout == "Oslo\nOdda\n"
    assert piped("complete", APP, "travel", "to=O").stdout == "Oslo\nOdda\n"
    assert piped("complete", APP, "travel", "to", "O", "start=Oslo").stdout == "Odda\n"
    assert json.loads(piped("complete", APP, "travel", "to", "B", "--json").stdout)["values"] == ["Bergen"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_knows_commands_and_flags(shell: str) -> None:
    script = piped("completion", shell).stdout
    for known in ("describe", "listen", "cacert", "verbose"):
        assert known in script


# At a terminal.


@needs_terminal
async def test_a_structured_result_is_indented_at_a_terminal_that_is_too_narrow_for_one_line() -> None:
    async with at_terminal("call", APP, "plot", 'points:=[{"x": 7}]') as terminal:
        assert await terminal.wait_ended() == 0
        assert '{"x":7,"y":0}\r\n' in terminal.screen
    async with at_terminal("call", APP, "plot", 'points:=[{"x": 7}]', columns=10) as terminal:
        assert await terminal.wait_ended() == 0
        assert '"x": 7,\r\n' in terminal.screen
        assert terminal.screen.count('"x"') == 1


@needs_terminal
async def test_ctrl_c_says_that_a_call_was_cancelled() -> None:
    async with at_terminal("call", str(APPS / "curious.py"), "greet") as terminal:
        await terminal.wait_shown("name:")
        await terminal.press("\x03")
        assert await terminal.wait_ended() == 130
        assert terminal.lines[-2].endswith("callboard: cancelled")  # on a line of its own, below the question
        assert "name:" not in terminal.lines[-2]


# Certificates.


def test_a_certificate_of_its_own_is_trusted_if_its_ca_is_named_or_nothing_is_verified(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "localhost")
    with served(f"{APP}:server", "--tls-cert", str(certificate), "--tls-key", str(key), "--allow-host", "*") as here:
        url = here.http.replace("http://127.0.0.1", "https://localhost")
        refused = piped("call", url, "size", "text=abc")
        assert refused.stderr.endswith("self-signed certificate; trust it with --cacert FILE\n")
        assert refused.returncode == 3
        assert piped("call", url, "size", "text=abc", "--cacert", str(certificate)).stdout == "3\n"
        trusting = piped("call", url, "size", "text=abc", "--insecure")
        assert trusting.stdout == "3\n"
        assert trusting.stderr.startswith("callboard: --insecure: the server's certificate is not verified")


@needs_terminal
async def test_a_question_through_a_broker_is_asked_in_the_name_of_the_server_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"guest": {"python": str(APPS / "curious.py")}}}))
    with served(str(file), command="serve") as broker:
        async with at_terminal("call", broker.http, "guest__greet") as terminal:
            await terminal.wait_shown("guest (behind callboard) asks: Who are you?")
            await terminal.wait_shown("name:")
            await terminal.type("/decline")
            assert await terminal.wait_ended() == 1
