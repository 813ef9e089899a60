"""What a file of servers says, in JSON as every host has it and in TOML, and that both say the same."""

import json
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from callboard.actors.broker.settings import BackendSettings, Filter, Restarts
from callboard.codecs.revisions import Revision
from callboard.configuration import BackendSpec, BadConfiguration, PythonTarget, Remote, read_configuration
from callboard.configuration.reading import MAX_FILE
from callboard.supervisor import Backoff, Intensity
from callboard.transports.client.process import Command
from tests.configuration.files import mistakes, read, read_one, told

FULL_TOML = f"""
[mcpServers.weather]
command = "{sys.executable}"
args = ["-m", "weather", ""]
env = {{ REGION = "north" }}
cwd = "sub"

[mcpServers.weather.callboard]
prefix = "wx"
tools.allow = ["get_*", "list_*"]
tools.deny = ["*_secret"]
rename = {{ get_forecast = "forecast" }}
timeout = 5
cap = 50.5
max_in_flight = 7
max_connections = 3
idle_time = 60
share = "all"
restart = {{ times = 3, per = 10, first = 0, most = 2, cool_down = 5 }}
env = ["SECRET_OF_OURS"]
revision = "2025-06-18"
trusted = true
pin = true
roots = ["file:///srv"]

[mcpServers.remote]
type = "http"
url = "https://example.com/mcp"
headers = {{ X-Key = "k" }}
callboard.headers = {{ X-More = "m" }}
callboard.prefix = ""
"""

FULL = {
    "weather": {
        "command": sys.executable,
        "args": ["-m", "weather", ""],
        "env": {"REGION": "north"},
        "cwd": "sub",
        "callboard": {
            "prefix": "wx",
            "tools": {"allow": ["get_*", "list_*"], "deny": ["*_secret"]},
            "rename": {"get_forecast": "forecast"},
            "timeout": 5,
            "cap": 50.5,
            "max_in_flight": 7,
            "max_connections": 3,
            "idle_time": 60,
            "share": "all",
            "restart": {"times": 3, "per": 10, "first": 0, "most": 2, "cool_down": 5},
            "env": ["SECRET_OF_OURS"],
            "revision": "2025-06-18",
            "trusted": True,
            "pin": True,
            "roots": ["file:///srv"],
        },
    },
    "remote": {
        "type": "http",
        "url": "https://example.com/mcp",
        "headers": {"X-Key": "k"},
        "callboard": {"headers": {"X-More": "m"}, "prefix": ""},
    },
}


@pytest.mark.parametrize("member", ["mcpServers", "servers"])
def test_toml_and_json_say_the_same_and_all_of_it_arrives(
    tmp_path: Path, member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "s3cret")
    (tmp_path / "sub").mkdir()
    from_toml = read(tmp_path, FULL_TOML.replace("mcpServers", member))
    from_json = read(tmp_path, json.dumps({member: FULL}), "mcp.json")
    assert from_toml.backends == from_json.backends
    assert from_toml.warnings == from_json.warnings == ()
    weather, remote = from_toml.backends
    assert weather == BackendSpec(
        name="weather",
        target=Command(
            args=(sys.executable, "-m", "weather", ""),
            env={"REGION": "north", "SECRET_OF_OURS": "s3cret"},
            cwd=str(tmp_path / "sub"),
        ),
        settings=BackendSettings(
            prefix="wx",
            tools=Filter(allow=("get_*", "list_*"), deny=("*_secret",)),
            rename={"get_forecast": "forecast"},
            timeout=5.0,
            cap=50.5,
            max_in_flight=7,
            max_connections=3,
            idle_time=60.0,
            share="all",
            restarts=Restarts(intensity=Intensity(3, per=10.0), backoff=Backoff(first=0.0, most=2.0), cool_down=5.0),
            revision=Revision.V2025_06_18,
            trusted=True,
            pin=True,
            roots=("file:///srv",),
        ),
    )
    assert isinstance(weather.settings.revision, Revision)
    assert remote.target == Remote(url="https://example.com/mcp", headers={"X-Key": "k", "X-More": "m"}, kind="http")
    assert (weather.prefix, remote.prefix) == ("wx", "")
    assert (weather.line, remote.line) == (2, 26)


def test_every_setting_has_its_default_where_nothing_is_said(tmp_path: Path) -> None:
    spec = read_one(tmp_path, url="http://127.0.0.1/mcp")
    assert spec.settings == BackendSettings()
    assert spec.prefix == "it"
    assert spec.auth is None


def test_servers_stay_in_the_order_of_the_file_and_both_members_count(tmp_path: Path) -> None:
    text = (
        '{"servers": {"z": {"url": "http://h/"}}, "mcpServers": {"b": {"url": "http://h/"}, "a": {"url": "http://h/"}}}'
    )
    assert [spec.name for spec in read(tmp_path, text, "mcp.json").backends] == ["b", "a", "z"]


def test_json_as_editors_write_it_is_read(tmp_path: Path) -> None:
    text = '\ufeff{\n  // mine\n  "servers": {\n    "a": {"url": "http://h/",}, /* off */\n  },\n}\n'
    assert [(spec.name, spec.line) for spec in read(tmp_path, text, "mcp.json").backends] == [("a", 4)]


@pytest.mark.parametrize(
    ("name", "text"), [("conf", '{"servers": {}}'), ("conf", "[servers]"), ("c.jsonc", '{"servers":{}}')]
)
def test_the_format_is_told_by_the_ending_or_else_by_the_beginning(tmp_path: Path, name: str, text: str) -> None:
    configuration = read(tmp_path, text, name)
    assert configuration.backends == ()
    assert "there is no server in it" in str(configuration.warnings[0])


# Where a server is.


@pytest.mark.parametrize(
    ("written", "url", "kind", "transport"),
    [
        ({"url": "https://h/mcp"}, "https://h/mcp", "any", "http"),
        ({"url": "https://h/mcp", "type": "streamable-http"}, "https://h/mcp", "http", "http"),
        ({"url": "https://h/sse", "transport": "sse"}, "https://h/sse", "sse", "sse"),
        ({"url": "wss://h/mcp", "type": "ws"}, "wss://h/mcp", "any", "websocket"),
        ({"url": "unix:/run/a b.sock"}, "http+unix://%2Frun%2Fa%20b.sock/mcp", "any", "http"),
        ({"url": "http+unix://%2Frun%2Fa.sock/x"}, "http+unix://%2Frun%2Fa.sock/x", "any", "http"),
    ],
)
def test_a_url_is_where_a_server_is(
    tmp_path: Path, written: dict[str, Any], url: str, kind: str, transport: str
) -> None:
    spec = read_one(tmp_path, **written)
    assert isinstance(spec.target, Remote)
    assert (spec.target.url, spec.target.kind, spec.transport) == (url, kind, transport)


def test_a_python_file_is_meant_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "app.py").write_text("raise SystemExit('never loaded')")
    monkeypatch.chdir(tmp_path / "apps")
    spec = read_one(tmp_path, python="apps/app.py:mine")
    assert spec.target == PythonTarget(file=tmp_path / "apps" / "app.py", name="mine")
    assert str(spec.target) == f"{tmp_path}/apps/app.py:mine"
    assert spec.transport == "in process"
    assert read_one(tmp_path, python="apps/app.py").target == PythonTarget(
        file=tmp_path / "apps" / "app.py", name="server"
    )


def test_a_disabled_server_is_left_out_whatever_else_it_says(tmp_path: Path) -> None:
    off = '[servers.off]\ncommand = "${NOT_SET_ANYWHERE}"\ndisabled = true\n'
    configuration = read(tmp_path, off + '[servers.on]\nurl = "http://h/"\ndisabled = false\n')
    assert [spec.name for spec in configuration.backends] == ["on"]
    assert [(warning.line, warning.where) for warning in configuration.warnings] == [(3, "servers.off.disabled")]


# The environment.


def test_variables_are_filled_in_everywhere_and_their_values_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "k${OTHER}")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NONE", raising=False)
    spec = read_one(
        tmp_path,
        url="https://${NONE:-example.com}/mcp",
        headers={"A": "Bearer ${KEY}", "B": "${env:KEY}", "C": "${EMPTY:-else}", "D": "$${KEY}", "E": "a${EMPTY}b"},
        callboard={"prefix": "${NONE:-p}", "tools": {"allow": ["${NONE:-*}"]}, "rename": {"a": "${NONE:-b}"}},
    )
    assert isinstance(spec.target, Remote)
    assert spec.target.url == "https://example.com/mcp"
    assert spec.target.headers == {"A": "Bearer k${OTHER}", "B": "k${OTHER}", "C": "else", "D": "${KEY}", "E": "ab"}
    assert (spec.prefix, spec.settings.tools.allow, spec.settings.rename) == ("p", ("*",), {"a": "b"})


def test_what_the_environment_holds_is_in_no_message_and_no_repr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S", "s3cret")
    monkeypatch.setenv("BAD", "s3cret\nx")
    text = """
[servers.a]
command = "${S}"
args = ["--token", "${S}"]
env = { A = "${S}" }
callboard = { prefix = "${S}", rename = { a = "${S}" }, env = ["S"] }
[servers.b]
url = "https://example.com/${S}?key=${S}"
headers = { Authorization = "${S}" }
"""
    configuration = read(tmp_path, text)
    assert "s3cret" not in repr(configuration)
    assert "s3cret" not in "".join(map(str, configuration.warnings))
    assert "s3cret" not in "".join(spec.shown for spec in configuration.backends)
    wrong = """
[servers.a]
url = "${S}"
callboard.share = "${S}"
callboard.revision = "${S}"
callboard.prefix = "${S}/"
callboard.roots = ["${S}"]
callboard.rename = { a = "${S}", b = "${S}" }
[servers."b"]
url = "http://example.com/"
headers = { X = "${BAD}" }
callboard.oauth = { grant = "${S}", client_id = "${S}", client_secret_env = "S", private_key_env = "S" }
[servers.c]
python = "${S}"
"""
    found = mistakes(tmp_path, wrong)
    assert len(found) >= 9
    assert "s3cret" not in "".join(map(repr, found))


def test_an_allowed_variable_that_is_not_there_is_only_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NONE", raising=False)
    text = f'[servers.a]\ncommand = "{sys.executable}"\ncallboard.env = ["NONE", "PATH"]\n'
    configuration = read(tmp_path, text)
    assert [str(one).removeprefix(f"{tmp_path}/") for one in configuration.warnings] == [
        'servers.toml:3: warning: servers.a.callboard.env: the environment has no "NONE" to hand on'
    ]
    assert configuration.backends[0].target == Command(args=(sys.executable,))


# What is odd.


@pytest.mark.parametrize(
    ("written", "where", "why"),
    [
        ({"url": "http://h/", "header": {}}, "header", "did you mean `headers`?"),
        ({"url": "http://h/", "colour": 1}, "colour", "is not known, and left alone"),
        ({"url": "http://h/", "timeout": 5}, "timeout", "write `callboard.timeout`"),
        ({"url": "http://h/", "autoApprove": []}, "autoApprove", "left alone"),
        ({"url": "http://h/", "callboard": {"time_out": 5}}, "callboard.time_out", "did you mean `timeout`?"),
        ({"url": "http://h/", "callboard": {"tools": {"alow": []}}}, "callboard.tools.alow", "did you mean `allow`?"),
        ({"url": "http://h/", "callboard": {"restart": {"time": 1}}}, "callboard.restart.time", "`times`"),
        ({"url": "http://h/", "callboard": {"timeout": 1000}}, "callboard.timeout", "more than `cap`, 600 s"),
        ({"url": "http://h/", "callboard": {"cap": 10}}, "callboard.cap", "more than `cap`, 10 s"),
        ({"url": "http://h/", "callboard": {"tools": {"allow": []}}}, "callboard.tools.allow", "no tool is let"),
        ({"url": "http://h/", "env": {}}, "env", "is for a `command`"),
        ({"command": sys.executable, "headers": {}}, "headers", "has no headers"),
        ({"command": "no-such-program-anywhere"}, "command", 'there is no program "no-such-program-anywhere"'),
        ({"command": "./no/such/file"}, "command", "there is no program"),
        ({"command": sys.executable, "cwd": "no/such"}, "cwd", "there is no such folder"),
    ],
)
def test_what_is_odd_is_kept_with_a_warning(tmp_path: Path, written: Any, where: str, why: str) -> None:
    configuration = read(tmp_path, json.dumps({"servers": {"it": written}}), "mcp.json")
    assert len(configuration.backends) == 1
    assert [warning.where for warning in configuration.warnings] == [f"servers.it.{where}"]
    assert why in configuration.warnings[0].message
    assert configuration.warnings[0].is_warning


def test_the_questions_of_vs_code_are_explained(tmp_path: Path) -> None:
    text = """{
  "inputs": [{"id": "key", "type": "promptString"}],
  "servers": {
    "a": {
      "url": "http://h/",
      "headers": {
        "Key": "${input:key}"
      }
    },
    "b": {"command": "x", "args": ["${workspaceFolder}"]}
  }
}"""
    with pytest.raises(BadConfiguration) as refused:
        read(tmp_path, text, "mcp.json")
    assert next((one.line, one.where) for one in refused.value.warnings) == (2, "inputs")
    key, folder = refused.value.mistakes
    assert (key.line, key.column, key.where) == (7, 9, "servers.a.headers.Key")
    assert "write ${VAR} and set it in the environment" in key.message
    assert (folder.line, folder.where) == (10, "servers.b.args[0]")
    assert "write a path" in folder.message


# What is wrong.


def test_every_mistake_is_found_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = """\
[mcpServers.weather]
command = 5
args = ["a", 7,
  8]
[mcpServers.weather.callboard]
timeout = 0
share = "principle"
revision = "2025-06-19"
restart = { times = -1, per = 0, first = 9, most = 1 }

[mcpServers."a/b"]
url = "ftp://example.com"
callboard.max_in_flight = 0
callboard.cap = inf

[mcpServers.none]

[mcpServers.both]
command = "x"
url = "http://h/"

[mcpServers.other]
url = "http://h/"
callboard.prefix = "weather"
callboard.pin = "yes"
callboard.roots = ["/srv"]
"""
    assert told(tmp_path, text) == [
        "servers.toml:2: mcpServers.weather.command: must be a string",
        "servers.toml:3: mcpServers.weather.args: must be a list of strings",
        "servers.toml:4: mcpServers.weather.args: must be a list of strings",
        "servers.toml:6: mcpServers.weather.callboard.timeout: must be more than 0",
        (
            'servers.toml:7: mcpServers.weather.callboard.share: "principle" is none of all, principal, session; '
            "did you mean `principal`?"
        ),
        (
            'servers.toml:8: mcpServers.weather.callboard.revision: "2025-06-19" is none of 2024-11-05, 2025-03-26, '
            "2025-06-18, 2025-11-25, 2026-07-28; did you mean `2025-06-18`?"
        ),
        "servers.toml:9: mcpServers.weather.callboard.restart.most: must be `first`, 9 s, or more",
        "servers.toml:9: mcpServers.weather.callboard.restart.times: must be 0 or more",
        "servers.toml:9: mcpServers.weather.callboard.restart.per: must be more than 0",
        'servers.toml:11: mcpServers."a/b": "a/b" may have letters, digits, `_`, `.` and `-` only',
        (
            'servers.toml:12: mcpServers."a/b".url: "ftp://example.com" is no address of a server: '
            "write http://, https://, ws://, wss://, http+unix:// or unix:/path"
        ),
        'servers.toml:13: mcpServers."a/b".callboard.max_in_flight: must be 1 or more',
        'servers.toml:14: mcpServers."a/b".callboard.cap: must be a number',
        "servers.toml:16: mcpServers.none: must have either a `command` or a `url`, or be a `python` server",
        "servers.toml:18: mcpServers.both: must have either a `command` or a `url`, or be a `python` server",
        (
            "servers.toml:24: mcpServers.other.callboard.prefix: has the same prefix as the server in line 1; "
            "set `callboard.prefix`"
        ),
        "servers.toml:25: mcpServers.other.callboard.pin: must be true or false",
        "servers.toml:26: mcpServers.other.callboard.roots: must be a list of file:// URIs",
    ]


@pytest.mark.parametrize(
    ("written", "where", "why"),
    [
        (5, "", "is no object"),
        ({"url": ""}, ".url", "must be a string"),
        ({"url": "http://"}, ".url", "is no address"),
        ({"url": "http://h:port/"}, ".url", "is no address"),
        ({"url": "http://h/ü"}, ".url", "is no address"),
        ({"url": "http://h/a b"}, ".url", "is no address"),
        ({"url": "unix:"}, ".url", "is no address"),
        ({"url": "http://u:p4ss@h:port/?q=p4ss"}, ".url", "is no address"),
        ({"url": "http://h/", "type": "stdio"}, "", "a `url` is not spoken to over stdio"),
        ({"url": "http://h/", "type": "htp"}, "", "did you mean `http`?"),
        ({"url": "http://h/", "type": 7}, "", "type '7' is not known"),
        ({"url": "http://h/", "headers": {"a b": "c"}}, '.headers."a b"', "is no name of a header"),
        ({"url": "http://h/", "headers": {"a": "b\nc"}}, ".headers.a", "cannot be sent"),
        ({"url": "http://h/", "headers": {"a": 1}}, ".headers", "must be an object of strings"),
        ({"url": "http://h/", "disabled": "no"}, ".disabled", "must be true or false"),
        ({"url": "http://h/", "callboard": []}, ".callboard", "must be an object"),
        ({"url": "http://h/", "callboard": {"timeout": True}}, ".callboard.timeout", "must be a number"),
        ({"url": "http://h/", "callboard": {"timeout": "5"}}, ".callboard.timeout", "must be a number"),
        ({"url": "http://h/", "callboard": {"max_connections": 1.5}}, ".callboard.max_connections", "whole number"),
        ({"url": "http://h/", "callboard": {"share": 1}}, ".callboard.share", "must be one of all, principal"),
        ({"url": "http://h/", "callboard": {"tools": ["a"]}}, ".callboard.tools", "must be an object"),
        ({"url": "http://h/", "callboard": {"tools": {"deny": "a"}}}, ".callboard.tools.deny", "a list of strings"),
        ({"url": "http://h/", "callboard": {"rename": {"a": ""}}}, ".callboard.rename.a", "must be a name"),
        ({"url": "http://h/", "callboard": {"rename": {"a": "c", "b": "c"}}}, ".callboard.rename.b", '"a" is renamed'),
        ({"url": "http://h/", "callboard": {"prefix": "a b"}}, ".callboard.prefix", "letters, digits"),
        ({"url": "http://h/", "callboard": {"prefix": "p" * 65}}, ".callboard.prefix", "longer than 64"),
        ({"url": "http://h/", "callboard": {"prefix": 1}}, ".callboard.prefix", "must be a string"),
        ({"command": "x\0y"}, ".command", "code 0"),
        ({"command": "x", "type": "sse"}, "", "a `command` is spoken to over stdio"),
        ({"command": "x", "env": {"A=B": "1"}}, '.env."A=B"', "is no name of a variable"),
        ({"command": "x", "cwd": 1}, ".cwd", "must be a string"),
        ({"command": "x", "cwd": "~nobody-of-this-name"}, ".cwd", "the name of nobody"),
        ({"command": "x", "args": ["${NOT_SET_ANYWHERE}"]}, ".args[0]", "the environment has no NOT_SET_ANYWHERE"),
        ({"command": "x", "args": ["${}"]}, ".args[0]", "${} is not known here; ${VAR} is"),
        ({"command": "x", "callboard": {"oauth": {}}}, ".callboard.oauth", "is for a `url`"),
        ({"python": "app.txt"}, ".python", "write FILE.py:NAME"),
        ({"python": "no-such-file.py:server"}, ".python", "there is no such file"),
        ({"python": 5}, ".python", "must be a string: FILE.py:NAME"),
        ({"python": "a.py", "command": "x"}, "", "must have either"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(tmp_path: Path, written: Any, where: str, why: str) -> None:
    text = json.dumps({"mcpServers": {"it": written}}, indent=1)
    found = mistakes(tmp_path, text, "mcp.json")
    assert [one.where for one in found if why in one.message] == [f"mcpServers.it{where}"], found
    assert "p4ss" not in repr(found)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("mcp.json", "", "mcp.json:1: the file is empty"),
        ("s.toml", " \n", "s.toml:1: the file is empty"),
        ("mcp.json", "[]", "mcp.json:1: has neither `mcpServers` nor `servers`"),
        ("mcp.json", '{"mcpServers": []}', "mcp.json:1: mcpServers: must be an object"),
        ("s.toml", "mcpServers = 1", "s.toml:1: mcpServers: must be a table"),
        (
            "mcp.json",
            '{\n"servers": {\n"a": {}\n"b": {}}}',
            "mcp.json:4: is no JSON: a `,` or `}` is missing before this",
        ),
        ("s.toml", "[servers.a]\nurl = http", "s.toml:2: is no TOML: invalid value"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    assert told(tmp_path, text, name) == [says]


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"nothing\.json: No such file"):
        read_configuration(tmp_path / "nothing.json")
    with pytest.raises(BadConfiguration, match="Is a directory"):
        read_configuration(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(BadConfiguration, match=r"latin\.json:2: is not UTF-8"):
        read_configuration(tmp_path / "latin.json")
    (tmp_path / "large.json").write_bytes(b" " * (MAX_FILE + 1))
    with pytest.raises(BadConfiguration, match="is larger than"):
        read_configuration(tmp_path / "large.json")


def test_a_name_that_stands_twice_is_told_with_both_lines_beside_other_mistakes(tmp_path: Path) -> None:
    text = '{"servers": {\n"a": {"url": "http://h/",\n"url": "http://i/"},\n"a": {"url": "http://h/"},\n"b": {}}}'
    assert told(tmp_path, text, "mcp.json") == [
        "mcp.json:4: servers.a: stands here already, in line 2",
        "mcp.json:5: servers.b: must have either a `command` or a `url`, or be a `python` server",
    ]
    text = '{"servers": {"a": {"url": "http://h/",\n"url": "http://i/"}}, "mcpServers": {\n"a": {"url": "http://h/"}}}'
    assert told(tmp_path, text, "mcp.json") == [
        "mcp.json:1: servers.a: stands in mcpServers.a already, in line 3",
        "mcp.json:2: servers.a.url: stands here already, in line 1",
    ]


def test_one_mistake_is_one_line_and_several_are_counted(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as one:
        read(tmp_path, "[servers.a]")
    assert "\n" not in str(one.value)
    with pytest.raises(BadConfiguration) as two:
        read(tmp_path, "[servers.a]\n[servers.b]")
    assert str(two.value).splitlines()[0] == "2 mistakes:"


@pytest.mark.parametrize("prefix", ["", "x"])
def test_two_servers_may_share_no_prefix_but_the_empty_one(tmp_path: Path, prefix: str) -> None:
    text = "".join(f'[servers.{name}]\nurl = "http://h/"\ncallboard.prefix = "{prefix}"\n' for name in "ab")
    assert len(mistakes(tmp_path, text)) == (1 if prefix else 0)


def test_specs_are_equal_where_the_same_would_run_wherever_it_stands(tmp_path: Path) -> None:
    [one] = read(tmp_path, '[servers.a]\nurl = "http://h/"\n').backends
    [two] = read(tmp_path, '# moved\n\n[servers.a]\nurl = "http://h/"\nodd = 1\n').backends
    assert one == two
    assert one.line != two.line
    assert attrs.evolve(two, settings=BackendSettings(pin=True)) != one
