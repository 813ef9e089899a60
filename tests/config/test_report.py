"""What is wrong in a file of servers, told with its file and line, all of it at once."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from callboard.actors.broker.policy import BackendSettings
from callboard.config import BadConfiguration, read_configuration
from callboard.config.load import MAX_FILE
from tests.config.files import mistakes, read, told


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
        "servers.toml:6: mcpServers.weather.callboard.timeout: must be greater than 0",
        (
            'servers.toml:7: mcpServers.weather.callboard.share: "principle" is not one of all, tenant, principal, '
            "session; "
            "did you mean `principal`?"
        ),
        (
            'servers.toml:8: mcpServers.weather.callboard.revision: "2025-06-19" is not one of 2024-11-05, 2025-03-26, '
            "2025-06-18, 2025-11-25, 2026-07-28; did you mean `2025-06-18`?"
        ),
        "servers.toml:9: mcpServers.weather.callboard.restart.most: must not be less than `first`, 9 s",
        "servers.toml:9: mcpServers.weather.callboard.restart.times: must be 0 or more",
        "servers.toml:9: mcpServers.weather.callboard.restart.per: must be greater than 0",
        'servers.toml:11: mcpServers."a/b": "a/b" has characters other than letters, digits, `_`, `.` and `-`',
        (
            'servers.toml:12: mcpServers."a/b".url: "ftp://example.com" is not a server URL: '
            "expected http://, https://, ws://, wss://, http+unix:// or unix:/path"
        ),
        'servers.toml:13: mcpServers."a/b".callboard.max_in_flight: must be 1 or more',
        'servers.toml:14: mcpServers."a/b".callboard.cap: must be a number',
        "servers.toml:16: mcpServers.none: must have exactly one of `command`, `url`, `python` and `openapi`",
        "servers.toml:18: mcpServers.both: must have exactly one of `command`, `url`, `python` and `openapi`",
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
        (5, "", "is not an object"),
        ({"url": ""}, ".url", "must be a string"),
        ({"url": "http://"}, ".url", "is not a server URL"),
        ({"url": "http://h:port/"}, ".url", "is not a server URL"),
        ({"url": "http://h/ü"}, ".url", "is not a server URL"),
        ({"url": "http://h/a b"}, ".url", "is not a server URL"),
        ({"url": "unix:"}, ".url", "is not a server URL"),
        ({"url": "http://u:p4ss@h:port/?q=p4ss"}, ".url", "is not a server URL"),
        ({"url": "http://h/", "type": "stdio"}, "", "stdio is not a transport for a `url`"),
        ({"url": "http://h/", "type": "htp"}, "", "did you mean `http`?"),
        ({"url": "http://h/", "type": 7}, "", "unknown type '7'"),
        ({"url": "http://h/", "headers": {"a b": "c"}}, '.headers."a b"', "is not a valid header name"),
        ({"url": "http://h/", "headers": {"a": "b\nc"}}, ".headers.a", "invalid header value"),
        ({"url": "http://h/", "headers": {"a": 1}}, ".headers", "must be an object of strings"),
        ({"url": "http://h/", "disabled": "no"}, ".disabled", "must be true or false"),
        ({"url": "http://h/", "callboard": []}, ".callboard", "must be an object"),
        ({"url": "http://h/", "callboard": {"timeout": True}}, ".callboard.timeout", "must be a number"),
        ({"url": "http://h/", "callboard": {"timeout": "5"}}, ".callboard.timeout", "must be a number"),
        ({"url": "http://h/", "callboard": {"max_connections": 1.5}}, ".callboard.max_connections", "whole number"),
        ({"url": "http://h/", "callboard": {"share": 1}}, ".callboard.share", "must be one of all, tenant, principal"),
        ({"url": "http://h/", "callboard": {"tools": ["a"]}}, ".callboard.tools", "must be an object"),
        ({"url": "http://h/", "callboard": {"tools": {"deny": "a"}}}, ".callboard.tools.deny", "a list of strings"),
        ({"url": "http://h/", "callboard": {"rename": {"a": ""}}}, ".callboard.rename.a", "must be a name"),
        (
            {"url": "http://h/", "callboard": {"rename": {"a": "c", "b": "c"}}},
            ".callboard.rename.b",
            'already the new name of "a"',
        ),
        ({"url": "http://h/", "callboard": {"prefix": "a b"}}, ".callboard.prefix", "letters, digits"),
        ({"url": "http://h/", "callboard": {"prefix": "p" * 65}}, ".callboard.prefix", "longer than 64"),
        ({"url": "http://h/", "callboard": {"prefix": 1}}, ".callboard.prefix", "must be a string"),
        ({"command": "x\0y"}, ".command", "a NUL character"),
        ({"command": "x", "type": "sse"}, "", "the transport of a `command` is stdio"),
        ({"command": "x", "env": {"A=B": "1"}}, '.env."A=B"', "is not a valid name of an environment variable"),
        ({"command": "x", "cwd": 1}, ".cwd", "must be a string"),
        ({"command": "x", "cwd": "~nobody-of-this-name"}, ".cwd", "an unknown user"),
        (
            {"command": "x", "args": ["${NOT_SET_ANYWHERE}"]},
            ".args[0]",
            "environment variable not set: NOT_SET_ANYWHERE",
        ),
        ({"command": "x", "args": ["${}"]}, ".args[0]", "unknown variable ${}; use ${VAR}"),
        ({"command": "x", "callboard": {"oauth": {}}}, ".callboard.oauth", "is only for a `url`"),
        ({"python": "app.txt"}, ".python", "expected FILE.py:NAME"),
        ({"python": "no-such-file.py:server"}, ".python", "no such file"),
        ({"python": 5}, ".python", "must be a string: FILE.py:NAME"),
        ({"python": "a.py", "command": "x"}, "", "must have exactly one of"),
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
            "mcp.json:4: is not valid JSON: expected `,` or `}`",
        ),
        ("s.toml", "[servers.a]\nurl = http", "s.toml:2: is not valid TOML: invalid value"),
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
        "mcp.json:4: servers.a: is a duplicate key, first in line 2",
        "mcp.json:5: servers.b: must have exactly one of `command`, `url`, `python` and `openapi`",
    ]
    text = '{"servers": {"a": {"url": "http://h/",\n"url": "http://i/"}}, "mcpServers": {\n"a": {"url": "http://h/"}}}'
    assert told(tmp_path, text, "mcp.json") == [
        "mcp.json:1: servers.a: is already defined in mcpServers.a, line 3",
        "mcp.json:2: servers.a.url: is a duplicate key, first in line 1",
    ]


def test_one_mistake_is_one_line_and_several_are_counted(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as one:
        read(tmp_path, "[servers.a]")
    assert "\n" not in str(one.value)
    with pytest.raises(BadConfiguration) as two:
        read(tmp_path, "[servers.a]\n[servers.b]")
    assert str(two.value).splitlines()[0] == "2 errors:"


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
