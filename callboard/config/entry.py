"""One entry of the file in which MCP hosts, and brokers, keep their servers: `FILE.json#NAME`, or `FILE.toml#NAME`."""

import re
from pathlib import Path
from typing import Final

from callboard.config.load import OURS, open_entry, read_servers
from callboard.config.model import PythonTarget, Remote
from callboard.config.reader import Place
from callboard.config.report import BadConfiguration, Mistake
from callboard.config.target import read_target
from callboard.errors import CannotConnect, CannotServe
from callboard.server.load import load_server
from callboard.server.server import Server
from callboard.transports.client.process import Command

__all__ = ["Remote", "is_entry", "read_entry"]

_NAMED: Final = re.compile(r"(?P<file>.+\.(?:jsonc?|toml))(?:#(?P<name>.*))?", re.DOTALL)


def is_entry(text: str) -> bool:
    """Whether *text* names an entry of such a file: `path/to/file.json#name`."""
    return _NAMED.fullmatch(text) is not None


def read_entry(text: str) -> Command | Remote | Server:
    """The server that *text* names; without a name the only one. Raises `CannotConnect`, in one line."""
    named = _NAMED.fullmatch(text)
    if named is None:
        raise CannotConnect(f"{text[:200]!r} is not a server of a configuration file: expected FILE.json#NAME")
    file, name = Path(named["file"]).expanduser(), named["name"]
    try:
        _, servers = read_servers(file)
    except BadConfiguration as error:
        raise CannotConnect(_about_file(error.mistakes[0])) from None
    if not name:
        if len(servers) != 1:
            raise CannotConnect(f"{file} has {len(servers)} servers; choose one: {file}#{'|'.join(servers)}")
        name = next(iter(servers))
    if name not in servers:
        raise CannotConnect(f"no server {name[:100]!r} in {file}; it has: {', '.join(servers) or 'none'}")
    return _target(servers[name], f"{file}#{name}")


def _target(place: Place, title: str) -> Command | Remote | Server:
    entry = open_entry(place)
    found = read_target(entry, entry.table(OURS)) if place.node.members is not None else None
    for mistake in place.report.mistakes:
        raise CannotConnect(_about_entry(mistake, title, place.where))
    if found is None:
        raise CannotConnect(f"{title} is not a valid server")
    target, _ = found
    if not isinstance(target, PythonTarget):
        return target
    try:
        return load_server(str(target))
    except CannotServe as error:
        raise CannotConnect(str(error)) from None


def _about_file(mistake: Mistake) -> str:
    if mistake.line is None:
        return str(mistake)
    return f"{mistake.file} {_told(mistake, mistake.where)} (line {mistake.line})"


def _about_entry(mistake: Mistake, title: str, where: str) -> str:
    within = mistake.where.removeprefix(where).removeprefix(".")
    is_of_entry = not within and not mistake.message.startswith(("is ", "must "))
    return f"{title}{': ' if within or is_of_entry else ' '}{_told(mistake, within)}"


def _told(mistake: Mistake, key: str) -> str:
    """As a sentence about *key*."""
    joint = " " if mistake.message.startswith(("is ", "must ", "has ", "may ")) else ": "
    return f"`{key}`{joint}{mistake.message}" if key else mistake.message
