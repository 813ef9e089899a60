"""What is suggested in place of a target that is none."""

from pathlib import Path

import pytest

from callboard.client.routes import ClientAccess, ways_to
from callboard.errors import CannotConnect, InvalidTarget

MEANT = {
    "127.0.0.1:7160": "http://127.0.0.1:7160/mcp",
    "7101": "http://127.0.0.1:7101/mcp",
    ":7101": "http://127.0.0.1:7101/mcp",
    "7101/mcp/notes": "http://127.0.0.1:7101/mcp/notes",
    "localhost": "http://localhost/mcp",
    "localhost:8000/sse": "http://localhost:8000/sse",
    "backend:8000": "http://backend:8000/mcp",
    "mcp.example.com": "https://mcp.example.com/mcp",
    "mcp.example.com/": "https://mcp.example.com/mcp",
    "mcp.example.com:8443/mcp": "http://mcp.example.com:8443/mcp",
    "[::1]:8000": "http://[::1]:8000/mcp",
    "weather": "weather.py",
    "package.weather": "package.weather:NAME",
}
NOT_MEANT = ["README.md", "missing.md", "server.js", "99999", "nothing", "a b", "0", "elsewhere.nothing_like_it"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "package").mkdir()
    for name in ("README.md", "weather.py", "package/weather.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(text: str) -> str:
    with pytest.raises(InvalidTarget) as found:
        ways_to(text, ClientAccess())
    return str(found.value)


@pytest.mark.parametrize("text", MEANT)
def test_what_was_probably_meant_is_suggested(text: str) -> None:
    assert told(text).endswith(f"or a command; did you mean {MEANT[text]}?")


@pytest.mark.parametrize("text", NOT_MEANT)
def test_no_address_is_suggested_for_a_file_or_a_word(text: str) -> None:
    assert "http" not in told(text)


def test_a_directory_and_a_file_are_named_as_such() -> None:
    assert "package is a directory: name a file in it, FILE.py:NAME, or a module" in told("package")
    assert "README.md is a file: a program is started by a command" in told("README.md")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x/mcp",
        "http:///mcp",
        "http://exa mple",
        "http://x/a b",
        "http://[::1/mcp",
        "http://x:y/mcp",
        "http://x/ü",
    ],
)
def test_a_url_that_is_none_is_a_mistake_of_the_caller(url: str) -> None:
    assert "invalid server URL" in told(url)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("foo.py:server", "foo.py: no such file"),
        ("foo.py", "foo.py: no such file"),
        ("nosuch.mod:srv", "nosuch.mod: no such module"),
        ("weather.py:nope", "weather.py has no server"),
        ("weather.py:a b", "is not a Python server"),
        ("x.json#a", "x.json: No such file or directory"),
        ("hosts.json#c", "no server 'c' in hosts.json; it has: a, b"),
        ("hosts.json", "hosts.json has 2 servers; choose one"),
        ("http://me:secret@x/mcp", "credentials in the URL are not supported"),
    ],
)
def test_what_is_not_there_is_a_mistake_of_the_caller(text: str, why: str, folder: Path) -> None:
    (folder / "hosts.json").write_text('{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}}')
    assert why in told(text)


@pytest.mark.parametrize("text", ["broken.py", "broken.json#a"])
def test_a_file_that_is_there_and_fails_is_no_mistake_of_the_caller(text: str, folder: Path) -> None:
    (folder / "broken.py").write_text("import nothing_of_this_name")
    (folder / "broken.json").write_text("{")
    with pytest.raises(CannotConnect) as found:
        ways_to(text, ClientAccess())
    assert not isinstance(found.value, InvalidTarget)
