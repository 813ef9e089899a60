"""`callboard install`: prints the entry, writes only when asked to, and loses nothing."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from callboard.cli.install import McpHost, host_of, install, made_entry, write_entry
from callboard.errors import CannotServe

APP = 'from callboard import Server\nmcp = Server("weather")\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "weather.py").write_text(APP)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "platform", "expected"),
    [
        ("claude", "linux", ".config/Claude/claude_desktop_config.json"),
        ("claude", "darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude", "win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("cursor", "linux", ".cursor/mcp.json"),
        ("vscode", "linux", ".vscode/mcp.json"),
    ],
)
def test_each_host_has_its_file(name: Any, platform: str, expected: str, folder: Path) -> None:
    assert host_of(name, {"HOME": str(folder)}, platform).file == folder / expected


def test_without_write_the_entry_is_printed_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("claude", "weather.py", env=["KEY=a=b"])
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "mcpServers": {
            "weather": {
                "command": sys.executable,
                "args": ["-m", "callboard", "run", str(folder / "weather.py")],
                "env": {"KEY": "a=b"},
            }
        }
    }
    assert "claude_desktop_config.json; add it there with --write" in shown.err
    assert not (folder / ".config").exists()


def test_writing_keeps_other_entries_the_mode_and_a_copy_of_the_file(folder: Path) -> None:
    file = folder / "mcp.json"
    before = '{"theme": "dark", "mcpServers": {"other": {"command": "x"}}}'
    file.write_text(before)
    file.chmod(0o600)
    host = McpHost(file, "mcpServers")
    kept, was_there = write_entry(host, "weather", {"command": "new"})
    assert not was_there
    assert kept is not None
    assert kept.read_text() == before
    written = json.loads(file.read_text())
    assert written == {"theme": "dark", "mcpServers": {"other": {"command": "x"}, "weather": {"command": "new"}}}
    assert file.stat().st_mode & 0o777 == 0o600
    again, was_there = write_entry(host, "weather", {"command": "newer"})
    assert was_there
    assert again != kept
    assert kept.read_text() == before
    assert sorted(path.name for path in folder.glob("*mcp*")) == ["mcp.json", "mcp.json.backup", "mcp.json.backup-1"]


def test_a_file_that_is_not_there_is_made_with_its_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install("vscode", "weather.py:mcp", name="w", write=True)
    entry = json.loads((folder / ".vscode" / "mcp.json").read_text())["servers"]["w"]
    assert entry["type"] == "stdio"
    assert entry["args"][-1] == f"{folder / 'weather.py'}:mcp"
    assert "added 'w'" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{ // mine\n}", "[]", '{"mcpServers": []}', "{", "\xff"])
def test_a_file_that_is_no_plain_object_stays_as_it_is(text: str, folder: Path) -> None:
    file = folder / "mcp.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(CannotServe, match="nothing was written"):
        write_entry(McpHost(file, "mcpServers"), "weather", {})
    assert file.read_bytes() == text.encode("latin-1")
    assert not (folder / "mcp.json.backup").exists()


def test_a_url_needs_a_name_and_a_server_that_does_not_load_is_told(folder: Path) -> None:
    assert made_entry("http://h/mcp", "w", {}, with_type=True) == ("w", {"type": "http", "url": "http://h/mcp"})
    with pytest.raises(CannotServe, match="a URL needs --name"):
        made_entry("http://h/mcp", None, {}, with_type=False)
    (folder / "broken.py").write_text("def f(:\n")
    with pytest.raises(CannotServe, match="SyntaxError"):
        made_entry("broken.py", None, {}, with_type=False)
    with pytest.raises(CannotServe, match="expected KEY=VALUE"):
        install("claude", "weather.py", env=["KEY"])
