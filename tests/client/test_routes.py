"""What can be connected to, and what is said, in one line, where it cannot."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from callboard import Server
from callboard.client import connect
from callboard.client.routes import ClientAccess, Target, ways_to
from callboard.config.entry import Remote, read_entry
from callboard.errors import CannotConnect
from callboard.transports.client.pool import Origin
from callboard.transports.client.process import Command

APP: Final = """
from callboard import Server

server = Server("from a file", version="1")
other = Server("the other one", version="1")
number = 7


@server.tool
def where() -> str:
    return "here"
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """A file as MCP hosts have it; the entries are filled in by `entry`."""
    return tmp_path / "mcp.json"


def entry(file: Path, written: Any, name: str = "it", member: str = "mcpServers") -> Command | Remote | Server:
    file.write_text(json.dumps({member: {name: written}}))
    return read_entry(f"{file}#{name}")


def names(target: Target) -> list[str]:
    return [way.name for way in ways_to(target, ClientAccess()).ways]


# Which ways.


@pytest.mark.parametrize(
    ("target", "ways"),
    [
        ("http://127.0.0.1:8000/mcp", ["http", "sse"]),
        ("https://example.com", ["http", "sse"]),
        ("http://127.0.0.1:8000/sse", ["sse", "http"]),
        ("http://127.0.0.1:8000/v1/sse/", ["sse", "http"]),
        ("ws://127.0.0.1/mcp", ["websocket"]),
        ("wss://example.com/mcp", ["websocket"]),
        ("http+unix://%2Frun%2Fweather.sock/mcp", ["http", "sse"]),
        ("ws+unix://%2Frun%2Fweather.sock/mcp", ["websocket"]),
        (["python", "server.py"], ["stdio"]),
        (Command.of(["python", "server.py"]), ["stdio"]),
        (Remote(url="http://127.0.0.1/mcp", kind="sse"), ["sse"]),
        (Remote(url="http://127.0.0.1/sse", kind="http"), ["http"]),
        (Server("x", version="1"), ["memory"]),
    ],
)
def test_a_target_tells_the_ways_to_it_and_the_likeliest_one_first(target: Target, ways: list[str]) -> None:
    assert names(target) == ways


@pytest.mark.parametrize(
    "target",
    [
        "weather",
        "",
        "ftp://example.com/",
        "http://",
        "http://example.com:99999/mcp",
        "http://example.com:port/mcp",
        "http://example.com/m cp",
        "http://[::1/mcp",
        "http://example.com/mcp?q=ü",
        "http://.example.com/mcp",
        "http://a..b/mcp",
        f"http://{'a' * 70}.com/mcp",
        "ws://ü..de/mcp",
        "file:///etc/passwd",
        [],
    ],
)
def test_what_is_no_target_is_refused_in_one_line(target: Target) -> None:
    with pytest.raises(CannotConnect) as refused:
        ways_to(target, ClientAccess())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "target",
    [
        "http://me:s3cret@example.com/mcp",
        "wss://s3cret@example.com/mcp",
        "http://me:s3cret@example.com:99999/mcp",
        "http://me:s3cret@[::1/mcp",
        "http://me:s3cret@/mcp",
        "ftp://me:s3cret@example.com/mcp",
        "http://example.com:port/mcp?key=s3cret",
        "http://example.com/m cp?key=s3cret",
        "http://[::1/mcp?key=s3cret",
    ],
)
def test_what_is_secret_in_a_url_is_not_repeated_where_it_is_refused(target: str) -> None:
    with pytest.raises(CannotConnect) as refused:
        ways_to(target, ClientAccess())
    assert "s3cret" not in str(refused.value)


def test_a_user_in_a_url_is_not_passed_over_in_silence() -> None:
    with pytest.raises(CannotConnect, match="Authorization"):
        ways_to("http://me:s3cret@example.com/mcp", ClientAccess())


def test_a_command_does_not_show_its_environment() -> None:
    assert "s3cret" not in repr(Command(args=("true",), env={"TOKEN": "s3cret"}))


@pytest.mark.parametrize(
    "headers", [{"a b": "1"}, {"": "1"}, {"x": "a\r\nb: c"}, {"x": "sécret"}, {"x:y": "1"}, {"x": "\x00"}]
)
def test_a_header_that_could_say_something_else_is_refused_and_its_value_not_repeated(headers: dict[str, str]) -> None:
    with pytest.raises(CannotConnect) as refused:
        ways_to("http://127.0.0.1/mcp", ClientAccess(headers=headers))
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "origin", "authority"),
    [
        ("http://example.com/", "http://example.com", b"example.com"),
        ("http://example.com:8080/", "http://example.com:8080", b"example.com:8080"),
        ("https://[::1]:443/", "https://[::1]", b"[::1]"),
        ("HTTP://EXAMPLE.com", "http://example.com", b"example.com"),
        ("http+unix://%2Frun%2Fa.sock/mcp", "unix:/run/a.sock", b"localhost"),
    ],
)
def test_an_origin_is_where_a_server_is_and_what_it_is_called(url: str, origin: str, authority: bytes) -> None:
    assert str(Origin.of(url)) == origin
    assert Origin.of(url).authority == authority


# A file in Python.


async def test_a_server_in_a_file_is_spoken_to_in_this_process(app: Path) -> None:
    async with connect(f"{app}:server") as client:
        assert client.server_info is not None
        assert client.server_info.name == "from a file"
        assert "here" in str((await client.call("where")).content)
    async with connect(str(app)) as client:
        assert [tool.name for tool in await client.tools()] == ["where"]


@pytest.mark.parametrize(
    ("name", "why"),
    [(":nobody", "has no 'nobody'"), (":number", "is not a callboard.Server"), (":a b", "is not a Python server")],
)
async def test_a_file_without_such_a_server_is_refused(app: Path, name: str, why: str) -> None:
    with pytest.raises(CannotConnect, match=why):
        async with connect(f"{app}{name}"):
            pass


async def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotConnect, match="no such file"):
        async with connect(f"{tmp_path}/nothing.py"):
            pass


# A file of servers.


@pytest.mark.parametrize("member", ["mcpServers", "servers"])
def test_an_entry_with_a_command_is_that_command(hosts: Path, member: str) -> None:
    written = {"command": "python", "args": ["-m", "x"], "env": {"A": "1"}, "cwd": "/tmp"}  # noqa: S108
    assert entry(hosts, written, member=member) == Command(
        args=("python", "-m", "x"),
        env={"A": "1"},
        cwd="/tmp",  # noqa: S108
    )


@pytest.mark.parametrize(
    ("kind", "found"),
    [(None, "any"), ("http", "http"), ("streamable-http", "http"), ("streamableHttp", "http"), ("sse", "sse")],
)
def test_an_entry_with_a_url_is_that_server(hosts: Path, kind: str | None, found: str) -> None:
    written = {"url": "https://example.com/mcp", "headers": {"X-Key": "k"}} | ({"type": kind} if kind else {})
    assert entry(hosts, written) == Remote(url="https://example.com/mcp", headers={"X-Key": "k"}, kind=found)  # type: ignore[arg-type]  # as the table has it


def test_the_only_entry_needs_no_name_and_of_several_one_must_be_named(hosts: Path) -> None:
    assert entry(hosts, {"command": "x"}) == read_entry(str(hosts))
    hosts.write_text(json.dumps({"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}))
    with pytest.raises(CannotConnect, match=r"has 2 servers; choose one: .*#a\|b"):
        read_entry(str(hosts))


def test_a_file_may_be_at_home(hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(hosts.parent))
    assert entry(hosts, {"command": "x"}) == read_entry(f"~/{hosts.name}#it")


def test_variables_are_filled_in_from_the_environment_and_their_values_not_looked_at(
    hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "k${OTHER}")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NONE", raising=False)
    written = {
        "url": "https://${NONE:-example.com}/mcp",
        "headers": {"Authorization": "Bearer ${KEY}", "X-Env": "${env:KEY}", "X-Or": "${EMPTY:-else}"},
    }
    found = entry(hosts, written)
    assert isinstance(found, Remote)
    assert found.url == "https://example.com/mcp"
    assert found.headers == {"Authorization": "Bearer k${OTHER}", "X-Env": "k${OTHER}", "X-Or": "else"}
    assert "Bearer" not in repr(found)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({}, "must have exactly one of `command`, `url`, `python` and `openapi`"),
        ({"command": "x", "url": "http://x"}, "must have exactly one of"),
        ([], "is not an object"),
        ({"command": 1}, "`command` must be a string"),
        ({"command": ""}, "`command` must be a string"),
        ({"command": "x", "args": "-m"}, "`args` must be a list of strings"),
        ({"command": "x", "args": [1]}, "`args` must be a list of strings"),
        ({"command": "x", "env": {"A": 1}}, "`env` must be an object of strings"),
        ({"command": "x", "cwd": 1}, "`cwd` must be a string"),
        ({"command": "x", "type": "http"}, "the transport of a `command` is stdio"),
        ({"url": "http://x", "type": "stdio"}, "stdio is not a transport for a `url`"),
        ({"url": "http://x", "type": "carrier pigeon"}, "unknown type 'carrier pigeon'"),
        ({"url": "http://x", "headers": []}, "`headers` must be an object of strings"),
        ({"command": "${NOT_SET_ANYWHERE}"}, "environment variable not set: NOT_SET_ANYWHERE"),
        ({"command": "x", "args": ["${input:key}"]}, r"unknown variable \$\{input:key\}"),
    ],
)
def test_an_entry_that_is_wrong_is_refused_in_one_line_that_says_where(hosts: Path, written: Any, why: str) -> None:
    with pytest.raises(CannotConnect, match=why) as refused:
        entry(hosts, written)
    assert f"{hosts}#it" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not valid JSON"),
        ("[]", "has neither"),
        ("{}", "has neither"),
        ('{"mcpServers": 1}', "must be an object"),
    ],
)
def test_a_file_that_is_wrong_is_refused(hosts: Path, text: str, why: str) -> None:
    hosts.write_text(text)
    with pytest.raises(CannotConnect, match=why):
        read_entry(f"{hosts}#it")


def test_a_file_that_is_not_there_or_lacks_the_entry_is_refused(hosts: Path) -> None:
    with pytest.raises(CannotConnect, match="No such file"):
        read_entry(f"{hosts}#it")
    entry(hosts, {"command": "x"})
    with pytest.raises(CannotConnect, match=r"no server 'that' in .*; it has: it"):
        read_entry(f"{hosts}#that")


async def test_an_entry_may_be_a_server_in_a_file_beside_it_and_stand_in_toml(app: Path, tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(f'[servers.mine]\npython = "{app.name}:other"\n')
    async with connect(f"{file}#mine") as client:
        assert client.server_info is not None
        assert client.server_info.name == "the other one"
    file.write_text(f'[servers.mine]\npython = "{app.name}:nobody"\n')
    with pytest.raises(CannotConnect, match="has no 'nobody'"):
        read_entry(f"{file}#mine")


async def test_an_entry_is_connected_to_with_its_environment(hosts: Path, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.replace('"here"', "__import__('os').environ['WHERE']"))
    written = {
        "command": sys.executable,
        "args": ["-m", "callboard", "run", "app.py"],
        "env": {"WHERE": "over there"},
        "cwd": str(tmp_path),
    }
    entry(hosts, written)
    with trio.fail_after(30):
        async with connect(f"{hosts}#it") as client:
            assert "over there" in str((await client.call("where")).content)
