"""The file in which MCP hosts keep their servers: `mcpServers`, or `servers` as VS Code writes it."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from callboard.errors import CannotConnect
from callboard.transports.client.process import Command

_MEMBERS: Final = ("mcpServers", "servers")
_NAMED: Final = re.compile(r"(?P<file>.+\.json)(?:#(?P<name>.*))?", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>[^}]*))?\}")
_UNKNOWN: Final = re.compile(r"\$\{[^}]*\}")

Kind = Literal["any", "http", "sse"]
_KINDS: Final[Mapping[str, Kind | Literal["stdio"]]] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
    "ws": "any",
    "websocket": "any",
}
"""What hosts write as `type`, or as `transport`."""


@attrs.frozen(kw_only=True)
class Remote:
    """A server at a URL, what is said to it with every request, and how it is spoken to, if that is known."""

    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    kind: Kind = "any"


def is_entry(text: str) -> bool:
    """Whether *text* names an entry of such a file: `path/to/file.json#name`."""
    return _NAMED.fullmatch(text) is not None


def read_entry(text: str) -> Command | Remote:
    """The server that *text* names; without a name the only one. Raises `CannotConnect`, in one line."""
    named = _NAMED.fullmatch(text)
    if named is None:
        raise CannotConnect(f"{text[:200]!r} names no file of servers: write FILE.json#NAME")
    file, name = Path(named["file"]).expanduser(), named["name"]
    servers = _servers(file)
    if not name:
        if len(servers) != 1:
            raise CannotConnect(f"{file} has {len(servers)} servers; name one: {file}#{'|'.join(servers)}")
        name = next(iter(servers))
    if name not in servers:
        raise CannotConnect(f"{file} has no server {name[:100]!r}; it has: {', '.join(servers) or 'none'}")
    entry = _Entry(f"{file}#{name}", servers[name])
    return entry.remote() if entry.is_remote else entry.command()


def _servers(file: Path) -> Mapping[str, Any]:
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotConnect(f"{file}: {error.strerror or error}") from None
    except ValueError as error:
        raise CannotConnect(f"{file} is no JSON: {error}") from None
    members = written if isinstance(written, dict) else {}
    servers = next((members[member] for member in _MEMBERS if member in members), None)
    if not isinstance(servers, dict):
        raise CannotConnect(f"{file} has neither `mcpServers` nor `servers`")
    return servers


@attrs.frozen
class _Entry:
    """One entry, and where it stands: every complaint says that."""

    where: str
    written: Any

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.written, dict):
            raise CannotConnect(f"{self.where} is no object")
        if ("command" in self.written) == ("url" in self.written):
            raise CannotConnect(f"{self.where} must have either a `command` or a `url`")

    @property
    def is_remote(self) -> bool:
        return "url" in self.written

    def remote(self) -> Remote:
        kind = self._kind()
        if kind == "stdio":
            raise CannotConnect(f"{self.where}: a `url` is not spoken to over stdio")
        return Remote(url=self._text("url"), headers=self._texts("headers"), kind=kind)

    def command(self) -> Command:
        if self._kind() not in ("any", "stdio"):
            raise CannotConnect(f"{self.where}: a `command` is spoken to over stdio")
        args = self.written.get("args", [])
        if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
            raise CannotConnect(f"{self.where}: `args` must be a list of strings")
        return Command(
            args=(self._text("command"), *(self._expanded(arg) for arg in args)),
            env=self._texts("env"),
            cwd=self._text("cwd") if "cwd" in self.written else None,
        )

    def _kind(self) -> Kind | Literal["stdio"]:
        named = self.written.get("type", self.written.get("transport"))
        if named is None:
            return "any"
        if named not in _KINDS:
            raise CannotConnect(f"{self.where}: type {str(named)[:100]!r} is not known; {', '.join(_KINDS)} are")
        return _KINDS[named]

    def _text(self, member: str) -> str:
        value = self.written[member]
        if not isinstance(value, str) or not value:
            raise CannotConnect(f"{self.where}: `{member}` must be a string")
        return self._expanded(value)

    def _texts(self, member: str) -> Mapping[str, str]:
        values = self.written.get(member, {})
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise CannotConnect(f"{self.where}: `{member}` must be an object of strings")
        return {name: self._expanded(value) for name, value in values.items()}

    def _expanded(self, value: str) -> str:
        """With `${VAR}` and `${VAR:-otherwise}` from the environment. What it holds is not looked at again."""

        def expand(found: re.Match[str]) -> str:
            held = os.environ.get(found["name"])
            if not held and found["otherwise"] is not None:
                return found["otherwise"]
            if held is None:
                raise CannotConnect(f"{self.where}: the environment has no {found['name']}")
            return held

        unknown = _UNKNOWN.search(_VARIABLE.sub("", value))
        if unknown is not None:
            raise CannotConnect(f"{self.where}: {unknown[0][:100]} is not known here; ${{VAR}} is")
        return _VARIABLE.sub(expand, value)
