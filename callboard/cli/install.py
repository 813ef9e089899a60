"""`callboard install`: the entry of a server for the configuration of an MCP host; written only if asked to."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import attrs
from cyclopts import App, Parameter

from callboard.cli.serve_flags import FLAG
from callboard.errors import CannotServe
from callboard.server.load import is_module_target, load_server, split_target

HostName: TypeAlias = Literal["claude", "cursor", "vscode"]

MAX_FILE: Final = 4 * 1024 * 1024
"""Largest configuration that is read, in bytes."""

EXAMPLES: Final = """\
Examples:

  callboard install claude weather.py             prints the entry, and its file
  callboard install cursor weather.py --write     adds it; a copy is kept
  callboard install vscode weather.py --env KEY=value --write
  callboard install claude http://127.0.0.1:8000/mcp --name weather
"""


@attrs.frozen
class McpHost:
    """An MCP host: where its file is, and the member that has the servers."""

    file: Path
    member: str
    with_type: bool = False


def host_of(name: HostName, variables: Mapping[str, str] = os.environ, platform: str = sys.platform) -> McpHost:
    """The file of a host on this system. VS Code has one in each workspace: the current folder."""
    home = Path(variables.get("HOME") or variables.get("USERPROFILE") or "~").expanduser()
    match name:
        case "cursor":
            return McpHost(home / ".cursor" / "mcp.json", "mcpServers")
        case "vscode":
            return McpHost(Path.cwd() / ".vscode" / "mcp.json", "servers", with_type=True)
    if platform == "darwin":
        folder = home / "Library" / "Application Support"
    elif platform == "win32":
        folder = Path(variables.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        folder = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    return McpHost(folder / "Claude" / "claude_desktop_config.json", "mcpServers")


def install(
    host: Annotated[HostName, Parameter(name="HOST", help="claude (Claude Desktop), cursor or vscode.")],
    target: Annotated[str, Parameter(name="TARGET", help="FILE.py, FILE.py:NAME, package.module:NAME or a URL.")],
    /,
    *,
    name: Annotated[str | None, Parameter(help="Name of the entry. Default: the name of the server.")] = None,
    env: Annotated[
        list[str] | None, Parameter(negative="", help="KEY=VALUE for the server's environment. May be repeated.")
    ] = None,
    file: Annotated[Path | None, Parameter(help="Configuration file. Default: that of the host.")] = None,
    write: Annotated[bool, FLAG, Parameter(help="Write the entry into the file, and keep a copy of the file.")] = False,
) -> None:
    """Print the entry of a server for an MCP host; with --write, add it to the host's file."""
    found = host_of(host)
    if file is not None:
        found = attrs.evolve(found, file=file)
    named, entry = made_entry(target, name, _variables(env or []), with_type=found.with_type)
    if not write:
        print(json.dumps({found.member: {named: entry}}, indent=2, ensure_ascii=False))
        print(f"# for {found.file}; add it there with --write", file=sys.stderr)
        return
    kept, was_there = write_entry(found, named, entry)
    print(f"{'replaced' if was_there else 'added'} {named!r} in {found.file}")
    if kept is not None:
        print(f"a copy of the file as it was: {kept}")
    print("restart the host, or reload its servers, to use it")


def made_entry(
    target: str, name: str | None, variables: Mapping[str, str], *, with_type: bool
) -> tuple[str, dict[str, Any]]:
    """The name of an entry, and the entry. Raises `CannotServe`."""
    entry: dict[str, Any]
    if "://" in target:
        if name is None:
            raise CannotServe("a URL needs --name NAME")
        if variables:
            raise CannotServe("--env is for a server that the host starts, not for a URL")
        return name, {**({"type": "http"} if with_type else {}), "url": target}
    server = load_server(target)  # what does not load is told here, and not by the host
    entry = {"command": sys.executable, "args": ["-m", "callboard", "run", *_arguments(target)]}
    if with_type:
        entry = {"type": "stdio", **entry}
    if variables:
        entry["env"] = dict(variables)
    if is_module_target(target):
        entry["env"] = {**entry.get("env", {}), "PYTHONPATH": str(Path.cwd())}  # a host starts it anywhere
    return name or server.info.name, entry


def _arguments(target: str) -> list[str]:
    if is_module_target(target):
        return [target]
    file, name = split_target(target)
    return [f"{file.resolve()}:{name}" if name is not None else str(file.resolve())]


def _variables(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for key, equals, _ in pairs:
        if not equals or not key:
            raise CannotServe(f"--env {key[:50]}: expected KEY=VALUE")
    return {key: value for key, _, value in pairs}


def write_entry(host: McpHost, name: str, entry: dict[str, Any]) -> tuple[Path | None, bool]:
    """Add *entry* to the file of *host*; all else in it stays. Returns the copy of the file as it was, if there was
    one, and whether it had an entry of that name. Raises `CannotServe` if the file is no plain JSON object."""
    file = host.file.resolve()  # the file itself is replaced, and not a link to it
    try:
        text = _read(file)
        whole: Any = json.loads(text) if text.strip() else {}
    except (ValueError, UnicodeDecodeError) as error:
        raise CannotServe(
            f"{host.file}: not plain JSON ({error}); nothing was written: add the entry by hand"
        ) from None
    servers = whole.setdefault(host.member, {}) if isinstance(whole, dict) else None
    if not isinstance(servers, dict):
        raise CannotServe(f"{host.file}: `{host.member}` is not an object; nothing was written")
    was_there = name in servers
    servers[name] = entry
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = _copy(file) if file.exists() else None
        _replace(file, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise CannotServe(f"{host.file}: {error.strerror or error}") from None
    return kept, was_there


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_FILE:
            raise CannotServe(f"{file}: larger than {MAX_FILE} bytes; nothing was written")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CannotServe(f"{file}: {error.strerror or error}") from None


def _copy(file: Path) -> Path:
    """A copy beside it, under a name that is free: an older copy is not lost."""
    number = 0
    while (kept := file.with_name(f"{file.name}.backup{f'-{number}' if number else ''}")).exists():
        number += 1
    shutil.copy2(file, kept)
    return kept


def _replace(file: Path, text: str) -> None:
    """At once: a host that reads it meanwhile sees the old file or the new one. Its mode stays."""
    descriptor, made = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(text)
        if file.exists():
            shutil.copymode(file, made)
        Path(made).replace(file)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


APP: Final = App(name="install", help_epilogue=EXAMPLES)
APP.default(install)
