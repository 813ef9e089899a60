"""What a file of servers says, in JSON as every host has it and in TOML, and that both say the same."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.broker.policy import BackendSettings, Filter, Restarts
from callboard.codecs.revisions import Revision
from callboard.config import BackendSpec, BadConfiguration, PythonTarget, Remote, read_configuration
from callboard.supervisor import Backoff, Intensity
from callboard.transports.client.process import Command
from tests.config.files import mistakes, read, read_one

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
    assert "no servers configured" in str(configuration.warnings[0])


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
    assert read_one(tmp_path, python="apps/app.py").target == PythonTarget(file=tmp_path / "apps" / "app.py", name=None)


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
        'servers.toml:3: warning: servers.a.callboard.env: environment variable not set: "NONE"'
    ]
    assert configuration.backends[0].target == Command(args=(sys.executable,))


# What is odd.


@pytest.mark.parametrize(
    ("written", "where", "why"),
    [
        ({"url": "http://h/", "header": {}}, "header", "did you mean `headers`?"),
        ({"url": "http://h/", "colour": 1}, "colour", "is unknown and ignored"),
        ({"url": "http://h/", "timeout": 5}, "timeout", "use `callboard.timeout`"),
        ({"url": "http://h/", "autoApprove": []}, "autoApprove", "is ignored"),
        ({"url": "http://h/", "callboard": {"time_out": 5}}, "callboard.time_out", "did you mean `timeout`?"),
        ({"url": "http://h/", "callboard": {"tools": {"alow": []}}}, "callboard.tools.alow", "did you mean `allow`?"),
        ({"url": "http://h/", "callboard": {"restart": {"time": 1}}}, "callboard.restart.time", "`times`"),
        ({"url": "http://h/", "callboard": {"timeout": 1000}}, "callboard.timeout", "more than `cap`, 600 s"),
        ({"url": "http://h/", "callboard": {"cap": 10}}, "callboard.cap", "more than `cap`, 10 s"),
        ({"url": "http://h/", "callboard": {"tools": {"allow": []}}}, "callboard.tools.allow", "no tool is allowed"),
        ({"url": "http://h/", "env": {}}, "env", "is only for a `command`"),
        ({"command": sys.executable, "headers": {}}, "headers", "is only for a `url`"),
        ({"command": "no-such-program-anywhere"}, "command", 'no such program: "no-such-program-anywhere"'),
        ({"command": "./no/such/file"}, "command", "no such program:"),
        ({"command": sys.executable, "cwd": "no/such"}, "cwd", "no such directory"),
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
    assert "use ${VAR} and set the environment variable" in key.message
    assert (folder.line, folder.where) == (10, "servers.b.args[0]")
    assert "write a path" in folder.message


@pytest.mark.finding("newcomer-H6")
def test_blanks_in_a_name_become_hyphens_and_two_names_stay_two(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {" My  Server": {"command": "true"}, "other": {"command": "true"}}}')
    found = read_configuration(file)
    assert [spec.name for spec in found.backends] == ["My-Server", "other"]
    assert "is called My-Server here" in str(found.warnings[0])
    file.write_text('{"mcpServers": {"My Server": {"command": "true"}, "My-Server": {"command": "true"}}}')
    with pytest.raises(BadConfiguration, match="already defined"):
        read_configuration(file)


def test_an_invalid_server_is_left_out_if_wanted_and_a_broken_file_is_refused_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "true"}, "ab": {"comand": "x"}, "b": {"url": "nowhere"}}}')
    with pytest.raises(BadConfiguration):
        read_configuration(file)
    found = read_configuration(file, skips_invalid=True)
    assert [spec.name for spec in found.backends] == ["a"]
    skipped = [one.where for one in found.warnings if one.message.endswith("the server is skipped")]
    assert skipped == ["mcpServers.ab", "mcpServers.b.url"]
    file.write_text('{"mcpServers": []}')
    with pytest.raises(BadConfiguration):
        read_configuration(file, skips_invalid=True)
