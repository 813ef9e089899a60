"""Targets of servers: the keys that every MCP host has, and `python`."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, urlsplit

from callboard.codecs.caller_template import CallerTemplate
from callboard.config.model import BackendTarget, OpenApiTarget, PersonalCommand, PythonTarget
from callboard.config.reader import Table, nearest, quoted
from callboard.config.redact import shown_command, shown_url
from callboard.config.remote import Kind, Remote
from callboard.errors import CannotConnect, CannotServe
from callboard.server.load import split_target
from callboard.transports.client.pool import Origin
from callboard.transports.client.process import INHERITED, Command

OPENAPI_KEYS: Final = ("openapi", "server")
TARGET_KEYS: Final = ("type", "transport", "command", "args", "env", "cwd", "url", "headers", "python", *OPENAPI_KEYS)
OUR_TARGET_KEYS: Final = ("env", "headers")
"""Keys of `callboard` that belong to the target."""

_ONE_OF: Final = "must have exactly one of `command`, `url`, `python` and `openapi`"
_BY: Final = ("command", "url", "python", "openapi")
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
"""Values of `type` and `transport` in the files of MCP hosts."""

_UNIX: Final = "unix:"
_VARIABLE: Final = re.compile(r"[^=\0]+")
_HEADER: Final = re.compile(r"[A-Za-z0-9_-]+")
_ADDRESSES: Final = "http://, https://, ws://, wss://, http+unix:// or unix:/path"


def read_target(entry: Table, ours: Table) -> tuple[BackendTarget, str] | None:
    """The target of *entry*, with the additions in *ours*, and its text for output. None if it is invalid; reported."""
    ways = [key for key in _BY if key in entry.members]
    if len(ways) != 1:
        entry.place.wrong(_ONE_OF)
        return None
    if ways != ["openapi"]:
        _warn_useless(entry, ("server",), "is only for an `openapi`: the URL of the API")
    if ways == ["url"]:
        return _remote(entry, ours)
    if ways == ["openapi"]:
        return _openapi(entry, ours)
    _warn_useless(entry, ("headers",), f"is only for a `url`, not for a `{ways[0]}`")
    _warn_useless(ours, ("headers",), f"is only for a `url`, not for a `{ways[0]}`")
    if ways == ["command"]:
        return _command(entry, ours)
    return _python(entry, ours)


def _remote(entry: Table, ours: Table) -> tuple[Remote, str] | None:
    kind = _kind(entry)
    if kind == "stdio":
        _tell_kind(entry, "stdio is not a transport for a `url`")
    _warn_useless(entry, ("args", "env", "cwd"), "is only for a `command`, not for a `url`")
    _warn_useless(ours, ("env",), "is only for a `command`, not for a `url`")
    templates: dict[str, CallerTemplate] = {}
    headers = _headers(entry, templates) | _headers(ours, templates)
    place = entry.members["url"]
    written, url = place.node.value, place.text()
    if url is None or kind == "stdio" or not isinstance(written, str):
        return None
    if url.startswith(_UNIX):
        url = f"http+unix://{quote(url.removeprefix(_UNIX), safe='')}/mcp"
    if not _is_address(url):
        place.wrong(f"{quoted(shown_url(written))} is not a server URL: expected {_ADDRESSES}")
        return None
    return Remote(url=url, headers=headers, kind=kind, templates=templates), shown_url(written)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        Origin.of(parts)
    except (CannotConnect, ValueError):
        return False
    return bool(parts.netloc) and url.isascii() and url.isprintable() and " " not in url


def _headers(table: Table, templates: dict[str, CallerTemplate]) -> dict[str, str]:
    own: dict[str, CallerTemplate] = {}
    headers = table.mapping("headers", own)
    templates |= own
    fixed = {name: "".join(part for part in template if isinstance(part, str)) for name, template in own.items()}
    for name, value in (headers | fixed).items():
        place = table.members["headers"]
        at = place.member(name, (place.node.members or {})[name])
        if _HEADER.fullmatch(name) is None:
            at.wrong("is not a valid header name")
        elif not value.isascii() or not value.isprintable():
            at.wrong("has an invalid header value")  # which may be a secret
    return headers


def _command(entry: Table, ours: Table) -> tuple[Command, str] | None:
    if _kind(entry) not in ("any", "stdio"):
        _tell_kind(entry, "the transport of a `command` is stdio")
    args = entry.members.get("args")
    words = () if args is None else args.texts(are_kept_apart=True)
    templates: dict[str, CallerTemplate] = {}
    env = _allowed(ours) | _env(entry, templates)
    folder = entry.members.get("cwd")
    cwd = None if folder is None else folder.path()
    if folder is not None and cwd is not None and not cwd.is_dir():
        folder.warn("no such directory")
    place = entry.members["command"]
    program = place.text()
    if program is None:
        return None
    if _not_found(program, env, cwd):
        place.warn(f"no such program: {quoted(place.node.value)}")
    written = [place.node, *((args.node.items or ()) if args is not None else ())]
    shown = shown_command([str(node.value) for node in written])
    command = Command(args=(program, *words), env=env, cwd=None if cwd is None else str(cwd))
    if templates:
        command = PersonalCommand(args=command.args, env=env, cwd=command.cwd, templates=templates)
    return command, shown


def _not_found(program: str, env: Mapping[str, str], cwd: Path | None) -> bool:
    if "/" in program or os.sep in program:
        return not (cwd or Path()).joinpath(program).is_file()
    return shutil.which(program, path=env.get("PATH")) is None


def _env(entry: Table, templates: dict[str, CallerTemplate]) -> dict[str, str]:
    env = entry.mapping("env", templates)
    for name in (*env, *templates):
        if _VARIABLE.fullmatch(name) is None:
            place = entry.members["env"]
            place.member(name, (place.node.members or {})[name]).wrong("is not a valid name of an environment variable")
    return env


def _allowed(ours: Table) -> dict[str, str]:
    """Variables of our own environment that are passed on, beside those that every server gets."""
    names = [name for name in ours.texts("env") if name not in INHERITED]
    for name in names:
        if name not in os.environ:
            ours.members["env"].warn(f"environment variable not set: {quoted(name)}")
    return {name: os.environ[name] for name in names if name in os.environ}


def _python(entry: Table, ours: Table) -> tuple[PythonTarget, str] | None:
    if "type" in entry.members or "transport" in entry.members:
        _tell_kind(entry, "a `python` server has no transport")
    _warn_useless(
        entry, ("args", "env", "cwd"), "is only for a `command`: a `python` server runs in the process of the broker"
    )
    _warn_useless(ours, ("env",), "is only for a `command`: a `python` server runs in the process of the broker")
    place = entry.members["python"]
    text = place.text(what="a string: FILE.py:NAME")
    if text is None:
        return None
    try:
        file, name = split_target(text)
    except CannotServe:
        place.wrong(f"{quoted(place.node.value)} is not a Python server: expected FILE.py:NAME")
        return None
    path = Path(os.path.normpath(place.report.file.absolute().parent / file.expanduser()))
    if not path.is_file():
        place.wrong("no such file")
    return PythonTarget(file=path, name=name), str(place.node.value)


def _openapi(entry: Table, ours: Table) -> tuple[OpenApiTarget, str] | None:
    if "type" in entry.members or "transport" in entry.members:
        _tell_kind(entry, "an `openapi` server has no transport")
    _warn_useless(entry, ("args", "env", "cwd"), "is only for a `command`, not for an `openapi`")
    _warn_useless(ours, ("env",), "is only for a `command`, not for an `openapi`")
    templates: dict[str, CallerTemplate] = {}
    headers = _headers(entry, templates) | _headers(ours, templates)
    from callboard.config.openapi import read_openapi  # it takes time to load

    return read_openapi(entry, headers, templates)


def _kind(entry: Table) -> Kind | Literal["stdio"]:
    place = entry.members.get("type") or entry.members.get("transport")
    if place is None:
        return "any"
    named = place.node.value
    if isinstance(named, str) and named in _KINDS:
        return _KINDS[named]
    hint = nearest(named, _KINDS) if isinstance(named, str) else ""
    _tell_kind(entry, f"unknown type {str(named)[:100]!r}; known: {', '.join(_KINDS)}{hint}")
    return "any"


def _tell_kind(entry: Table, message: str) -> None:
    """Of the entry, in the line where its type stands."""
    place = entry.members.get("type") or entry.members.get("transport") or entry.place
    place.report.tell(place.node, entry.place.where, message)


def _warn_useless(table: Table, keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if key in table.members:
            table.members[key].warn(why)
