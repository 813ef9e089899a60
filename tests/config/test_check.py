"""`callboard check`, as people and scripts use it."""

import json
import sys
from pathlib import Path

import pytest

from tests.at_terminal import at_terminal, piped
from tests.cli.test_commands import needs_terminal
from tests.shared import APPS

GOOD = f"""
[mcpServers.weather]
command = "{sys.executable}"
args = ["weather.py", "--token", "t0p", "--key=${{NOT_SECRET}}"]
colour = "red"

[mcpServers.remote]
url = "https://example.com/mcp?key=t0p"
headers = {{ Authorization = "Bearer t0p" }}
callboard = {{ prefix = "", share = "all" }}
"""

BAD = """{
  "mcpServers": {
    "a": {
      "command": "python",
      "args": "weather.py"
    },
    "b": {
      "urll": "https://example.com/mcp"
    }
  }
}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "servers.toml"
    file.write_text(GOOD)
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "mcp.json"
    file.write_text(BAD)
    return file


def test_a_good_file_is_a_line_for_each_server_and_none_is_started(good: Path) -> None:
    done = piped("check", str(good), NOT_SECRET="v4lue")  # noqa: S106  # it is none
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        f"weather\tstdio\t{sys.executable} weather.py --token *** --key=${{NOT_SECRET}}\tweather\tprincipal",
        "remote\thttp\thttps://example.com/mcp?key=***\t\tall",
    ]
    assert done.stderr.splitlines() == [f"{good}:5: warning: mcpServers.weather.colour: is unknown and ignored"]


def test_a_bad_file_is_all_of_its_mistakes_with_their_lines(bad: Path) -> None:
    done = piped("check", str(bad))
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.removeprefix(str(bad)) for line in done.stderr.splitlines() if "no such program" not in line] == [
        ":5: mcpServers.a.args: must be a list of strings",
        ":7: mcpServers.b: must have exactly one of `command`, `url`, `python` and `openapi`",
        ":8: warning: mcpServers.b.urll: is unknown and ignored; did you mean `url`?",
    ]


def test_scripts_get_json(good: Path, bad: Path) -> None:
    done = piped("check", str(good), "--json", NOT_SECRET="v4lue")  # noqa: S106  # it is none
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr, told["file"], told["mistakes"]) == (0, "", str(good), [])
    assert [server["name"] for server in told["servers"]] == ["weather", "remote"]
    assert told["servers"][1] == {
        "name": "remote",
        "transport": "http",
        "target": "https://example.com/mcp?key=***",
        "prefix": "",
        "share": "all",
        "line": 7,
    }
    assert [(warning["line"], warning["where"]) for warning in told["warnings"]] == [(5, "mcpServers.weather.colour")]
    done = piped("check", str(bad), "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr, told["servers"]) == (2, "", [])
    assert told["mistakes"][0] == {
        "line": 5,
        "column": 7,
        "where": "mcpServers.a.args",
        "message": "must be a list of strings",
    }


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("server = None")
    assert "is a Python file, no configuration" in piped("check", str(tmp_path / "app.py")).stderr
    done = piped("check", str(tmp_path / "none.toml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{tmp_path}/none.toml: No such file or directory\n"


def test_help_teaches_with_examples_and_says_what_the_codes_mean() -> None:
    done = piped("check", "--help")
    assert done.returncode == 0
    for taught in ("callboard check servers.toml", "--json", "Exit codes", "CONFIG"):
        assert taught in done.stdout


@needs_terminal
async def test_a_person_sees_a_table(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"servers": {"[bold]": {"url": "http://h/"}}}')
    async with at_terminal("check", str(file)) as terminal:
        assert await terminal.wait_ended() == 2
        assert "has characters other than letters" in terminal.screen
    file.write_text('{"servers": {"bold": {"url": "http://h/[red]"}}}')
    async with at_terminal("check", str(file)) as terminal:
        assert await terminal.wait_ended() == 0
        assert "http://h/[red]" in terminal.screen
        assert "│" in terminal.screen


RULES = """
[[authorization.rules]]
tools = ["weather__delete_*"]
needs = ["weather:write"]
approve = "operator"

[[authorization.rules]]
servers = ["remote"]
only = { claim = "groups", has = "hr" }

[authorization.implies]
admin = ["weather:*"]
"""


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        (
            ("--as", "scope=a b"),
            [
                "server\tweather\topen\t\t",
                "server\tremote\thidden\t\t",
                "rule\ttools=weather__delete_*\tneeds scopes\tweather:write\t",
                "rule\tservers=remote\thidden\t\t",
                "tool\tweather__delete_all\tneeds scopes\tweather:write\t",
                "tool\tget\thidden\t\t",
            ],
        ),
        (
            ("--as", "scope=admin", "--claim", "groups=it", "--claim", "groups=hr", "--tenant", "x"),
            [
                "server\tweather\topen\t\t",
                "server\tremote\topen\t\t",
                "rule\ttools=weather__delete_*\topen\t\toperator",
                "rule\tservers=remote\topen\t\t",
                "tool\tweather__delete_all\topen\t\toperator",
                "tool\tget\topen\t\t",
            ],
        ),
    ],
)
def test_it_says_what_a_caller_would_see(tmp_path: Path, flags: tuple[str, ...], seen: list[str]) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(GOOD + RULES)
    done = piped("check", str(file), *flags, "--tool", "weather__delete_all", "--tool", "get", NOT_SECRET="v")  # noqa: S106
    assert done.returncode == 0
    assert done.stdout.splitlines()[2:] == seen


def test_a_file_of_rules_alone_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("[authorization]\nrules = [{ tools = ['x'], need = ['y'] }]\n")
    done = piped("check", str(file))
    assert done.returncode == 2
    assert "rules.toml:2: authorization.rules[0].need: is unknown; did you mean `needs`?" in done.stderr
    file.write_text("[authorization]\nrules = [{ tools = ['x'], needs = ['y'] }]\n")
    done = piped("check", str(file), "--tool", "x", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["seen"][-1] == {
        "kind": "tool",
        "name": "x",
        "seen": "needs scopes",
        "scopes": ["y"],
        "approve": None,
    }


def test_a_caller_that_cannot_be_read_is_told(good: Path) -> None:
    done = piped("check", str(good), "--as", "scopes", NOT_SECRET="v")  # noqa: S106
    assert done.returncode == 2
    assert "expected scope=" in done.stderr


def test_servers_are_started_if_asked_for_and_those_that_do_not_come_up_are_told(tmp_path: Path) -> None:
    weather = ["-m", "callboard", "run", str(APPS / "handy.py")]
    dies = ["-c", "import sys; sys.exit('no key')"]
    file = tmp_path / "mcp.json"
    servers = {"handy": {"command": sys.executable, "args": weather}, "dies": {"command": sys.executable, "args": dies}}
    file.write_text(json.dumps({"mcpServers": servers}))
    done = piped("check", str(file), "--start", "--json")
    assert done.returncode == 1
    started = {one["name"]: one for one in json.loads(done.stdout)["started"]}
    assert started["handy"]["state"] == "up"
    assert "no key" in started["dies"]["why"]
    mistyped = {"rules": [{"tools": ["handy_x"], "deny": True}]}
    file.write_text(json.dumps({"mcpServers": {"handy": servers["handy"]}, "authorization": mistyped}))
    done = piped("check", str(file), "--start")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "handy\tup\t"
    assert "warning: the rule tools=handy_x guards nothing: no tool matches `handy_x`" in done.stderr
