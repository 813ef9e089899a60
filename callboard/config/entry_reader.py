"""An entry of a configuration file, as a target for a client."""

from pathlib import Path

from callboard.config.load import OURS, open_entry, read_servers
from callboard.config.loading import loaded
from callboard.config.model import OpenApiTarget, PythonTarget
from callboard.config.reader import Place
from callboard.config.remote import Remote
from callboard.config.report import BadConfiguration, Mistake
from callboard.config.target import read_target
from callboard.errors import CannotConnect, CannotServe, InvalidTarget
from callboard.server.server import Server
from callboard.transports.client.process import Command


def read_named(file: Path, name: str | None) -> Command | Remote | Server:
    """The server of that *name*; without one the only server. Raises `CannotConnect`, and `InvalidTarget` if it is not
    there, in one line."""
    if not file.exists():
        raise InvalidTarget(f"{file}: No such file or directory")
    try:
        _, servers = read_servers(file)
    except BadConfiguration as error:
        raise CannotConnect(_about_file(error.mistakes[0])) from None
    if not name:
        if len(servers) != 1:
            raise InvalidTarget(f"{file} has {len(servers)} servers; choose one: {file}#{'|'.join(servers)}")
        name = next(iter(servers))
    if name not in servers:
        raise InvalidTarget(f"no server {name[:100]!r} in {file}; it has: {', '.join(servers) or 'none'}")
    return _target(servers[name], f"{file}#{name}")


def _target(place: Place, title: str) -> Command | Remote | Server:
    entry = open_entry(place)
    found = read_target(entry, entry.table(OURS)) if place.node.members is not None else None
    for mistake in place.report.mistakes:
        raise CannotConnect(_about_entry(mistake, title, place.where))
    if found is None:
        raise CannotConnect(f"{title} is not a valid server")
    target, _ = found
    if not isinstance(target, PythonTarget | OpenApiTarget):
        return target
    try:
        return loaded(target)
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
