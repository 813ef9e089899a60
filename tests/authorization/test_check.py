"""`callboard check --as`: what a caller would see, by a file with issuers."""

import json
from pathlib import Path
from typing import Final

from tests.process import callboard

FILE: Final = """
[mcpServers.files]
command = "true"
[mcpServers.payroll]
command = "true"

[authorization]
resource = "https://tools.example.com/mcp"
scopes = ["mcp:use"]
[[authorization.issuers]]
issuer = "https://login.example.com"
tenant = "claim:org"
[authorization.implies]
"files:all" = ["files:write"]
[[authorization.rules]]
tools = ["files__delete*"]
needs = ["files:write"]
[[authorization.rules]]
servers = ["payroll"]
only = {claim = "groups", has = "hr"}
"""
TOOLS: Final = ("--tool", "files__delete", "--tool", "files__read", "--tool", "payroll__list")


def seen(file: Path, *caller: str) -> dict[str, tuple[str, list[str]]]:
    done = callboard("check", str(file), *caller, *TOOLS, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["seen"]
    return {one["name"]: (one["seen"], one["scopes"]) for one in found if one["kind"] == "tool"}


def test_what_a_caller_sees_by_a_file_with_issuers(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(FILE)
    assert seen(file, "--as", "scope=mcp:use") == {
        "files__delete": ("needs scopes", ["files:write", "mcp:use"]),
        "files__read": ("open", []),
        "payroll__list": ("hidden", []),
    }
    allowed = seen(file, "--as", "scope=mcp:use files:all", "--claim", "groups=hr")
    assert [how for how, _ in allowed.values()] == ["open"] * 3
    wrong = callboard("check", str(file), "--as", "scop=x")
    assert (wrong.returncode, "expected scope=" in wrong.stderr) == (2, True)
